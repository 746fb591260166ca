"""Which packages of Situla are put on a machine? Those of this tree, in two revisions: the second is for upgrades."""
import glob
import subprocess

from places import REPOSITORY, STATE, LabError

NAMES = ["situla", "situla-slurm-plugin"]


def build() -> dict[str, list[str]]:
    """The files of each revision, "1" and "2"; built where a source has changed."""
    script = f"repository={REPOSITORY}; . {REPOSITORY}/tests/packages/lib/build.bash; build_packages"
    built = subprocess.run(["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        raise LabError(f"building the packages failed: {built.stderr}")
    return {revision: [glob.glob(f"{STATE}/packages/{revision}/{name}_*.deb")[0] for name in NAMES] for revision in ("1", "2")}
