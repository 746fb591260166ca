"""clang-tidy over the code that ships."""
import concurrent.futures
import functools
import hashlib
import json
import os
import re
import subprocess
import time
from pathlib import Path

from runner.core import BUILD, FORBID_SKIPS, JOBS, ROOT, BuildError, sources

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "situla-tests" / "clang-tidy"
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

    def entry(self, name, command):
        known, waiting = set(), [name]
        while waiting:
            one = waiting.pop()
            if one not in known:
                known.add(one)
                waiting += self.read(one)[1]
        digest = hashlib.sha256(self.common + json.dumps(command).replace(str(ROOT), "").encode())
        for one in sorted(known):
            digest.update(one.encode() + b"\0" + self.read(one)[0])
        return CACHE / digest.hexdigest()


class Tidy:
    """clang-tidy over the code that ships, what changed last first; goes on where it stopped."""

    def __init__(self):
        self.waiting, self.count, self.done, self.entries = None, 0, [], {}

    def prepare(self, context):
        if self.waiting is not None:
            return
        directory = context.configure("debug")  # each source by itself
        known = {entry["file"]: entry["command"] for entry in json.loads((directory / "compile_commands.json").read_text(encoding="utf-8"))}
        log = subprocess.run(["git", "log", "--name-only", "--format="], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout
        age = {name: number for number, name in reversed(list(enumerate(log.split())))}
        files = [name for name in sources("*.cpp") if not name.startswith("tests/") and str(ROOT / name) in known]
        if not files:
            raise BuildError(f"clang-tidy: {directory}/compile_commands.json has no file of the project")
        passed = Passed()
        self.entries = {name: passed.entry(name, [known[str(ROOT / name)], *self.options(name)]) for name in files}
        self.waiting = sorted((name for name in files if not self.entries[name].exists()), key=lambda name: age.get(name, len(age)))
        for name in set(files) - set(self.waiting):
            self.entries[name].touch()
            self.done.append((name, 0, ""))
        self.count = len(files)

    @staticmethod
    def options(name):
        # The slow path-sensitive checks are for the code that root runs.
        return ["--checks=-clang-analyzer-*"] if name.startswith("hooks/") and not FORBID_SKIPS else []

    def run(self, context, more, prefix=()):
        """Until there is no file left, or more() says stop. done: (file, exit status, output)."""
        self.prepare(context)

        def one(_):
            while more():
                try:
                    name = self.waiting.pop(0)
                except IndexError:
                    return
                command = [*prefix, "clang-tidy", "--quiet", "-p", str(BUILD / "debug"), *self.options(name), name]
                result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
                if result.returncode == 0:
                    self.entries[name].touch()
                self.done.append((name, result.returncode, result.stdout))
        with concurrent.futures.ThreadPoolExecutor(max_workers=int(JOBS)) as pool:
            list(pool.map(one, range(int(JOBS))))
