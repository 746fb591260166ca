"""What every suite is made of: the tally, the builds, a program with a time limit."""
import concurrent.futures
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build"
FORBID_SKIPS = os.environ.get("SITULA_FORBID_SKIPS") == "1"
IS_ROOT = os.geteuid() == 0
TEST_UID = 54321  # of the ordinary user who runs the userns suite; exists only inside that suite's mount namespace
JOBS = str(os.cpu_count() or 2)
# Before a command: with what processor time others leave. A session counts as one among others where the kernel makes groups of them
# (sched(7), "The autogroup feature"); within it policies and nice values count.
IDLY_IN_SESSION = ["sh", "-c", 'echo 19 2>/dev/null >/proc/self/autogroup; exec chrt --idle 0 "$@"', "idly"]
IDLY = ["setsid", *IDLY_IN_SESSION]
STARVED = 20  # times as long may take what runs idly
# So many at a time. Programs: the heavy ones have work for a processor each, some mostly wait. Labs have nothing in common, and much of their
# time is waiting.
LANES = {"programs": int(JOBS) + 2, "labs": 4, "packages": 4, "idle": int(JOBS)}
# Sanitized programs try fewer of the trees that are made at random: they look for other things than whether the answer is right.
ASAN = {"UBSAN_OPTIONS": "print_stacktrace=1", "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
        "SITULA_TEST_SEEDS": os.environ.get("SITULA_TEST_SEEDS", "2")}


def yielding(nice):
    """Before a command that begins a session: the higher the number, the more it leaves to others."""
    return ["sh", "-c", f'echo {nice} 2>/dev/null >/proc/self/autogroup; exec nice -n {nice} "$@"', "yielding"] if nice else []


class Tally:
    """What one suite came to."""

    def __init__(self):
        self.passed, self.failed, self.skipped, self.seconds, self.notes = 0, 0, 0, 0.0, []
        self.output = sys.stdout

    def skip(self, what, reason):
        print(f"  skip  {what}: {reason}" + ("  (skips are forbidden: failed)" if FORBID_SKIPS else ""), file=self.output, flush=True)
        if FORBID_SKIPS:
            self.failed += 1
        else:
            self.skipped += 1

    def add(self, passed, failed):
        self.passed += passed
        self.failed += failed

    def merge(self, part):
        self.add(part.passed, part.failed)
        self.skipped += part.skipped


class Context:
    """Options, and builds that were already made in this run."""

    def __init__(self, options):
        self.options, self.configured, self.built = options, set(), {}
        self.running = set()  # processes that outlive an exception: labs, and what goes on beside them
        self.pools, self.begun = {}, {}
        # Of each preset's directory: what is built idly holds back nothing but itself.
        self.building = {preset: threading.RLock() for preset in ("release", "debug", "tidy", "asan", "fuzz", "clang", "assertions")}

    def configure(self, preset):
        with self.building[preset]:
            if preset not in self.configured:
                run_or_raise(self, ["cmake", "--preset", preset], f"configure {preset}")
                self.configured.add(preset)
        return BUILD / preset

    def build(self, preset, targets, idly=False):
        """Builds targets, everything when there are none; raises BuildError. Idly: with what processor time others leave."""
        with self.building[preset]:
            if self.built.get(preset) == "all" or (targets and targets <= self.built.get(preset, set())):
                return
            self.configure(preset)
            # Not by cmake --build, which would end without its ninja when it is told to.
            command = (IDLY if idly else []) + ["ninja", "-C", str(BUILD / preset), "-j", JOBS, *sorted(targets or [])]
            run_or_raise(self, command, f"build {preset}")
            self.built[preset] = "all" if not targets else self.built.get(preset, set()) | targets

    def begin(self, pool, work, *what, **options):
        """A future of work(self, *what, **options), one of so many at a time as LANES says; the same one for what was begun before its turn."""
        key = (work, repr(what))
        if key not in self.begun:
            if pool not in self.pools:
                self.pools[pool] = concurrent.futures.ThreadPoolExecutor(max_workers=LANES[pool])
            self.begun[key] = self.pools[pool].submit(work, self, *what, **options)
        return self.begun[key]

    def terminate(self):
        for pool in self.pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        for process in list(self.running):
            process.terminate()


def descendants(pid):
    """All processes that a process and those that it started have started."""
    with contextlib.suppress(OSError):  # one that has ended meanwhile
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii").split()):
                yield child
                yield from descendants(child)


def hurry():
    """What was started idly goes on like everything else."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text("0", encoding="ascii")
        with contextlib.suppress(OSError):
            for thread in map(int, os.listdir(f"/proc/{pid}/task")):
                if os.sched_getscheduler(thread) == os.SCHED_IDLE:
                    os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


class BuildError(Exception):
    pass


def run_or_raise(context, command, what):
    print(f"  ....  {what}\n", end="", flush=True)  # in one piece, beside what other threads print
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        context.running.add(process)
        output, _ = process.communicate()
        context.running.discard(process)
    if process.returncode != 0:
        print("\n".join(output.splitlines()[-60:]))
        raise BuildError(f"{what}: {shlex.join(command)} exited with {process.returncode}")


def run_program(context, command, limit, environment, directory, idly=False):
    """Runs a test in a process group of its own; returns (code, output). Nothing of the group survives."""
    if idly:
        command, limit = [*IDLY_IN_SESSION, *command], limit * STARVED
    with subprocess.Popen(command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True) as process:
        context.running.add(process)
        try:
            output, _ = process.communicate(timeout=limit)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return 124, output + f"\ntimed out after {limit:.0f} s"
        finally:
            context.running.discard(process)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def sources(*patterns):
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns], cwd=ROOT, stdout=subprocess.PIPE,
                            text=True, check=False)
    if listed.returncode == 0:
        return [name for name in listed.stdout.split() if (ROOT / name).exists()]
    found = [str(p.relative_to(ROOT)) for pattern in patterns for p in ROOT.rglob(pattern)]
    return [name for name in found if not name.startswith("build")]
