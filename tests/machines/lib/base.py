"""What is on a machine before Situla is? The root of a Debian with a kernel, systemd and Slurm, made once and kept beside other caches of the tests."""
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import distributions
from places import LabError, read, write
from releases import Release

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "situla-tests", "machines")
PACKAGES = ["systemd-sysv", "dbus", "udev", "kmod", "apparmor", "ca-certificates", "iproute2", "procps", "util-linux-extra",
            "slurm-wlm", "munge", "docker-registry", "bats", "xfsprogs", "nfs-kernel-server"]
# What the first programs need to find the disk; everything else comes from it.
INITRD_MODULES = ["virtio_pci", "virtio_blk", "ext4", "crc32c_generic"]
RECIPE = 1  # counts changes of what is done below
ENVIRONMENT = {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


def needs(packages: list[str]) -> list[str]:
    """The packages of Debian that these .deb files depend on, the first of each alternative."""
    own, names = set(), set()
    for package in packages:
        own.add(field(package, "Package"))
        names |= {re.split(r"[ |]", word.strip())[0] for word in field(package, "Depends").split(",")}
    return sorted(names - own)


def field(package: str, name: str) -> str:
    return subprocess.run(["dpkg-deb", "--field", package, name], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def chroot(root: str, *command: str) -> list[str]:
    """A command in the root, with a /proc of its own that is gone afterwards."""
    script = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
    return ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "sh", "-c", script, root, *command]


def logged(command: list[str], log: str, what: str) -> None:
    with open(log, "ab") as out:
        if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=os.environ | ENVIRONMENT, check=False).returncode != 0:
            print("\n".join(read(log).splitlines()[-20:]), file=sys.stderr)
            raise LabError(f"{what} failed; the whole log is {log}")


def make(release: Release, packages: list[str], root: str, log: str) -> None:
    print(f"machines: making a root of {release.title} (log: {log})", file=sys.stderr, flush=True)
    partial = f"{root}.partial"
    subprocess.run(["rm", "-rf", "--one-file-system", partial, log], check=True)
    # In a mount namespace: what it mounts and cannot unmount at its end is gone with it.
    apart = ["unshare", "--mount", "--propagation", "private"]
    logged([*apart, *distributions.bootstrap(release.distribution, partial, packages)], log, f"making a root of {release.title}")
    os.makedirs(f"{partial}/etc/initramfs-tools/conf.d", exist_ok=True)
    write(f"{partial}/etc/initramfs-tools/conf.d/machine", "MODULES=list\nCOMPRESS=gzip\nCOMPRESSLEVEL=1\n")
    write(f"{partial}/etc/initramfs-tools/modules", "\n".join(INITRD_MODULES) + "\n")
    # Slurm loads it by the name that only the development package has.
    os.symlink("libpmix.so.2", f"{partial}/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so")
    if release.kernel_of:
        add_kernel(release, partial, log)
    logged(chroot(partial, "update-initramfs", "-u", "-k", "all"), log, "making the first root of a machine")
    # Not of any use on a machine without a network.
    shutil.rmtree(f"{partial}/var/cache/apt/archives", ignore_errors=True)
    os.makedirs(f"{partial}/var/cache/apt/archives/partial")
    os.rename(partial, root)


def add_kernel(release: Release, root: str, log: str) -> None:
    """That of another Debian, by apt, which has the rest from its own."""
    source = f"{root}/etc/apt/sources.list.d/kernel.list"
    write(source, f"deb {''.join(distributions.mirror()) or 'http://deb.debian.org/debian'} {release.kernel_of} main\n")
    script = 'apt-get -q -o Acquire::Check-Valid-Until=false update && apt-get -q install -y --no-install-recommends --target-release "$@"'
    logged(chroot(root, "sh", "-euc", script, "sh", release.kernel_of, *release.kernel), log, f"installing the kernel of {release.kernel_of}")
    os.unlink(source)


@contextlib.contextmanager
def base_root(release: Release, needed: list[str]) -> Iterator[str]:
    """The root, which nobody removes or may change meanwhile."""
    packages = sorted({*PACKAGES, release.pmix, *([] if release.kernel_of else release.kernel), *needed})
    key = hashlib.sha256("\n".join([release.name, str(RECIPE), *packages, *INITRD_MODULES]).encode()).hexdigest()[:12]
    os.makedirs(CACHE, exist_ok=True)
    root = f"{CACHE}/{release.name}-{key}"
    with open(f"{root}.lock", "w", encoding="ascii") as lock:
        if not os.path.isdir(root):
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.isdir(root):
                make(release, packages, root, f"{root}.log")
        fcntl.flock(lock, fcntl.LOCK_SH)
        forget_others(release, root)
        yield root


def forget_others(release: Release, kept: str) -> None:
    """Roots of this release that were made of other packages, or not to their end, and that no machine is made from now."""
    for name in {name.removesuffix(".partial") for name in os.listdir(CACHE)}:
        other = f"{CACHE}/{name}"
        if not name.startswith(f"{release.name}-") or "." in name or other == kept:
            continue
        with open(f"{other}.lock", "w", encoding="ascii") as lock:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                subprocess.run(["rm", "-rf", "--one-file-system", other, f"{other}.partial", f"{other}.log"], check=True)
