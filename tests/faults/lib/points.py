"""One point of the matrix: one call of one program fails once. What became of it?"""
import dataclasses
import errno
import os
import re
from collections import Counter
from dataclasses import dataclass, field

import node
from node import Holder, Injector, Order, Result
from scenarios import Program, Scenario, words_of

# What is said without a cause: Slurm's own lines about how a task ended, and Situla's about what it began.
NOISE = re.compile(r"srun: error: node\d+: tasks? [\d,-]+: (Exited with exit code|Killed|Terminated|Aborted|Segmentation)|srun: launch/slurm: |srun: Force Terminated|"
                   r"srun: error: Timed out|srun: error: task |slurmstepd: error: \*\*\* STEP|situla: (importing|imported|exporting|exported)|\[INFO\]|$")
WARNING = re.compile(r"situla: |\[WARN\]")
BUG = re.compile(r"internal|terminate called|core dumped|[Aa]ssertion|bad_alloc|std::|Segmentation|double free|corrupted")
MEANS = {"EDQUOT": "|quota", "ENOMEM": "|memory"}
CAUSES = {"kill": r"SIGKILL|[Kk]illed|lost|ended|closed|gone", "term": r"SIGTERM|[Tt]erminated|[Kk]illed|lost|ended|cancelled|closed|gone",
          "stop": r"time|.", "short-read": ".", "short-write": ".", "clock-forward": "expired|time|clock|day", "clock-back": "not yet|time|clock|future"}
# Numbers of steps, mounts, devices, namespaces, memory files, and times: other ones each time.
VARIABLE = re.compile(r"^(SLURM|PMI|PYXIS_|SRUN_|SITULA_)\w*=.*$|\b\d+:\d+\b|\b\d+ \d+ (?=\d+:\d+ )|pyxis_\d+\.\d+|\bjob\d+|:container:\S+|\w{3} +\d+ [\d:]+|loop\d+|\b[0-9a-f]{16,}\b|"
                      r"/proc/self/fd/\d+|\b(master|shared|propagate_from):\d+|size=\d+k|nr_inodes=\d+", re.M)
SIGNALS = {"kill": 9, "term": 15}


def causes(fault: str) -> str:
    """What a message about it has to match."""
    if fault in CAUSES:
        return CAUSES[fault]
    return re.escape(os.strerror(getattr(errno, fault))) + MEANS.get(fault, "")


@dataclass
class Point:
    """survived: nobody noticed; warned: something was missing, which was said; failed: with a message that names the cause; vague: with another
    one; wrong: otherwise."""

    scenario: str
    program: str
    fault: str
    nth: int
    verdict: str
    hit: dict = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    status: int | None = 0
    message: str = ""
    possible: int = 0  # calls that can fail so


def message_of(result: Result) -> str:
    return "\n".join(line for line in result.err.splitlines() if not NOISE.match(line.strip()))


def seen(result: Result) -> list[str]:
    """What the user's program found, without what differs from one step to the next."""
    return sorted(VARIABLE.sub("*", result.out).splitlines())


def judge(normal: list[str], order: Order, result: Result, traced: bool) -> tuple[str, list[str]]:
    """Verdict and what is wrong; normal: what is printed without a fault."""
    message = message_of(result)
    if result.status is None:
        return "wrong", ["hangs"]
    if BUG.search(message):
        return "wrong", ["a bug shows"]
    if result.status == 0:
        now = seen(result)
        if now == normal:
            return "survived", []
        less, more = Counter(normal) - Counter(now), Counter(now) - Counter(normal)
        changed = [f"-{line}" for line in less.elements()] + [f"+{line}" for line in more.elements()]
        # Who is told that something is missing can live with it.
        return ("warned", []) if WARNING.search(message) else ("wrong", ["silently another container: " + " | ".join(changed)])
    # A command that is itself ended by a signal says nothing.
    signal = SIGNALS.get(order.fault)
    if traced and signal and result.status in (-signal, 128 + signal):
        return "failed", []
    if not message:
        return "wrong", ["fails without a message"]
    return ("failed" if re.search(causes(order.fault), message) else "vague"), []


class Bench:
    """Where points are tried: remembers what was there before."""

    def __init__(self, scenario: Scenario, holder: Holder, report: str) -> None:
        self.scenario, self.holder, self.report = scenario, holder, report
        self.slurmd = node.first_process("slurmd")
        self.running, self.lying = Counter(), Counter()
        self.normal: list[str] = []
        self.descriptors = 0
        self.settle()

    def settle(self) -> None:
        """What lies there after the scenario without a fault is what may lie there."""
        words_of(self.scenario, self.holder)
        self.running = node.running()
        for _ in range(2):
            result = self.attempt()
            self.normal = seen(result)
            if result.status != 0:
                raise RuntimeError(f"{self.scenario.name} fails without a fault: {result}")
            node.wait_until_over(self.running)
        # What this makes may lie there as well.
        if wrong := self.scenario.check(True):
            raise RuntimeError(f"{self.scenario.name} without a fault: {'; '.join(wrong)}")
        self.running, self.lying = node.running(), node.lying()
        self.descriptors = len(os.listdir(f"/proc/{self.slurmd}/fd"))

    def attempt(self) -> Result:
        self.scenario.prepare()
        return node.run_as_user(words_of(self.scenario, self.holder))

    def hit(self, order: Order, traced: bool) -> tuple[Result, Counter]:
        """The scenario with the order; its result, and what does not end."""
        if os.path.exists(self.report):
            os.unlink(self.report)
        self.scenario.prepare()
        words = node.as_user(words_of(self.scenario, self.holder))
        limit = 20 + (order.seconds if order.fault == "stop" else 0)
        if traced:
            result = node.run([*order.words(self.report), "--", *words])
            return result, node.wait_until_over(self.running, limit)
        with Injector(order, self.slurmd, self.report):
            result = node.run(words)
            return result, node.wait_until_over(self.running, limit)

    def count(self, order: Order, traced: bool) -> int:
        self.hit(dataclasses.replace(order, nth=0), traced)
        if not os.path.exists(self.report):
            raise RuntimeError(f"the injector reported nothing: {order}")
        return node.hit(self.report)["possible"]

    def try_point(self, program: Program, order: Order, traced: bool) -> Point | None:
        """None: it was not reached."""
        result, running = self.hit(order, traced)
        hit = node.hit(self.report)
        if not hit["reached"] and result.status == 0 and not running:
            return None
        verdict, wrong = judge(self.normal, order, result, traced)
        wrong += self.scenario.check(result.status == 0)
        left = [f"{line} ({count})" for line, count in running.items()]
        # The mounts of images that all steps of the node share are dropped by the next one at the latest.
        shared = Counter({line: count for line, count in running.items() if line.startswith("mount /run/situla/images/")})
        left = [line for line in left if not line.startswith("mount /run/situla/images/")]
        if running - shared:
            # A later point must not be blamed for it.
            self.running += running - shared
        if result.status != 0 or shared or self.changed():
            again = self.attempt()
            if again.status != 0 or seen(again) != self.normal:
                wrong.append(f"the next step fails: {message_of(again) or again}")
            left += [f"{line} ({count})" for line, count in node.wait_until_over(self.running).items()] + self.changed()
            self.lying = node.lying()
        point = Point(self.scenario.name, program.shown, order.fault, order.nth, "wrong" if wrong else verdict, hit, wrong, left, result.status, message_of(result))
        if wrong or left:
            self.settle()
        return point

    def changed(self) -> list[str]:
        """Files that lie where none lay after the scenario without a fault; descriptors of slurmd."""
        more = [line for line, _ in (node.lying() - self.lying).items()]
        descriptors = len(os.listdir(f"/proc/{self.slurmd}/fd"))
        return more + ([f"slurmd has {descriptors} descriptors instead of {self.descriptors}"] if descriptors > self.descriptors + 2 else [])
