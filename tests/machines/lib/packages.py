"""Which packages of Situla are put on a machine? Those of this tree, built for the machine's Debian, in two revisions: the second is for upgrades."""
import glob
import os
import subprocess

import distributions
from places import PREFIX, REPOSITORY, STATE, LabError, write
from prepare import locked, newer_than

NAMES = ["situla", "situla-slurm-plugin"]


def place(release: str) -> str:
    return f"{STATE}/packages" if release == "bookworm" else f"{STATE}/packages.{release}"


def build(release: str) -> dict[str, list[str]]:
    """The files of each revision, "1" and "2"; built where a source has changed."""
    if release == "bookworm":
        bash("build_packages")
    else:
        build_elsewhere(release)
    return {revision: [glob.glob(f"{place(release)}/{revision}/{name}_*.deb")[0] for name in NAMES] for revision in ("1", "2")}


def bash(command: str) -> None:
    script = f"repository={REPOSITORY}; . {REPOSITORY}/tests/packages/lib/build.bash; {command}"
    built = subprocess.run(["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        raise LabError(f"building the packages failed: {built.stderr}")


def build_elsewhere(release: str) -> None:
    """In the root with that release's compiler and Slurm that tests/cluster/versions uses; from a tarball, as nobody has git's files there."""
    directory, stamp = place(release), f"{place(release)}/made"
    os.makedirs(directory, exist_ok=True)
    with locked(f"packages.{release}/lock"):
        if not newer_than(stamp):
            return
        subprocess.run(["rm", "-rf", f"{directory}/1", f"{directory}/2", f"{directory}/source"], check=True)
        write(f"{stamp}.new", PREFIX)  # what newer_than() expects there
        distributions.make(release)
        pack = [f"{REPOSITORY}/packaging/make-tarball", "--output", f"{directory}/source"]
        subprocess.run(pack, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        tarball = os.path.basename(glob.glob(f"{directory}/source/*.tar.xz")[0])
        inside = f"/host-lab/packages.{release}"
        words = ["packaging/build-deb", "--tarball", f"{inside}/source/{tarball}", "--output", f"{inside}/1"]
        distributions.logged(release, f"{directory}/build.log", f"building packages for {release}", [
            ["apt-get", "-q", "install", "-y", "--no-install-recommends", "build-essential"],
            ["env", "DEB_BUILD_OPTIONS=preset-release noautodbgsym", *words]])
        os.makedirs(f"{directory}/2")
        for package in glob.glob(f"{directory}/1/*.deb"):
            bash(f"repack {package} 2 {directory}/2")
        os.rename(f"{stamp}.new", stamp)

