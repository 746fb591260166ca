"""clang-tidy over the code that ships."""
import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import os
import re
import subprocess
import time
from pathlib import Path

from runner.core import BUILD, FORBID_SKIPS, JOBS, ROOT, BuildError

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "situla-tests" / "clang-tidy"
SHIPS = ("common/", "hooks/", "plugin/")
FORGOTTEN_AFTER = 90 * 86400  # seconds
INCLUDE = re.compile(rb'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)


class Passed:
    """Files in which clang-tidy found nothing, in this clone or another one: what it would read is what it read then."""

    def __init__(self):
        self.places = [ROOT, BUILD / "debug"]
        installed = subprocess.run(["dpkg-query", "-W"], stdout=subprocess.PIPE, check=False).stdout
        self.common = hashlib.sha256(installed + (ROOT / ".clang-tidy").read_bytes()).digest()
        CACHE.mkdir(parents=True, exist_ok=True)
        for entry in CACHE.iterdir():
            if entry.stat().st_mtime < time.time() - FORGOTTEN_AFTER:
                entry.unlink(missing_ok=True)

    @functools.cache
    def read(self, name):
        """(hash of a project's file, what it includes); nothing of others, which are installed packages'."""
        for place in self.places:
            if (place / name).is_file():
                content = (place / name).read_bytes()
                return hashlib.sha256(content).digest(), [found.decode() for found in INCLUDE.findall(content)]
        return b"", []

    def entry(self, names, command):
        known, waiting = set(), list(names)
        while waiting:
            one = waiting.pop()
            if one not in known:
                known.add(one)
                waiting += self.read(one)[1]
        digest = hashlib.sha256(self.common + json.dumps(command).replace(str(ROOT), "").encode())
        for one in sorted(known):
            digest.update(one.encode() + b"\0" + self.read(one)[0])
        return CACHE / digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Unit:
    """What one call of clang-tidy looks at: the project's files in it, and how it is compiled in which preset's directory."""
    names: tuple
    preset: str
    file: str
    command: str
    checks: str = ""

    def tidy(self):
        options = [f"--checks={self.checks}"] if self.checks else []
        return ["clang-tidy", "--quiet", "-p", str(BUILD / self.preset), *options, self.file]


def by_preset(context, preset):
    """The units of a preset that ships: several files where CMake has them compiled at once."""
    directory = context.configure(preset)
    for entry in json.loads((directory / "compile_commands.json").read_text(encoding="utf-8")):
        file = Path(entry["file"])
        parts = INCLUDE.findall(file.read_bytes()) if file.parent.name == "Unity" else [str(file).encode()]
        names = [str(path.relative_to(ROOT)) for path in (Path(part.decode()) for part in parts) if path.is_relative_to(ROOT)]
        if names := tuple(name for name in names if name.endswith(".cpp") and name.startswith(SHIPS)):
            yield Unit(names, preset, str(file), entry["command"])


def all_units(context):
    """Each file by itself where the slow path-sensitive checks look, too: in the code that root runs, everywhere where skips are forbidden.
    The others as they are compiled, eight at a time: what clang-tidy takes for one is headers, by far. Unused using declarations are found
    in files by themselves only."""
    alone = by_preset(context, "debug")
    if FORBID_SKIPS:
        return list(alone)
    together = (dataclasses.replace(unit, checks="-clang-analyzer-*,-bugprone-suspicious-include") for unit in by_preset(context, "tidy"))
    return [unit for unit in alone if not unit.names[0].startswith("hooks/")] + [unit for unit in together if unit.names[0].startswith("hooks/")]


class Tidy:
    """clang-tidy over the code that ships, what changed last first; goes on where it stopped."""

    def __init__(self):
        self.waiting, self.count, self.done, self.entries = None, 0, [], {}

    def prepare(self, context):
        if self.waiting is not None:
            return
        units = all_units(context)
        if not units:
            raise BuildError(f"clang-tidy: {BUILD}/debug/compile_commands.json has no file of the project")
        log = "".join(subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout
                      for words in (["diff", "--name-only", "HEAD"], ["log", "--name-only", "--format="]))
        age = {name: number for number, name in reversed(list(enumerate(log.split())))}
        passed = Passed()
        self.entries = {unit: passed.entry(unit.names, [unit.command, unit.checks]) for unit in units}
        waiting = [unit for unit in units if not self.entries[unit].exists()]
        self.waiting = sorted(waiting, key=lambda unit: min(age.get(name, len(age)) for name in unit.names))
        for unit in set(units) - set(waiting):
            self.entries[unit].touch()
            self.done.append((unit, 0, ""))
        self.count = sum(len(unit.names) for unit in units)

    def run(self, context, more, prefix=()):
        """Until there is no unit left, or more() says stop. done: (unit, exit status, output)."""
        self.prepare(context)

        def one(_):
            while more():
                try:
                    unit = self.waiting.pop(0)
                except IndexError:
                    return
                result = subprocess.run([*prefix, *unit.tidy()], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
                if result.returncode == 0:
                    self.entries[unit].touch()
                self.done.append((unit, result.returncode, result.stdout))
        with concurrent.futures.ThreadPoolExecutor(max_workers=int(JOBS)) as pool:
            list(pool.map(one, range(int(JOBS))))
