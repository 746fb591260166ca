"""bats files, each in a lab of its own, and what goes on beside them."""
import io
import re
import shlex
import subprocess
import threading
import time

from runner.core import ROOT, Tally, yielding
from runner.matrix import LARGE, labs



def begin_bats(context, files, chosen_lab="", pool="labs", yielding=False):
    """Futures of run_tap(): each file runs in each of its labs (runner/matrix.py), or in the chosen one; so many at a time as the pool has lanes.
    yielding: a later one leaves the processors to an earlier one."""
    # What tests run in labs besides Situla.
    context.build("release", {"tests/cluster/all", "tests/faults/all", "tests/gpu/all"})
    # Who yields waits for those before it, too.
    return [context.begin(pool, run_tap, *lab, limit=2700 * (number + 1 if yielding else 1), nice=5 * number if yielding else 0)
            for number, lab in enumerate(labs_of(context, files, chosen_lab))]


def run_bats(context, tally, files, *which, **how):
    """The same, and what they come to."""
    if not files:
        tally.add(0, 1)
        print("  fail  there is no .bats file")
    for done in begin_bats(context, files, *which, **how):
        output, part = done.result()
        print(output, end="", flush=True)
        tally.merge(part)


def labs_of(context, files, chosen_lab):
    """(name of the file, of its lab where there are several, command)"""
    for path in files:
        several = labs(path)
        for lab in several:
            if lab.name == chosen_lab if chosen_lab else lab.name != LARGE or context.options.large:
                yield f"{path.parent.name}/{path.name}", lab.name if len(several) > 1 else "", lab.command(path)


def terminate_after(seconds, process):
    alarm = threading.Timer(seconds, process.terminate)
    alarm.daemon = True
    alarm.start()
    return alarm


def run_tap(context, name, lab, command, limit=2700, nice=0):
    """What to print, and what it came to."""
    shown, command = command, [*yielding(nice), *command]
    tally, output = Tally(), io.StringIO()
    each = f"{name.removesuffix('.bats')} ({lab}): " if lab else ""
    name += f" ({lab})" if lab else ""
    tally.output = output
    print(f"  ----  {name}: {shlex.join(shown)}", file=output)
    planned, seen, failing = None, 0, False
    began = latest = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", start_new_session=True) as process:
        # SIGTERM, not SIGKILL: a lab takes itself down.
        context.running.add(process)
        alarm = terminate_after(limit, process)
        try:
            for line in process.stdout:
                line = line.rstrip()
                if match := re.match(r"1\.\.(\d+)$", line):
                    planned, latest = int(match[1]), time.monotonic()
                elif match := re.match(r"(not ok|ok) \d+ (.*)$", line):
                    seen += 1
                    failing = match[1] == "not ok"
                    took, latest = time.monotonic() - latest, time.monotonic()  # bats would start two processes for each test to say so
                    skip = re.search(r"# skip ?(.*)$", match[2])
                    if skip:
                        tally.skip(f"{name}: {match[2][:skip.start()].strip()}", skip[1] or "no reason given")
                    else:
                        tally.add(*((0, 1) if failing else (1, 0)))
                        print(f"  {'FAIL' if failing else 'ok  '}  {each}{match[2]} ({took:.1f} s)", file=output)
                    if seen == planned:  # what a test has left behind may hold it open
                        alarm.cancel()
                        alarm = terminate_after(300, process)
                elif failing or planned is None or context.options.verbose:
                    print(f"        {line}", file=output)
        finally:
            context.running.discard(process)
            alarm.cancel()
    if not planned or seen < planned:
        tally.add(0, max((planned or 1) - seen, 1))
        print(f"  FAIL  {name}: ended with status {process.returncode} after {seen} of {planned if planned is not None else '?'} tests",
              file=output)
    elif process.returncode != 0 and not tally.failed:
        tally.add(0, 1)
        print(f"  FAIL  {name}: all tests passed, but {shown[0]} exited with {process.returncode}", file=output)
    print(f"  ....  {name}: {time.monotonic() - began:.0f} s", file=output)
    return output.getvalue(), tally
