"""How are file systems mounted, and namespaces left? System calls that Python 3.11 has no functions for."""
import ctypes
import os

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 8192, 16384, 1 << 18
MNT_DETACH = 2
CLONE_NEWNS, CLONE_NEWCGROUP = 0x00020000, 0x02000000

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    _check(_libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()), f"mount {kind or source} {target}")


def mount(kind: str, target: str, data: str = "", flags: int = 0) -> None:
    """A new file system of that kind."""
    _mount(kind, target, kind, flags, data)


def mount_device(device: str, target: str, kind: str) -> None:
    _mount(device, target, kind, 0)


def tmpfs(target: str, mode: int, flags: int = 0) -> None:
    """An empty one, which df(1) shows under its own name: shm, home."""
    _mount(os.path.basename(target), target, "tmpfs", flags, f"mode={mode:o}")


def overlay(lower: str, changes: str, target: str) -> None:
    """`lower`, with what is changed in it kept in the directory `changes`, which is made."""
    os.makedirs(f"{changes}/upper", exist_ok=True)
    os.makedirs(f"{changes}/work", exist_ok=True)
    os.makedirs(target, exist_ok=True)
    _mount("overlay", target, "overlay", 0, f"lowerdir={lower},upperdir={changes}/upper,workdir={changes}/work")


def bind(source: str, target: str, recursive: bool = False) -> None:
    _mount(source, target, "", MS_BIND | (MS_REC if recursive else 0))


def make_read_only(target: str) -> None:
    # A remount sets all flags: those that the file system has stay.
    kept = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV)
    _mount("", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def move(source: str, target: str) -> None:
    _mount(source, target, "", MS_MOVE)


def make_private(target: str) -> None:
    """What is mounted below is not seen in other mount namespaces, nor theirs here."""
    _mount("", target, "", MS_PRIVATE | MS_REC)


def detach(target: str) -> None:
    _check(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def enter_new_root(root: str, old: str) -> None:
    """`root`, a mount, is / from now on; the old one is gone. `old` is a directory in it, relative."""
    os.chdir(root)
    _check(_libc.pivot_root(b".", old.encode()), f"pivot_root {root}")
    os.chdir("/")
    detach(f"/{old}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def set_host_name(name: str) -> None:
    _check(_libc.sethostname(name.encode(), len(name)), "sethostname")


def first_child(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as stream:
            children = stream.read().split()
    except OSError:
        return None
    return int(children[0]) if children else None
