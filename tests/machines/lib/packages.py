"""Which packages of Situla are put on a machine? Those of this tree, in two revisions: the second is for upgrades."""
import glob
import os
import shutil
import subprocess

import distributions
from places import REPOSITORY, STATE, LabError
from prepare import locked
from releases import DEFAULT

NAMES = ["situla", "situla-slurm-plugin"]
REVISIONS = ["1", "2"]
HOSTS = f"{STATE}/packages"  # for this host's Debian
# Another Slurm's plugin in the package, and that Slurm as what it depends on.
EXCHANGE = r"""
exchange() {
  cp "$plugin" "$1"/usr/lib/*/slurm-wlm/ &&
    sed -i -E "s/(slurm[^ ]* \(>= )[0-9.]+/\1$slurm/; s/(slurm[^ ]* \(<< )[0-9.]+~/\1$next~/" "$1/DEBIAN/control"
}
repack "$1" "$2" "$3" exchange
"""


def build(release: str) -> dict[str, list[str]]:
    """The files of each revision; built where a source has changed."""
    bash("build_packages")
    directory = HOSTS if release == DEFAULT else exchanged(release)
    return {revision: [found(directory, revision, name) for name in NAMES] for revision in REVISIONS}


def found(directory: str, revision: str, name: str) -> str:
    return glob.glob(f"{directory}/{revision}/{name}_*.deb")[0]


def bash(command: str, *words: str, **variables: str) -> None:
    script = f". {REPOSITORY}/tests/packages/lib/build.bash; {command}"
    built = subprocess.run(["bash", "-c", script, "bash", *words], env=os.environ | variables | {"repository": REPOSITORY}, text=True, check=False,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if built.returncode != 0:
        raise LabError(f"building the packages failed: {built.stderr}")


def exchanged(release: str) -> str:
    """The programs know nothing of Slurm and are this host's. The plugin is compiled in the root that tests/cluster/versions uses, for its Slurm."""
    directory = f"{HOSTS}.{release}"
    stamp = f"{directory}/made"
    os.makedirs(directory, exist_ok=True)
    with locked(f"packages.{release}/lock"):
        if os.path.exists(stamp) and os.path.getmtime(stamp) == os.path.getmtime(f"{HOSTS}/made"):
            return directory
        distributions.make(release)
        tree = "build/plugin"
        distributions.logged(release, f"{directory}/build.log", f"building the plugin for {release}", [
            ["cmake", "--preset", "release", "-B", tree, "-DSITULA_PROGRAMS=OFF", "-DBUILD_TESTING=OFF", "-DCMAKE_INSTALL_PREFIX=/usr"],
            ["cmake", "--build", tree, "--target", "spank_situla"],
            ["cp", f"{tree}/plugin/spank_situla.so", f"/host-lab/{os.path.basename(directory)}/"]])
        slurm, following = slurm_of(release)
        for revision in REVISIONS:
            subprocess.run(["rm", "-rf", f"{directory}/{revision}"], check=True)
            os.mkdir(f"{directory}/{revision}")
            shutil.copy(found(HOSTS, revision, "situla"), f"{directory}/{revision}/")
            bash(EXCHANGE, found(HOSTS, revision, "situla-slurm-plugin"), revision, f"{directory}/{revision}",
                 plugin=f"{directory}/spank_situla.so", slurm=slurm, next=following)
        shutil.copy2(f"{HOSTS}/made", stamp)  # its time: of the same sources
    return directory


def slurm_of(release: str) -> tuple[str, str]:
    """Which the plugin is for, and the first that it is not for: as packaging/deb/rules has it."""
    query = subprocess.run(["dpkg-query", f"--admindir={distributions.ROOTS}/{release}/var/lib/dpkg", "--show", "--showformat=${Version}", "libslurm-dev"],
                           stdout=subprocess.PIPE, text=True, check=True)
    major, minor = query.stdout.split(".")[:2]
    return f"{major}.{minor}", f"{major}.{int(minor) + 1:02}"
