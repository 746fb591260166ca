"""clang-tidy over the code that ships."""
import concurrent.futures
import json
import subprocess

from runner.core import BUILD, FORBID_SKIPS, JOBS, ROOT, sources


class Tidy:
    """clang-tidy over the code that ships, what changed last first; goes on where it stopped."""

    def __init__(self):
        self.waiting, self.count, self.done = None, 0, []

    def prepare(self, context):
        if self.waiting is not None:
            return
        directory = context.configure("debug")  # each source by itself
        known = {entry["file"] for entry in json.loads((directory / "compile_commands.json").read_text(encoding="utf-8"))}
        log = subprocess.run(["git", "log", "--name-only", "--format="], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout
        age = {name: number for number, name in reversed(list(enumerate(log.split())))}
        files = [name for name in sources("*.cpp") if not name.startswith("tests/") and str(ROOT / name) in known]
        self.waiting = sorted(files, key=lambda name: age.get(name, len(age)))
        self.count = len(files)

    def run(self, context, more, prefix=()):
        """Until there is no file left, or more() says stop. done: (file, exit status, output)."""
        self.prepare(context)
        # The slow path-sensitive checks are for the code that root runs.
        quick = [] if FORBID_SKIPS else ["--checks=-clang-analyzer-*"]

        def one(_):
            while more():
                try:
                    name = self.waiting.pop(0)
                except IndexError:
                    return
                command = [*prefix, "clang-tidy", "--quiet", "-p", str(BUILD / "debug"), *(quick if name.startswith("hooks/") else []), name]
                result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
                self.done.append((name, result.returncode, result.stdout))
        with concurrent.futures.ThreadPoolExecutor(max_workers=int(JOBS)) as pool:
            list(pool.map(one, range(int(JOBS))))

