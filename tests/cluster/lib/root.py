"""What is the root file system of an instance, and of a node in it? This machine's, with private copies of all that a node or a test may change."""
import os
import shutil
import stat
import subprocess

import kernel
from options import Options
from places import INSTALLED, PREFIX, REPOSITORY, STATE, read, write

# Put together on a directory that is not itself carried over.
NEW_ROOT = "/dev/shm"
OWN = {"dev", "proc", "sys", "tmp", "run", "home", "root", "shared", "scratch", "lost+found"}
PRIVATE = {"etc", "var", "opt"}  # seen through an overlay: changes stay in the instance, in memory


def run(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def enter(directory: str, options: Options) -> None:
    """This process, in a mount namespace of its own, gets the root of the instance."""
    root, scratch = NEW_ROOT, f"{NEW_ROOT}/.scratch"
    kernel.make_private("/")
    if options.disk:
        mount_disk(directory)
    kernel.mount("tmpfs", root, "mode=755")
    os.mkdir(scratch, 0o700)
    for entry in os.scandir("/"):
        if not entry.name.startswith("."):
            carry_over(entry, root, scratch)
    for name in OWN - {"lost+found"}:
        os.makedirs(f"{root}/{name}", exist_ok=True)
    kernel.tmpfs(f"{root}/home", 0o755)
    kernel.tmpfs(f"{root}/shared", 0o1777)
    kernel.tmpfs(f"{root}/scratch", 0o755)
    if options.disk:
        os.makedirs(f"{directory}/disk/home", exist_ok=True)
        kernel.bind(f"{directory}/disk/home", f"{root}/home")
    os.chmod(f"{root}/root", 0o711)
    mount_own(root)
    expose_repository(root)
    # The plugin and the programs as they are now: a later build must not change them under running daemons.
    if options.plugin:
        run("cp", "-a", INSTALLED, f"{scratch}/prefix")
        os.makedirs(f"{root}{PREFIX}", exist_ok=True)
        kernel.bind(f"{scratch}/prefix", f"{root}{PREFIX}")
    if f"{REPOSITORY}/".startswith(("/tmp/", "/var/tmp/", "/run/")):
        # Nodes have their own of these: they find the repository again through this.
        os.mkdir(f"{scratch}/repository")
        kernel.bind(f"{root}{REPOSITORY}", f"{scratch}/repository", recursive=True)
    os.mkdir(f"{root}/.old")
    kernel.enter_new_root(root, ".old")
    os.rmdir("/.old")
    # This machine may have a Slurm and a Situla of its own.
    for path in ("/var/lib/situla", "/var/lib/situla-incoming", "/var/spool/slurmd", "/var/spool/slurmctld", "/etc/slurm", "/etc/situla", "/etc/enroot"):
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
    trust_ca()


def carry_over(entry: os.DirEntry, root: str, scratch: str) -> None:
    """One entry of this machine's root."""
    target = f"{root}/{entry.name}"
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), target)
    elif not entry.is_dir() or entry.name in OWN:
        return
    elif entry.name in PRIVATE:
        kernel.overlay(entry.path, f"{scratch}/overlay/{entry.name}", target)
    else:
        os.mkdir(target)
        kernel.bind(entry.path, target, recursive=entry.name != "usr")
        if entry.name == "usr":
            kernel.make_read_only(target)


def mount_disk(directory: str) -> None:
    """What --disk asks for: XFS, as sites have it, with file extents that can be shared; ext4 slows down for minutes after many files were
    deleted. The loop device goes with the instance's mounts."""
    os.makedirs(f"{directory}/disk", exist_ok=True)
    run("truncate", "-s", "60G", f"{directory}/disk.xfs")
    run("mkfs.xfs", "-q", f"{directory}/disk.xfs")
    loop = run("losetup", "--find", "--show", "--direct-io=on", f"{directory}/disk.xfs")
    kernel.mount_device(loop, f"{directory}/disk", "xfs")
    run("losetup", "--detach", loop)


def expose_repository(root: str) -> None:
    """The repository is seen inside where it is outside, and by ordinary users, even below a home directory that is closed to them."""
    path = ""
    for part in REPOSITORY.split("/")[1:-1]:
        path += f"/{part}"
        if os.path.isdir(root + path) and not os.stat(root + path).st_mode & 0o001:
            kernel.tmpfs(root + path, 0o755)
    # Not there, or there only as an overlay's copy.
    if not (os.path.exists(root + REPOSITORY) and os.path.samefile(REPOSITORY, root + REPOSITORY)):
        os.makedirs(root + REPOSITORY, exist_ok=True)
        kernel.bind(REPOSITORY, root + REPOSITORY, recursive=True)


def find_repository() -> None:
    """In a node, after everything that covers directories."""
    if os.path.isdir("/.scratch/repository"):
        os.makedirs(REPOSITORY, exist_ok=True)
        kernel.bind("/.scratch/repository", REPOSITORY, recursive=True)


def trust_ca() -> None:
    certificate = f"{STATE}/tls/ca.crt"
    write("/etc/ssl/certs/ca-certificates.crt", read(certificate), "a")
    link = f"/etc/ssl/certs/{run('openssl', 'x509', '-hash', '-noout', '-in', certificate)}.0"
    if os.path.lexists(link):
        os.unlink(link)
    os.symlink(certificate, link)


def mount_own(root: str = "") -> None:
    """What each machine has for itself: /proc, /sys, /dev, /run, /tmp. `root` is the one to put them in; without it the present ones are replaced."""
    if not root:
        for path in ("/run", "/tmp", "/proc"):
            kernel.detach(path)
    kernel.tmpfs(f"{root}/run", 0o755, kernel.MS_NOSUID)
    os.mkdir(f"{root}/run/lock")
    os.chmod(f"{root}/run/lock", 0o1777)
    kernel.tmpfs(f"{root}/tmp", 0o1777)
    kernel.mount("proc", f"{root}/proc")
    if root:
        kernel.mount("sysfs", f"{root}/sys")
        kernel.bind("/sys/fs/cgroup", f"{root}/sys/fs/cgroup", recursive=True)
    # A /dev of its own, filled like this machine's, because some nodes get other modes than without udev (fuse: 0666) and mqueue is mounted.
    devices = f"{root}/run/dev"
    os.mkdir(devices)
    kernel.tmpfs(devices, 0o755, kernel.MS_NOSUID)
    make_devices(devices)
    for name in ("pts", "mqueue", "shm"):
        os.mkdir(f"{devices}/{name}")
    kernel.mount("devpts", f"{devices}/pts", "newinstance,gid=5,mode=620,ptmxmode=666")
    kernel.tmpfs(f"{devices}/shm", 0o1777, kernel.MS_NOSUID | kernel.MS_NODEV)
    kernel.mount("mqueue", f"{devices}/mqueue")
    if not root:
        kernel.detach("/dev")
    kernel.move(devices, f"{root}/dev")
    os.rmdir(devices)


def make_devices(new: str) -> None:
    for entry in os.scandir("/dev"):
        target = f"{new}/{entry.name}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif not entry.is_dir():
            copy_device(entry, target)
        elif entry.name not in ("pts", "shm", "mqueue", "hugepages", "fd"):
            # Folders with device nodes, one level deep: net/tun, a vendor's.
            os.mkdir(target)
            for inner in os.scandir(entry.path):
                copy_device(inner, f"{target}/{inner.name}")
    # Made ahead: the kernel adds new ones only to the real devtmpfs.
    for number in range(256):
        if not os.path.exists(f"{new}/loop{number}"):
            os.mknod(f"{new}/loop{number}", 0o660 | stat.S_IFBLK, os.makedev(7, number))
    if not os.path.exists(f"{new}/fuse"):
        os.mknod(f"{new}/fuse", 0o666 | stat.S_IFCHR, os.makedev(10, 229))
    os.chmod(f"{new}/fuse", 0o666)
    if os.path.lexists(f"{new}/ptmx"):
        os.unlink(f"{new}/ptmx")
    os.symlink("pts/ptmx", f"{new}/ptmx")


def copy_device(entry: os.DirEntry, target: str) -> None:
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        os.mknod(target, stat.S_IFMT(status.st_mode), status.st_rdev)
        os.chmod(target, stat.S_IMODE(status.st_mode))
        os.chown(target, status.st_uid, status.st_gid)
