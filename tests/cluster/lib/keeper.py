"""Owns one instance from outside: starts its namespaces, ends them when `run` goes away however it goes, cleans up behind them.

    keeper.py DIR        stdin: "keep" lets the instance live on; end of file ends it. stdout: "ready" once it is up, or "failed".
"""
import contextlib
import os
import select
import signal
import subprocess
import sys
import time

import kernel
from options import cgroup_of
from places import PROGRAM, SOURCE, log_of, write


def start(directory: str) -> tuple[subprocess.Popen, int, int]:
    """What waits for the instance, the instance's first process, and where that says that it is ready."""
    ready, tell = os.pipe()
    # Every namespace but the user's: what happens inside stays inside, and the death of its first process ends all others.
    namespaces = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child"]
    command = [*namespaces, *PROGRAM, f"{SOURCE}/lib/instance.py", directory, str(tell)]
    with log_of(directory, "instance") as log:
        outer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[tell])
    os.close(tell)
    while not (init := kernel.first_child(outer.pid)):
        if outer.poll() is not None:
            write(f"{directory}/failed", "")
            sys.exit(1)
        time.sleep(0.002)
    return outer, init, ready


def watch(outer: subprocess.Popen, init: int, ready: int) -> None:
    """Until the instance has ended: by itself, by `stop`, or because `run` is gone."""
    outer_ends, first = os.pidfd_open(outer.pid), os.pidfd_open(init)
    poll = select.poll()
    for descriptor in (0, ready, outer_ends):
        poll.register(descriptor, select.POLLIN)
    while outer.poll() is None:
        for descriptor, _ in poll.poll():
            if descriptor == ready:
                tell_run(os.read(ready, 16) or b"failed\n")
                poll.unregister(ready)
            elif descriptor == 0:
                if os.read(0, 16).strip() != b"keep":
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(first, signal.SIGKILL)
                poll.unregister(0)


def tell_run(word: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, word)
    # Nobody who reads from run's output waits for this process.
    os.dup2(os.open("/dev/null", os.O_RDWR), 1)


def remove_cgroups(name: str) -> None:
    """They live outside of namespaces; the processes that were in them are gone or about to be."""
    for controller in os.scandir("/sys/fs/cgroup"):
        group = f"{controller.path}/{name}"
        for _ in range(100):
            if not os.path.isdir(group):
                break
            for path, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(path)
            time.sleep(0.02 if os.path.isdir(group) else 0)


def main() -> int:
    directory = sys.argv[1]
    outer, init, ready = start(directory)
    write(f"{directory}/pid", f"{init}\n")
    write(f"{directory}/keeper.pid", f"{os.getpid()}\n")
    watch(outer, init, ready)
    # The first process is gone, and with it every process, mount and network of the instance.
    remove_cgroups(cgroup_of(directory))
    if os.path.exists(f"{directory}/failed"):
        return 1
    return subprocess.run(["rm", "-rf", "--one-file-system", directory], check=False).returncode


sys.exit(main())
