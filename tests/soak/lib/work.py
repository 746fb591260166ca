"""How do steps run, several at a time, each user's in a job of his own?"""
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from node import Result, as_user, run
from steps import USERS, Step, what_is_wrong

LIMIT = 180  # seconds that a command may take


def until(condition, limit: float) -> bool:
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


@dataclass
class Done:
    """What became of a step."""

    step: Step
    seconds: float
    wrong: str
    shown: str = ""


class Jobs:
    """One of each user, in which his steps run: a job for each step would wait for the end of the one before."""

    def __init__(self) -> None:
        self.of: dict[str, str] = {}

    def __enter__(self) -> "Jobs":
        for user in USERS:
            self.of[user] = run(as_user(["sbatch", "--parsable", "-J", "soak", "-n8", "--chdir=/", "-o", "/dev/null", "--wrap", "sleep 1000000"], user)).out.strip()
        if not until(lambda: len(run(["squeue", "-h", "-n", "soak", "-t", "running", "-o", "%i"]).out.split()) == len(USERS), LIMIT):
            raise RuntimeError(f"the jobs {self.of} do not begin: {run(['squeue']).out}{run(['sinfo', '-R']).out}")
        return self

    def __exit__(self, *_) -> None:
        for job in self.of.values():
            run(["scancel", "-s", "KILL", job])
            run(["scancel", job])
        until(lambda: not run(["squeue", "-h"]).out, LIMIT)


class Worker:
    """Runs steps in these jobs."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs

    def cancel(self, step: Step) -> None:
        """Some time after its start, also where Slurm does not know the step yet."""
        job, name = self.jobs.of[step.user], f"soak{step.number}"
        time.sleep(step.cancel_after or 0)
        for _ in range(100):
            listed = [line.split() for line in run(["squeue", "-h", "-s", "-j", job, "-o", "%i %j"]).out.splitlines()]
            for number in (words[0] for words in listed if words[1:] == [name]):
                run(as_user(["scancel", number], step.user))
                return
            time.sleep(0.1)

    def result(self, step: Step) -> Result:
        if step.user == "root":
            return run(["situla", *step.options], LIMIT)
        words = as_user(step.words(self.jobs.of[step.user]), step.user)
        if step.cancel_after is None:
            return run(words, LIMIT)
        with ThreadPoolExecutor(1) as canceller:
            canceller.submit(self.cancel, step)
            return run(words, LIMIT)

    def do(self, step: Step) -> Done:
        began = time.monotonic()
        result = self.result(step)
        seconds = time.monotonic() - began
        wrong = what_is_wrong(step, result.status, result.out + result.err)
        if step.save and os.path.exists(step.save):
            os.unlink(step.save)
        if step.forget and os.path.isdir(f"/home/{step.user}/.local/share/enroot/{step.forget}"):
            removed = run(as_user(["situla", "remove", "-f", step.forget], step.user))
            wrong = wrong or (f"its container cannot be removed: {removed.err}" if removed.status else "")
        elif step.forget and step.cancel_after is None:
            wrong = wrong or f"there is no container {step.forget}"
        return Done(step, seconds, wrong, (result.out + result.err)[-3000:] if wrong else "")

    def do_all(self, steps: list[Step], in_flight: int) -> list[Done]:
        with ThreadPoolExecutor(in_flight) as pool:
            return list(pool.map(self.do, steps))


def remove_shared() -> None:
    for user in USERS:
        run(as_user(["situla", "remove", "-f", "pyxis_shared"], user))
