"""Where is what one run makes, and what ends with it? A directory, and the mounts of this process."""
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import kernel
from places import STATE

PLACE = f"{STATE}/qemu"


@contextlib.contextmanager
def work_directory() -> Iterator[str]:
    """Gone at the end; also those of runs that were killed. This process gets a mount namespace of its own."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.make_private("/")
    os.makedirs(PLACE, exist_ok=True)
    with held(PLACE):  # a new one is not taken for a dead one
        for name in os.listdir(PLACE):
            remove_dead(f"{PLACE}/{name}")
        directory = tempfile.mkdtemp(dir=PLACE)
        own = contextlib.ExitStack()
        own.enter_context(held(directory))
    with own:
        try:
            yield directory
        finally:
            remove(directory)


@contextlib.contextmanager
def held(directory: str) -> Iterator[None]:
    lock = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def remove_dead(directory: str) -> None:
    lock = os.open(directory, os.O_RDONLY)
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(directory)
    os.close(lock)


def remove(directory: str) -> None:
    if os.path.ismount(f"{directory}/root"):
        kernel.detach(f"{directory}/root")
    subprocess.run(["rm", "-rf", "--one-file-system", directory], check=True)
