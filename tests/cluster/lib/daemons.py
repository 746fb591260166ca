"""How does the first process of a machine start daemons, wait for them, and reap what is orphaned?"""
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from typing import NoReturn

from places import LabError, log_of


def as_user(name: str) -> list[str]:
    return ["setpriv", "--reuid", name, "--regid", name, "--clear-groups"]


def start(directory: str, name: str, *command: str) -> subprocess.Popen:
    """With its output in a log of its own."""
    with log_of(directory, name) as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def succeeds(*command: str) -> bool:
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port)).close()
    except OSError:
        return False
    return True


def wait_until(what: str, holds: Callable[[], object], daemon: subprocess.Popen | None = None) -> None:
    """At most 50 s, and not when the daemon has ended."""
    for _ in range(2500):
        if holds():
            return
        if daemon and daemon.poll() is not None:
            break
        time.sleep(0.02)
    raise LabError(f"gave up waiting for {what}")


def reap_for_ever() -> NoReturn:
    """What an init does."""
    # Handlers, not SIG_IGN, which daemons would inherit.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(1)
