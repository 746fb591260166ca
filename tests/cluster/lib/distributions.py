"""Which other distributions is Situla tried on? Roots, each with a Slurm of another version."""
import os
import re
import subprocess
import sys

import kernel
from places import INSTALLED, PREFIX, REPOSITORY, STATE, LabError, read, write

NAMES = ["trixie", "noble", "resolute", "sid"]
DEBIAN = {"bookworm", "trixie", "sid"}
ROOTS = f"{STATE}/roots"
# What only unit tests, style checks and measurements need.
LEFT_OUT = re.compile("catch2|libbenchmark-dev|clang-.*|libclang-.*|podman|debootstrap|hyperfine|zsh|bash-completion|isal|libpmix.*|libpmi2.*")
ENVIRONMENT = {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


def enter(name: str) -> None:
    """This process, from now on: in that root, in the repository. pivot_root, not chroot: no user namespace can be made in a chroot."""
    root, tree = f"{ROOTS}/{name}", f"{ROOTS}/{name}.tree"
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.make_private("/")
    kernel.bind(root, root)
    for top in ("dev", "proc", "sys"):
        kernel.bind(f"/{top}", f"{root}/{top}", recursive=True)
    for path in (root + REPOSITORY, tree, f"{root}/host-lab"):
        os.makedirs(path, exist_ok=True)
    kernel.bind(REPOSITORY, root + REPOSITORY)
    kernel.bind(tree, f"{root}{REPOSITORY}/build")
    kernel.bind(STATE, f"{root}/host-lab")
    for folder in ("images", "registry", "tls"):
        os.makedirs(f"{tree}/lab/{folder}", exist_ok=True)
        os.makedirs(f"{STATE}/{folder}", exist_ok=True)
        kernel.bind(f"{STATE}/{folder}", f"{root}{REPOSITORY}/build/lab/{folder}")
    kernel.enter_new_root(root, "mnt")
    os.chdir(REPOSITORY)


def run_in(name: str, command: list[str], **options) -> int:
    return subprocess.run(command, env=os.environ | ENVIRONMENT, preexec_fn=lambda: enter(name), check=False, **options).returncode


def logged(name: str, log: str, what: str, commands: list[list[str]]) -> None:
    """Runs them in the root, one after the other, silently unless one fails."""
    with open(log, "ab") as out:
        for command in commands:
            if run_in(name, command, stdin=subprocess.DEVNULL, stdout=out, stderr=out) != 0:
                fail(log, what)


def fail(log: str, what: str) -> None:
    print("\n".join(read(log).splitlines()[-30:]), file=sys.stderr)
    raise LabError(f"{what} failed; the whole log is {log}")


def mirror() -> list[str]:
    """Where this machine's apt gets Debian from; debootstrap's choice where it does not say."""
    return subprocess.run([f"{REPOSITORY}/tests/support/mirror"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def bootstrap(name: str, root: str, packages: list[str]) -> list[str]:
    """What makes a system with these. Debian's keys are here; Ubuntu's are a package of trixie."""
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    if name in DEBIAN:
        return [*command, name, root, *mirror()]
    make("trixie")
    logged("trixie", f"{ROOTS}/trixie.log", "installing Ubuntu's keys", [["apt-get", "-q", "install", "-y", "ubuntu-keyring"]])
    # "gutsy" is the script that knows where Ubuntu's archive is.
    return [*command, "--components=main,universe", f"--keyring={ROOTS}/trixie/usr/share/keyrings/ubuntu-archive-keyring.gpg", name, root, "", "gutsy"]


def make(name: str) -> None:
    """The root, once, with everything of packaging/install-deps that the distribution has by the same name."""
    root, log = f"{ROOTS}/{name}", f"{ROOTS}/{name}.log"
    if os.path.exists(f"{root}.made"):
        return
    print(f"versions: making {root} (log: {log})", file=sys.stderr)
    os.makedirs(ROOTS, exist_ok=True)
    subprocess.run(["rm", "-rf", "--one-file-system", root, log], check=True)
    command = bootstrap(name, root, ["ca-certificates"])
    with open(log, "ab") as out:
        if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False).returncode != 0:
            fail(log, f"making {root}")
    write(f"{root}/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")
    os.chmod(f"{root}/usr/sbin/policy-rc.d", 0o755)
    listed = subprocess.run([f"{REPOSITORY}/packaging/install-deps", "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    wanted = [package for package in [*listed, "util-linux-extra", "build-essential"] if not LEFT_OUT.fullmatch(package)]
    logged(name, log, f"making {root}", [
        # Mirrors and clocks disagree: an archive that was not renewed for days is good enough.
        ["apt-get", "-q", "-o", "Acquire::Check-Valid-Until=false", "update"],
        ["bash", "-c", 'comm -12 <(apt-cache pkgnames | sort) <(printf "%s\\n" "$@" | sort) | '
                       "xargs apt-get -q -o Dpkg::Options::=--force-unsafe-io install -y --no-install-recommends",
         "install", *wanted],
        ["apt-get", "clean"]])
    write(f"{root}.made", "")


def build(name: str, everything: bool) -> None:
    """The plugin, and with `everything` all programs, for this distribution's Slurm."""
    log = f"{ROOTS}/{name}.build.log"
    write(log, "")
    if everything:
        commands = [["tests/cluster/run", "--prepare"]]
    else:
        commands = [["cmake", "--preset", "release", "-B", "build/plugin", "-DBUILD_TESTING=OFF", f"-DCMAKE_INSTALL_PREFIX={PREFIX}",
                     f"-DSITULA_LIBEXEC_DIR={PREFIX}/libexec/situla"],
                    ["cmake", "--build", "build/plugin", "--target", "spank_situla"],
                    ["rm", "-rf", INSTALLED],
                    ["cp", "-a", "/host-lab/prefix", INSTALLED],
                    ["cp", "build/plugin/plugin/spank_situla.so", f"{INSTALLED}/lib/slurm/"]]
    logged(name, log, f"building in {name}", commands)


def run_tests(name: str) -> int:
    """The suites that need no lab, by the compiler and the libraries of this distribution."""
    # Newer ones have another Catch2 than the tests are written for: this machine's, which is headers and some lines of CMake.
    local = f"{ROOTS}/{name}/usr/local"
    os.makedirs(f"{local}/lib/cmake", exist_ok=True)
    for path in ("include/catch2", "lib/cmake/Catch2", "lib/libCatch2WithMain.a"):
        subprocess.run(["cp", "-a", "-T", f"/usr/{path}", f"{local}/{path}"], check=True)
    return run_in(name, ["tests/run", "--no-install", "unit", "userns"])
