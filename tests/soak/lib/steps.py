"""Which steps are there, and how must each of them end?"""
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

USERS = ("alice", "bob")
# Small ones, of a common layer, one with an index and a larger one.
IMAGES = ("registry.test/tiny", "registry.test/tiny:zstd", "registry.test/multiarch", "registry.test/debian:12")
FILE = "/shared/tiny.sqsh"
FAILS = None  # any status but 0


@dataclass
class Step:
    """A command of a user's. It has to end with the status, and to say the words."""

    number: int
    kind: str
    user: str
    options: list[str]
    command: list[str]
    status: int | None = 0
    says: str = ""
    cancel_after: float | None = None  # seconds
    save: str = ""  # this file has to be there afterwards, and is removed
    forget: str = ""  # this container, likewise

    def words(self, job: str) -> list[str]:
        return ["srun", f"--jobid={job}", "--overlap", "-J", f"soak{self.number}", *self.options, *self.command]


@dataclass(frozen=True)
class Kind:
    """weight: how often among all; make: what it is for a number, a user and what chance says."""

    name: str
    weight: int
    make: Callable[[int, str, random.Random], Step]
    of_root: bool = field(default=False)


def shell(text: str) -> list[str]:
    return ["sh", "-c", text]


def image(chance: random.Random) -> str:
    # The larger one takes as long as ten others where it was removed meanwhile.
    return f"--container-image={chance.choices(IMAGES, (6, 6, 6, 1))[0]}"


def simple(name: str, options: Callable[[str, random.Random], list[str]], command: list[str], **more) -> Callable[[int, str, random.Random], Step]:
    return lambda number, user, chance: Step(number, name, user, ["-n1", *options(user, chance)], command, **more)


def mounts(user: str, chance: random.Random) -> list[str]:
    more = chance.choice(("", ",/usr/share/doc:/doc:ro", ",/tmp:/host-tmp"))
    return [image(chance), f"--container-mounts=/scratch/{user}:/in:ro,/scratch/{user}:/scratch{more}"]


def options_of_all_kinds(user: str, chance: random.Random) -> list[str]:
    some = ("--container-workdir=/tmp", "--no-container-mount-home", "--container-env=SOAK", "--container-readonly", "--no-container-remap-root",
            "--no-container-entrypoint", "--container-writable")
    return [image(chance), *chance.sample(some[:3] + some[4:6], 2), chance.choice((some[3], some[6])), *mounts(user, chance)[1:]]


def made(number: int, user: str, chance: random.Random) -> Step:
    name = f"own{number}"
    return Step(number, "named and removed", user, ["-n1", image(chance), f"--container-name={name}:create", "--container-writable"],
                shell("echo kept >/kept && cat /kept"), says="kept", forget=f"pyxis_{name}")


def saved(number: int, user: str, chance: random.Random) -> Step:
    path = f"/scratch/{user}/saved{number}.sqsh"
    return Step(number, "save", user, ["-n1", image(chance), "--container-writable", f"--container-save={path}"], shell("echo new >/new"), save=path)


def cancelled(number: int, user: str, chance: random.Random) -> Step:
    options = chance.choice((["-n2", image(chance)], ["-n1", "--container-image=fault.test/slow"], ["-n1", image(chance), f"--container-name=half{number}"]))
    return Step(number, "cancelled", user, options, ["sleep", "1000"], FAILS, cancel_after=chance.uniform(0, 1.5), forget=f"pyxis_half{number}")


def removal(number: int, _: str, chance: random.Random) -> Step:
    words = chance.choice((["prune", "--unused-for", "0"], ["rm", chance.choice(IMAGES)]))
    return Step(number, "images removed", "root", words, [])


# "plain" and "bare" are what the latency is taken from.
KINDS = (
    Kind("plain", 30, simple("plain", lambda _, __: [f"--container-image={IMAGES[0]}"], ["true"])),
    Kind("bare", 10, simple("bare", lambda _, __: [], ["true"])),
    Kind("other image", 8, simple("other image", lambda _, chance: [image(chance)], shell("exit 0"))),
    Kind("file", 4, simple("file", lambda _, __: [f"--container-image={FILE}"], shell('test "$GREETING" = hello'))),
    Kind("named, shared", 8, simple("named, shared", lambda _, __: [f"--container-image={IMAGES[0]}", "--container-name=shared", "--container-writable"],
                                    shell('echo x >>/log && echo "$GREETING"'), says="hello")),
    Kind("named and removed", 4, made),
    Kind("writable", 6, simple("writable", lambda _, chance: [image(chance), "--container-writable"], shell("echo x >/x && rm -r /srv && cat /x"), says="x")),
    Kind("mounts", 6, simple("mounts", mounts, shell("test -e /in/mark && ! touch /in/new 2>/dev/null && touch /scratch/mark"))),
    Kind("several tasks", 4, lambda number, user, chance: Step(number, "several tasks", user, ["-n4", image(chance)], shell("echo task $SLURM_PROCID"), says="task 3")),
    Kind("remap root", 4, simple("remap root", lambda _, chance: [image(chance), "--container-remap-root"], shell("id -u"), says="0")),
    Kind("mixed options", 6, simple("mixed options", options_of_all_kinds, shell("test -e /in/mark"))),
    Kind("status 7", 2, simple("status 7", lambda _, chance: [image(chance)], shell("exit 7"), status=7)),
    Kind("killed", 2, simple("killed", lambda _, chance: [image(chance)], shell("kill -9 $$"), status=137)),
    Kind("no such image", 2, simple("no such image", lambda _, __: ["--container-image=registry.test/nothing"], ["true"], status=1, says="nothing")),
    Kind("broken image", 1, simple("broken image", lambda _, __: ["--container-image=registry.test/broken:digest"], ["true"], status=1, says="broken")),
    Kind("no such mount", 2, simple("no such mount", lambda _, chance: [image(chance), "--container-mounts=/nothing:/in"], ["true"], status=1, says="/nothing")),
    Kind("cancelled", 4, cancelled),
    Kind("save", 2, saved),
    Kind("images removed", 3, removal, of_root=True),
)


def warm_up() -> list[Step]:
    """One of each kind, of each user: what is made once is there afterwards."""
    chance = random.Random(0)
    return [kind.make(number, user, chance) for number, (kind, user) in
            enumerate(((kind, user) for kind in KINDS if not kind.of_root for user in USERS), start=1_000_000)]


def all_images(number: int) -> list[Step]:
    """The store holds the same images whenever it is looked at."""
    return [Step(number + place, "other image", USERS[0], ["-n1", f"--container-image={name}"], ["true"]) for place, name in enumerate(IMAGES)]


def chosen(count: int, seed: int) -> list[Step]:
    """The same for the same seed."""
    chance = random.Random(seed)
    kinds = chance.choices(KINDS, [kind.weight for kind in KINDS], k=count)
    return [kind.make(number, chance.choice(USERS), chance) for number, kind in enumerate(kinds, start=1)]


def what_is_wrong(step: Step, status: int | None, output: str) -> str:
    if status is None:
        return "hangs"
    if step.status is FAILS and status == 0:
        return "exit status 0 instead of any other"
    if step.status is not FAILS and status != step.status and not (step.user == "root" and status == 1):  # an image in use stays
        return f"exit status {status} instead of {step.status}"
    if step.says and step.says not in output:
        return f"does not say '{step.says}'"
    if step.save and not os.path.exists(step.save):
        return f"{step.save} is missing"
    return ""
