"""The suites unit and userns once more: by another compiler, with a standard library that checks, and as on older kernels."""
import os
import re
import shutil
import subprocess

from runner.catch import as_ordinary_user, as_root, run_catch
from runner.core import ROOT, Tally


class OfOlderKernel(Tally):
    """What an older kernel cannot do is nothing that skips are forbidden for."""

    def skip(self, what, reason):
        print(f"  skip  {what}: {reason}", file=self.output, flush=True)
        self.skipped += 1


# Of tests/support/as-linux.
OLDER_KERNELS = ("4.18", "5.4", "5.10", "5.12")
USUAL = {"unit": (as_root, {}), "userns": (as_ordinary_user, {})}


def as_linux(version, wrap):
    """How a test program is run where the calls that are newer do not exist."""
    return lambda command: [str(ROOT / "tests/support/as-linux"), version, *wrap(command)]


def run_in_debian_13(tally):
    """g++ 14 and the libraries that go with it, in a root that has them (tests/cluster/versions)."""
    command = [ROOT / "tests/cluster/versions", "--tests", "trixie"]
    # The root lacks some tools that a test is skipped without: nothing that skips are forbidden for.
    environment = os.environ | {"SITULA_FORBID_SKIPS": ""}
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        output, _ = process.communicate()
    print(output, end="", flush=True)
    counted = re.search(r"^(\d+) passed, (\d+) failed, (\d+) skipped", output, re.M)
    passed, failed, skipped = map(int, counted.groups()) if counted else (0, 0, 0)
    tally.add(passed, failed or int(process.returncode != 0 or not counted))
    tally.skipped += skipped


def run_compilers(context, tally):
    if shutil.which("clang++"):
        print("  clang: everything, without a warning", flush=True)
        context.build("clang", None)
        run_catch(context, tally, "clang", USUAL)
    else:
        tally.skip("clang", "not installed (packaging/install-deps)")
    print("  g++ of Debian 13", flush=True)
    run_in_debian_13(tally)
    print("  g++ with _GLIBCXX_ASSERTIONS", flush=True)
    run_catch(context, tally, "assertions", USUAL)
    for version in OLDER_KERNELS:
        print(f"  without the system calls that came after Linux {version}", flush=True)
        part = OfOlderKernel()
        run_catch(context, part, "release", {label: (as_linux(version, wrap), variables) for label, (wrap, variables) in USUAL.items()})
        tally.merge(part)
