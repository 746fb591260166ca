"""Which packages of Situla are put on a machine? Those of this tree, in two revisions: the second is for upgrades."""
import glob
import os
import subprocess
import sys

import distributions
import prepare
from places import REPOSITORY, STATE, LabError, write
from prepare import locked
from releases import DEFAULT

NAMES = ["situla", "situla-slurm-plugin"]
REVISIONS = ["1", "2"]


def build(distribution: str) -> dict[str, list[str]]:
    """The files of each revision; built where a source has changed."""
    directory = f"{STATE}/packages"
    if distribution == DEFAULT:
        bash("build_packages")
    else:
        directory += f".{distribution}"
        build_there(distribution, directory)
    return {revision: [found(directory, revision, name) for name in NAMES] for revision in REVISIONS}


def found(directory: str, revision: str, name: str) -> str:
    return glob.glob(f"{directory}/{revision}/{name}_*.deb")[0]


def bash(command: str, *words: str) -> None:
    script = f". {REPOSITORY}/tests/packages/lib/build.bash; {command}"
    built = subprocess.run(["bash", "-c", script, "bash", *words], env=os.environ | {"repository": REPOSITORY}, text=True, check=False,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if built.returncode != 0:
        raise LabError(f"building the packages failed: {built.stderr}")


def build_there(distribution: str, directory: str) -> None:
    """As a packager does there, in the root that tests/cluster/versions uses."""
    os.makedirs(directory, exist_ok=True)
    with locked(f"packages.{distribution}/lock"):
        stamp = f"{directory}/made"
        if not prepare.newer_than(stamp):
            return
        distributions.make(distribution)
        write(f"{stamp}.new", "")
        for revision in REVISIONS:
            subprocess.run(["rm", "-rf", f"{directory}/{revision}"], check=True)
            os.mkdir(f"{directory}/{revision}")
        print(f"machines: building the packages in {distribution} (log: {directory}/build.log)", file=sys.stderr, flush=True)
        write(f"{directory}/build.log", "")
        distributions.logged(distribution, f"{directory}/build.log", f"building the packages in {distribution}", [
            ["env", "DEB_BUILD_OPTIONS=noautodbgsym", "packaging/build-deb", "--output", f"/host-lab/{os.path.basename(directory)}/1"]])
        for name in NAMES:
            bash('repack "$@"', found(directory, "1", name), "2", f"{directory}/2")
        os.rename(f"{stamp}.new", stamp)
