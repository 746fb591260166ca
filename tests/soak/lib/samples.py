"""What is on the node at a moment when no step runs: a number for each thing that could grow."""
import os
import re
from collections import Counter
from dataclasses import dataclass, field

import node
from steps import IMAGES, USERS

STORE = node.STORE
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/var/lib/situla-incoming")
SLURM = "/sys/fs/cgroup/memory/slurm"
COPIES = "/run/situla/copies/"
RECORDS = "/run/situla/reports/"
# Of a user each: hooks/store/grants.hpp, plugin/broker/node/container_images.cpp, plugin/broker/report/record_file.hpp.
MOST_ANSWERS, MOST_NOTES, MOST_RECORDS = 1024, 128, 64 + 1  # with their folder
# situla, broker, cleanup, and two of each user, in each hierarchy.
MOST_CGROUPS = len(node.CGROUPS) * (3 + 2 * len(USERS))
# Whose files are counted by themselves.
COUNTED = ("store: images", "store: layers", "store: answers", "notes of copied images", "records of steps")
# hooks/store: an image that was made of what its user has from other repositories is his alone.
MOST_IMAGES = len(IMAGES) * (1 + len(USERS))
# Of each of them for each user who imported it, and none of these has more layers.
MOST_LAYERS = 4 * len(IMAGES) * 2 * len(USERS)


@dataclass(frozen=True)
class Quantity:
    """growth: how much more than in the first sample there may be; settles: than in all samples of the first half. why: no less is right."""

    name: str
    growth: int = 0
    settles: bool = False
    most: int | None = None  # and never more than this
    why: str = "ends or is removed with its step"


QUANTITIES = (
    Quantity("processes"),
    Quantity("slurmstepd"),
    Quantity("programs of Situla's"),
    Quantity("mounts of the node"),
    Quantity("mount namespaces"),
    Quantity("user namespaces"),
    Quantity("loop devices"),
    Quantity("cgroups of Situla's", MOST_CGROUPS, most=MOST_CGROUPS, why="broker/UID and cleanup/UID, made when first needed (cgroup_place.hpp)"),
    Quantity("cgroups of jobs"),
    Quantity("slurmd: descriptors", 2, why="a connection that just ends"),
    Quantity("slurmd: threads", 2, why="the same"),
    Quantity("slurmd: KiB", 4096, True, why="each thread's share of malloc comes and goes; 2,500 steps that lose two KiB each would show"),
    Quantity("files in /run/situla"),
    Quantity("records of steps", len(USERS) * MOST_RECORDS, most=len(USERS) * MOST_RECORDS, why="of each step, so many at most (record_file.hpp)"),
    Quantity("notes of copied images", len(USERS) * MOST_NOTES, most=len(USERS) * MOST_NOTES, why="of each container, so many at most (container_images.cpp)"),
    Quantity("temporary files"),
    Quantity("files in homes"),
    Quantity("store: leases"),
    Quantity("store: slots"),
    Quantity("store: unfinished"),
    Quantity("store: images", MOST_IMAGES, most=MOST_IMAGES, why="of all users and of each; these are all there are"),
    Quantity("store: layers", MOST_LAYERS, most=MOST_LAYERS, why="of each image for each user"),
    Quantity("store: answers", len(USERS) * MOST_ANSWERS, most=len(USERS) * MOST_ANSWERS, why="of each job, so many at most (grants.hpp)"),
    Quantity("other disk use: KiB", 1024, why="of store, /run/situla and temporary files, without images, layers, answers and notes: what lies beside an image"),
)


@dataclass
class Sample:
    """steps: how many had ended before. left: what must not be there. names: of the files of some quantities."""

    steps: int
    numbers: dict[str, int]
    names: dict[str, set[str]]
    left: Counter = field(default_factory=Counter)


def files_below(*folders: str) -> set[str]:
    """But of what runs these tests."""
    found = {path for folder in folders if os.path.isdir(folder) for path in node.left.files(folder, os.stat(folder).st_dev)}
    return {path for path in found if not path.startswith("/tmp/bats")}


def namespaces(kind: str) -> int:
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
        except OSError:
            continue
    return len(found)


def status_of(pid: int, name: str) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as stream:
        return next(int(line.split()[1]) for line in stream if line.startswith(f"{name}:"))


def used_kib(*folders: str) -> int:
    """Of their file systems: what is deleted and still open, too."""
    of_device = {os.stat(folder).st_dev: os.statvfs(folder) for folder in folders}
    return sum((one.f_blocks - one.f_bfree) * one.f_frsize for one in of_device.values()) // 1024


def size_kib(paths: set[str]) -> int:
    return sum(os.stat(path).st_blocks for path in paths) // 2


def files() -> dict[str, set[str]]:
    """And what else has a name."""
    images, runtime = files_below(f"{STORE}/images/sha256"), files_below("/run/situla")
    return {
        "cgroups of Situla's": set(node.cgroups()),
        "files in /run/situla": {path for path in runtime if not path.startswith((COPIES, RECORDS))},
        "records of steps": {path for path in runtime if path.startswith(RECORDS)},
        "notes of copied images": {path for path in runtime if path.startswith(COPIES)},
        "temporary files": files_below(*TEMPORARY),
        "files in homes": files_below(*(f"{folder}/{user}" for folder in ("/home", "/scratch") for user in USERS)),
        "store: leases": files_below(f"{STORE}/leases"),
        "store: slots": set(filter(os.path.isfile, files_below(f"{STORE}/slots"))),
        "store: unfinished": {path for path in images if not re.search(r"[.](sqsh|json|sha256|pin)$", path)},
        "store: images": {path for path in images if path.endswith(".sqsh")},
        "store: layers": set(filter(os.path.isfile, files_below(f"{STORE}/layers"))),
        "store: answers": set(filter(os.path.isfile, files_below(f"{STORE}/grants"))),
    }


def take(steps: int, slurmd: int, normal: Counter, limit: float) -> Sample:
    """Once nothing is there any more that was not in `normal`, or after so many seconds."""
    left = node.wait_until_over(normal, limit) if normal else Counter()
    running = node.running()
    kinds = Counter()
    for line, count in running.items():
        kinds[line.split()[0]] += count
    names = files()
    commands = Counter(line for line in running.elements() if line.startswith("process "))
    numbers = {
        "processes": kinds["process"],
        "slurmstepd": sum(count for line, count in commands.items() if "slurmstepd" in line),
        "programs of Situla's": sum(count for line, count in commands.items() if "situla-" in line),
        "mounts of the node": kinds["mount"],
        "mount namespaces": namespaces("mnt"),
        "user namespaces": namespaces("user"),
        "loop devices": kinds["loop"],
        "cgroups of jobs": sum(name.startswith("job_") for _, folders, _ in os.walk(SLURM) for name in folders),
        "slurmd: descriptors": len(os.listdir(f"/proc/{slurmd}/fd")),
        "slurmd: threads": status_of(slurmd, "Threads"),
        "slurmd: KiB": status_of(slurmd, "VmRSS"),
        **{quantity: len(found) for quantity, found in names.items()},
        "other disk use: KiB": used_kib(STORE, "/run/situla", *TEMPORARY[:3]) - size_kib(set().union(*(names[one] for one in COUNTED))),
    }
    return Sample(steps, numbers, names, left)
