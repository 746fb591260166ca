"""What runs and lies on the node of the lab, who runs commands there, and what makes their calls fail?"""
import dataclasses
import importlib.machinery
import importlib.util
import json
import os
import re
import signal
import stat
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.realpath(__file__))
REPOSITORY = os.path.realpath(f"{HERE}/../../..")
INJECT = f"{REPOSITORY}/build/release/tests/faults/inject"
USER = "alice"
HOME = f"/home/{USER}"
STORE = "/var/lib/situla"
INCOMING = "/var/lib/situla-incoming/"
# What is made once and stays, as tests/cluster/helpers.bash has it; what runs these tests.
KEPT = re.compile(r"file (/var/lib/situla/(images|leases|layers|slots|grants|counts)|/run/situla)(/(sha256|node\d+|\d+(/[0-9a-f]{40})?|images|images/share-\d+|root|access|"
                  r"containers|jobs|jobs/\d+[.]\d+[.]incoming|copies|copies/\d+[.][0-9a-f]{32}|reports|reports/\d+(/\d+[.]\w+)?|importer|importer/\d+|nvidia.json|cgroups))?$"
                  r"|cgroup /sys/fs/cgroup/\w+/situla(/(broker|cleanup)(/\d+)?)?$|file /home/alice/[.](cache|local)(/share(/enroot)?)?$"
                  r"|process .*bats|file /tmp/bats|process .*/tests/faults/|process .*tests/cluster/|process root (runuser|setpriv|losetup) "
                  r"|process root \[")
CGROUPS = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup/freezer")
LIMIT = 150  # seconds that a command may take: a node whose last word was lost while it stored is waited for two minutes


def load_left():
    """tests/cluster/left, which is a program."""
    path = os.path.realpath(f"{HERE}/../../cluster/left")
    loader = importlib.machinery.SourceFileLoader("left", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("left", loader))
    loader.exec_module(module)
    return module


left = load_left()


@dataclass
class Result:
    """Of a command; status None: it had to be ended."""

    status: int | None
    out: str
    err: str


@dataclass
class Order:
    """tests/faults/inject's: the n-th call of a program is to fail."""

    program: str
    fault: str
    nth: int = 0
    argument: str = ""
    inside: str = ""
    call: str = ""
    operand: str = ""
    seconds: int = 3

    def words(self, report: str) -> list[str]:
        return [INJECT, f"--report={report}", *(f"--{name}={value}" for name, value in dataclasses.asdict(self).items() if value != "")]


@dataclass
class Injector:
    """Watches what slurmd starts, from its beginning to its end."""

    order: Order
    slurmd: int
    report: str
    process: subprocess.Popen = field(init=False)

    def __enter__(self) -> "Injector":
        words = [*self.order.words(self.report), f"--attach={self.slurmd}"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)  # pylint: disable=consider-using-with
        assert self.process.stdout
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the injector does not begin: {words}")
        return self

    def __exit__(self, *_) -> None:
        self.process.send_signal(signal.SIGTERM)
        if status := self.process.wait():
            raise RuntimeError(f"the injector ended with status {status}: {self.order}")


def hit(report: str) -> dict:
    try:
        with open(report, encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return {"possible": 0, "reached": False}


def as_user(words: list[str], user: str = USER) -> list[str]:
    return ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "env", f"HOME=/home/{user}", f"USER={user}", f"LOGNAME={user}", *words]


def run(words: list[str], limit: float = LIMIT) -> Result:
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                          start_new_session=True, cwd="/") as process:
        try:
            out, err = process.communicate(timeout=limit)
            return Result(process.returncode, out, err)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            return Result(None, out, err)


def run_as_user(words: list[str], limit: float = LIMIT) -> Result:
    return run(as_user(words), limit)


def cgroups() -> list[str]:
    """Those that Situla made."""
    return [f"cgroup {folder}" for hierarchy in CGROUPS for folder, _, _ in os.walk(hierarchy) if "situla" in folder]


def running() -> Counter:
    """Mounts, processes, loop devices and cgroups: what must end with a step."""
    lines = [f"mount {target} {kind}" for _, target, kind in left.mounts()]
    lines += [f"process {user} {command}" for user, command in left.processes()]
    lines += [f"loop {name} {file}" for name, file in left.loops()]
    return Counter(line for line in lines + cgroups() if not KEPT.match(line))


def is_sink(path: str) -> bool:
    """What a step of several nodes leaves until its job has ended: root's directory with null devices (plugin/broker/courier.cpp)."""
    if not path.startswith(INCOMING):
        return False
    found = os.lstat(path)
    return stat.S_ISCHR(found.st_mode) or (stat.S_ISDIR(found.st_mode) and found.st_uid == 0)


def lying() -> Counter:
    """Files, sockets and folders of the node, and of the user's home."""
    lines = []
    for folder in [*left.FOLDERS, HOME]:
        if os.path.isdir(folder):
            lines += [f"file {path}" for path in left.files(folder, os.stat(folder).st_dev) if not is_sink(path)]
    return Counter(line for line in lines if not KEPT.match(line))


def wait_until_over(before: Counter, limit: float = 20) -> Counter:
    """What still runs that did not before."""
    deadline = time.monotonic() + limit
    while True:
        more = running() - before
        if not more or time.monotonic() > deadline:
            return more
        time.sleep(0.05)


def first_process(name: str) -> int:
    """The number of a process of that name whose parent is the node's first one."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
                command, rest = stream.read().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        if command == name and rest.split()[1] == "1":
            return int(pid)
    raise RuntimeError(f"{name} does not run")


def resume() -> None:
    """Slurm does without a node whose prolog or epilog failed."""
    if names := run(["sinfo", "-h", "-N", "-t", "drain,down", "-o", "%N"]).out.split():
        run(["scontrol", "update", f"nodename={','.join(names)}", "state=resume"])


class Holder:
    """A job in which all steps run, on all nodes: a new job would wait for the end of the last one."""

    def __init__(self) -> None:
        self.job = ""
        self.nodes = run(["sinfo", "-h", "-o", "%D"]).out.strip()

    def number(self) -> str:
        if self.job and run(["squeue", "-h", "-j", self.job, "-t", "running", "-o", "%i"]).out.strip() == self.job:
            return self.job
        resume()
        self.job = run_as_user(["sbatch", "--parsable", "-J", "holder", f"-N{self.nodes}", "--ntasks-per-node=2", "-o", "/dev/null", "--wrap", "sleep 100000"]).out.strip()
        for _ in range(300):
            if run(["squeue", "-h", "-j", self.job, "-t", "running", "-o", "%i"]).out.strip() == self.job:
                break
            time.sleep(0.1)
        time.sleep(1)
        return self.job
