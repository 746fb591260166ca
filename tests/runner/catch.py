"""Catch2 programs, as CTest knows them, and libFuzzer's."""
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

from runner.core import ASAN, BUILD, IS_ROOT, STARVED, TEST_UID, run_program


def catch_programs(context, preset, label):
    """(name, command, properties) of the tests that carry the label."""
    directory = context.configure(preset)
    shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=directory, stdout=subprocess.PIPE, text=True, check=True)
    for test in json.loads(shown.stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        if label in properties.get("LABELS", []):
            yield test["name"], test.get("command"), properties


def catch_counts(code, output):
    """(passed, failed) test cases from Catch2's last lines; a program that died without them is one failure."""
    match = re.search(r"All tests passed \(.* in (\d+) test cases?\)", output)
    if match:
        return (int(match[1]), 0) if code == 0 else (int(match[1]), 1)
    match = re.search(r"^test cases:\s+\d+ \|(.*)$", output, re.M)
    if match:
        count = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed)", match[1])}
        return count.get("passed", 0), max(count.get("failed", 0), 1)
    return (1, 0) if code == 0 else (0, 1)


# What an administrator of this machine has set up for its own Situla is not what is tested.
HIDE_SITE = "for d in /etc/situla /etc/enroot; do [ ! -d $d ] || mount -t tmpfs -o mode=755 tmpfs $d; done"
# Tests make and remove files by the ten thousand, which needs no disk. Before Linux 6.6 a tmpfs has no attributes of users'.
IN_MEMORY = """mkdir -p /run/situla-tests
mount -t tmpfs -o mode=755 tmpfs /run/situla-tests
mkdir -m 1777 /run/situla-tests/tmp
if setfattr -n user.situla -v 1 /run/situla-tests/tmp 2>/dev/null; then export TMPDIR=/run/situla-tests/tmp; fi"""


def as_root(command):
    """The command as it is, without this machine's own configuration of Situla."""
    if not IS_ROOT:
        return command
    script = f'set -e\n{HIDE_SITE}\n{IN_MEMORY}\nexec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "as-root", *command]


def as_ordinary_user(command):
    """The command as an ordinary user with a name, a home and one supplementary group, none of which exist outside."""
    if not IS_ROOT:
        return command
    home = "/run/situla-tests/home"
    script = f"""
set -e
{HIDE_SITE}
{IN_MEMORY}
(cat /etc/passwd; echo 'tester:x:{TEST_UID}:{TEST_UID}:ordinary user:{home}:/bin/bash') >/run/situla-tests/passwd
(cat /etc/group; echo 'tester:x:{TEST_UID}:'; echo 'testers:x:{TEST_UID + 1}:tester') >/run/situla-tests/group
mount --bind /run/situla-tests/passwd /etc/passwd
mount --bind /run/situla-tests/group /etc/group
# Without udev it is root's alone; a normal node has it open to everybody.
if [ -e /dev/fuse ]; then mknod -m 666 /run/situla-tests/fuse c 10 229 && mount --bind /run/situla-tests/fuse /dev/fuse; fi
mkdir -m 0700 {home}
chown {TEST_UID}:{TEST_UID} {home}
export HOME={home} USER=tester LOGNAME=tester
unset XDG_RUNTIME_DIR XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME
exec setpriv --reuid {TEST_UID} --regid {TEST_UID} --init-groups --inh-caps=-all -- "$@"
"""
    return ["unshare", "--mount", "--propagation", "private", "bash", "-c", script, "ordinary-user", *command]


def begin_catch(context, preset, labels, idly=None):
    """(name, command, future) of each program. labels: of the programs, and how each is run: its command in another one, and variables. idly:
    only those for which time is nothing (UNTIMED), and for as long as it returns true with what processor time others leave."""
    programs = [(*program, label) for label in labels for program in catch_programs(context, preset, label)]
    # Sanitizers are for the test programs only; a plugin under a sanitizer could not be loaded by Slurm.
    context.build(preset, {name for name, *_ in programs} if preset == "asan" else None, idly is not None)
    # Only now CTest knows where the programs are.
    programs = [(*program, label) for label in labels for program in catch_programs(context, preset, label)]
    programs.sort(key=lambda program: -float(program[2].get("COST", 0)))  # those that take long first, so that none is alone at the end
    for name, command, properties, label in programs:
        if idly and "untimed" not in properties["LABELS"]:
            continue
        wrap, variables = labels[label]
        variables = dict(item.split("=", 1) for item in properties.get("ENVIRONMENT", [])) | variables
        yield name, command, context.begin("idle" if idly else "programs", run_one, wrap(command), variables, properties, idly=idly)


def run_one(context, command, variables, properties, idly=None):
    """(exit status, output, seconds)"""
    began = time.monotonic()
    result = run_program(context, command, float(properties.get("TIMEOUT", 300)), {**os.environ, **variables},
                         properties.get("WORKING_DIRECTORY", BUILD), idly and idly())
    return (*result, time.monotonic() - began)


def run_catch(context, tally, preset, labels):
    """The same, and what they come to."""
    begun = list(begin_catch(context, preset, labels))
    if not begun:
        tally.add(0, 1)
        print(f"  fail  no test program carries the label {' or '.join(labels)}")
    for name, command, done in begun:
        report_catch(context, tally, name, *done.result(), command)


def report_catch(context, tally, name, code, output, seconds, command):
    skips = re.findall(r"SKIP: (.*)", output)
    if code == 77:
        tally.skip(name, skips[0] if skips else "the program says it cannot run here")
        return
    passed, failed = catch_counts(code, output)
    passed = max(passed - len(skips), 0)
    tally.add(passed, failed)
    print(f"  {'FAIL' if failed else 'ok  '}  {name} ({passed} cases, {seconds:.1f} s)", flush=True)
    for reason in skips:
        tally.skip(name, reason.strip())
    if failed or context.options.verbose:
        print("\n".join("        " + line for line in output.splitlines()[-200:]))
        if failed:
            print(f"        exit status {code}; again with: {shlex.join(command)}")


def missing_for_asan():
    """Why the preset asan, which has libFuzzer's targets too, cannot be built here; empty if it can."""
    if not shutil.which("clang++"):
        return "clang is not installed (packaging/install-deps)"
    program = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
    result = subprocess.run(["clang++", "-fsanitize=fuzzer,address", "-x", "c++", "-", "-o", "/dev/null"], input=program,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True, check=False)
    return "" if result.returncode == 0 else "clang has no libFuzzer (packaging/install-deps)"


SEARCH = 5  # seconds of each target


def begin_fuzz(context, idly=None):
    """(name, future) of each target. idly: for as long as it returns true, with what processor time others leave. A search needs another build,
    which takes half as long again: only where the suite is named."""
    search = "fuzz" in context.options.only
    preset = "fuzz" if search else "asan"
    context.build(preset, {name for name, _, _ in catch_programs(context, preset, "fuzz")}, idly is not None)
    return [(name, context.begin("idle", fuzz, search, name.removeprefix("fuzz_"), replay, idly=idly))
            for name, replay, _ in catch_programs(context, preset, "fuzz")]


def fuzz(context, search, short, replay, idly=None):
    """(exit status, what was done last, its output)"""
    found, broken = BUILD / "fuzz/found" / short, BUILD / "fuzz/broken"
    found.mkdir(parents=True, exist_ok=True)
    broken.mkdir(exist_ok=True)
    inputs = sorted(str(path) for path in Path(replay[-1]).glob("*"))
    if not inputs:
        return 1, "corpus", f"no inputs in {replay[-1]}"
    # Named one by one, so that the last name in the output is the input that broke it.
    for what, words in [("corpus", inputs), ("search", [f"-max_total_time={SEARCH}", str(found), replay[-1]])][: 2 if search else 1]:
        waiting = bool(idly and idly())
        # What is slow is told by the clock, not by the time that it had a processor.
        limits = [f"-timeout={10 * (STARVED if waiting else 1)}", "-rss_limit_mb=1024", f"-artifact_prefix={broken}/{short}-"]
        code, output = run_program(context, [replay[0], *limits, *words], 600, {**os.environ, **ASAN}, BUILD, waiting)
        if code:
            break
    # libFuzzer's lines about its progress would push what broke, and how, out of what is shown. An error's frames begin
    # with # too, but behind spaces.
    progress = re.compile(r"#\d+\s|INFO:|\s*NEW_(FUNC|PC)\[")
    return code, what, "\n".join(line for line in output.splitlines() if not progress.match(line))
