"""What is done while calls fail, with which programs, and how is it seen that it was done right?"""
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

from node import HOME, STORE, USER, Holder, resume, run, run_as_user

IMAGE = "registry.test/tiny"
FILE = "/shared/tiny.sqsh"
NODES = 2  # of the lab that has several
# What a lab is started with, besides what all are.
LABS = {
    "": ["--situla-conf", "tests/cluster/no_idle.toml"],
    "jobs": ["--situla-conf", "tests/cluster/no_idle.toml", "--slurm-conf", "PrologFlags=Alloc", "--slurm-conf", "SchedulerParameters=bf_interval=1,sched_interval=1",
             "--plugin-arg", "container_scope=job"],
    "nodes": ["--nodes", str(NODES), "--situla-conf", "tests/faults/nodes.toml"],
}
# What a program of the user's finds in its container.
LOOK = ("sh", "-c", "cat hello.txt; pwd; id; umask; ulimit -n; env | sort; ls /proc/self/fd; ls -l /dev /etc; cat /proc/self/mountinfo; "
        "grep -E '^(Cap|Seccomp|NoNew|Sig[BIC])' /proc/self/status")
HELLO = "hello from the top layer\n"
SAVED = f"{HOME}/saved.sqsh"
OLD = "the old file\n"
CONTAINERS = f"{HOME}/.local/share/enroot"
PLUGIN = "spank_situla.so"


@dataclass(frozen=True)
class Program:
    """One whose calls fail; inside: only those of this library's functions."""

    name: str
    inside: str = ""
    argument: str = ""

    @property
    def shown(self) -> str:
        return " ".join(filter(None, (self.name, self.argument, self.inside and "(plugin)")))


@dataclass(frozen=True)
class Scenario:
    """words: the command, as the user; traced: it is the command's own calls that fail, else those of what slurmd starts."""

    name: str
    words: Callable[[str], list[str]]
    programs: tuple[Program, ...]
    prepare: Callable[[], None] = lambda: None
    check: Callable[[bool], list[str]] = lambda succeeded: []
    commands: tuple[Program, ...] = field(default=())
    in_holder: bool = True
    lab: str = ""  # of LABS


def remove(*paths: str) -> None:
    for path in paths:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        elif os.path.lexists(path):
            os.unlink(path)


def forget_images() -> None:
    for folder in ("images/sha256", "layers", "grants"):
        for name in os.listdir(f"{STORE}/{folder}") if os.path.isdir(f"{STORE}/{folder}") else ():
            remove(f"{STORE}/{folder}/{name}")


def whole_image(path: str) -> bool:
    return subprocess.run(["unsquashfs", "-q", "-n", "-l", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def images_are_whole(_: bool) -> list[str]:
    folder = f"{STORE}/images/sha256"
    names = [name for name in os.listdir(folder) if name.endswith(".sqsh")] if os.path.isdir(folder) else []
    return [f"{name} is not a whole image" for name in names if not whole_image(f"{folder}/{name}")]


def old_file_lies_there() -> None:
    remove(SAVED)
    with open(SAVED, "w", encoding="ascii") as stream:
        stream.write(OLD)
    shutil.chown(SAVED, USER, USER)


def old_or_new(succeeded: bool) -> list[str]:
    """Of a save or an export: the old file, or a whole new one."""
    if not os.path.exists(SAVED):
        return ["the old file is gone"]
    with open(SAVED, "rb") as stream:
        if stream.read(len(OLD)) == OLD.encode():
            return ["the file is the old one"] if succeeded else []
    return [] if whole_image(SAVED) else ["the new file is not whole"]


def no_container() -> None:
    remove(*(f"{CONTAINERS}/{name}" for name in os.listdir(CONTAINERS)) if os.path.isdir(CONTAINERS) else ())


def nothing_half(name: str) -> Callable[[bool], list[str]]:
    def check(succeeded: bool) -> list[str]:
        if not os.path.isdir(f"{CONTAINERS}/{name}"):
            return ["there is no container"] if succeeded else []
        found = run_as_user(["situla", "start", name, "cat", "hello.txt"])
        return [] if found.status == 0 and found.out == HELLO else [f"{name} is half a container: {found}"]
    return check


def a_container() -> None:
    no_container()
    run_as_user(["situla", "create", "-n", "exported", FILE])
    old_file_lies_there()


def no_cache() -> None:
    remove(f"{HOME}/.cache", SAVED)


def imported(succeeded: bool) -> list[str]:
    if os.path.exists(SAVED):
        return [] if whole_image(SAVED) else ["the file is not a whole image"]
    return ["there is no file"] if succeeded else []


def forget_on_all_nodes() -> None:
    run(["srun", "-Q", f"-N{NODES}", "--ntasks-per-node=1", "sh", "-c", f"rm -rf {STORE}/images/sha256/* {STORE}/layers/* {STORE}/grants/*"])


def node_is_there() -> None:
    resume()
    forget_images()
    remove(f"{HOME}/out", f"{HOME}/err")


def batch(_: str) -> list[str]:
    """A job of its own, with prolog and epilog. What its script says comes when it has ended."""
    submit = f"sbatch -Q -W -o {HOME}/out -e {HOME}/err --container-image={IMAGE} {HOME}/look"
    return ["sh", "-c", f'printf "#!/bin/sh\n%s\n" "$1" >{HOME}/look; {submit}; status=$?; cat {HOME}/err >&2; cat {HOME}/out; exit $status', "batch", LOOK[-1]]


def step(*options: str, command: tuple[str, ...] = LOOK) -> Callable[[str], list[str]]:
    return lambda job: ["srun", f"--jobid={job}", "--overlap", *options, *command]


HELPERS = tuple(map(Program, ("situla-broker", "situla-builder", "situla-store")))
IMPORTER = Program("situla-importer")
SAVER = Program("situla-saver")
# That it is killed is Slurm's affair: srun waits for it for minutes.
PLUGIN_HOST = Program("slurmstepd", inside=PLUGIN)
SRUN = Program("srun", inside=PLUGIN)
COURIER = Program("situla-courier")
RECORDER = Program("situla-recorder")
MONITOR = Program("situla-monitor")
PROLOG, EPILOG = (Program("situla-broker", argument=word) for word in ("prolog", "epilog"))
TOOL = (Program("situla"), Program("situla-full"))

ALL = [
    Scenario("cold", step(f"--container-image={IMAGE}"), (*HELPERS, IMPORTER, PLUGIN_HOST), forget_images, images_are_whole, commands=(SRUN,)),
    Scenario("warm", step(f"--container-image={IMAGE}"), (*HELPERS, IMPORTER, PLUGIN_HOST)),
    Scenario("file", step(f"--container-image={FILE}"), (*HELPERS, IMPORTER)),
    Scenario("mounts", step(f"--container-image={FILE}", f"--container-mounts=docker://{IMAGE}:/opt/tiny:image,{FILE}:/data:sqsh"), (*HELPERS, IMPORTER), forget_images,
             images_are_whole),
    Scenario("named", step(f"--container-image={IMAGE}", "--container-name=made", "--container-writable",
                           command=("sh", "-c", f"echo here >/made; {LOOK[-1]}")), HELPERS, no_container, nothing_half("pyxis_made")),
    Scenario("save", step(f"--container-image={IMAGE}", "--container-writable", f"--container-save={SAVED}",
                          command=("sh", "-c", f"echo new >/new; {LOOK[-1]}")), (*HELPERS, SAVER, PLUGIN_HOST), old_file_lies_there, old_or_new),
    Scenario("import", lambda _: ["situla", "import", "-o", SAVED, f"docker://{IMAGE}"], (), no_cache, imported, commands=TOOL),
    Scenario("create", lambda _: ["situla", "create", "-n", "made", FILE], (), no_container, nothing_half("made"), commands=TOOL),
    Scenario("start", lambda _: ["situla", "start", FILE, *LOOK], (), commands=TOOL),
    Scenario("export", lambda _: ["situla", "export", "-f", "-o", SAVED, "exported"], (), a_container, old_or_new, commands=TOOL),
    Scenario("batch", batch, (PROLOG, EPILOG, *HELPERS, IMPORTER, PLUGIN_HOST), node_is_there, images_are_whole, in_holder=False, lab="jobs"),
    Scenario("nodes", step(f"--nodes={NODES}", f"--container-image={IMAGE}"), (*HELPERS, IMPORTER, COURIER, RECORDER), forget_on_all_nodes, images_are_whole,
             commands=(SRUN, MONITOR), lab="nodes"),
]


def holder_needed(scenario: Scenario) -> bool:
    return bool(scenario.programs) and scenario.in_holder


def words_of(scenario: Scenario, holder: Holder) -> list[str]:
    return scenario.words(holder.number() if holder_needed(scenario) else "")
