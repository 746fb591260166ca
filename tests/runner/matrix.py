"""In which labs does a .bats file run, and which of its tests in each?

Each `# lab: ARGS` in the first lines of a file is one lab, ARGS are tests/cluster/run's; `# lab: none` means that the file brings up
what it needs by itself, as root. Where a file has several labs each has a `--name`, and a test runs in all of them, or in those that it
is tagged with: `# bats test_tags=lab:NAME`, `# bats file_tags=lab:NAME`. The lab called `large` takes minutes, and is only run on request.
"""
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from runner.core import ROOT

LARGE = "large"


@dataclass(frozen=True)
class Lab:
    """One `# lab:` line."""

    name: str
    options: list[str] | None  # None: no lab
    filters: tuple[str, ...]  # of bats, which leave the tests of this lab

    def command(self, path: Path) -> list[str]:
        """Runs the tests of the file that belong to this lab, in it."""
        tags = [word for tags in self.filters for word in ("--filter-tags", tags)]
        bats = ["bats", "--tap", *tags, str(path)]
        return bats if self.options is None else [str(ROOT / "tests/cluster/run"), *self.options, "--", *bats]


def labs(path: Path) -> list[Lab]:
    """The labs of a file, in its order."""
    head = path.read_text(encoding="utf-8").splitlines()[:15]
    lines = [shlex.split(match[1]) for match in (re.match(r"# lab:(.*)", line) for line in head) if match] or [[]]
    names = [line[line.index("--name") + 1] if "--name" in line else "" for line in lines]
    if len(lines) > 1 and (not all(names) or len(set(names)) < len(names)):
        raise ValueError(f"{path}: each of several labs needs a --name of its own")
    everywhere = ",".join(f"!lab:{name}" for name in names)
    return [Lab(name, None if line == ["none"] else line, (f"lab:{name}", everywhere) if len(lines) > 1 else ()) for name, line in zip(names, lines)]


def find(word: str) -> tuple[Path, str] | None:
    """The file and, after a colon, the lab that somebody names: tests/cluster/named.bats, cluster/named, cluster/cancel:cgroup."""
    name, _, lab = word.partition(":")
    for path in (Path(name), ROOT / "tests" / name, ROOT / "tests" / f"{name}.bats"):
        if path.suffix == ".bats" and path.is_file():
            path = path.resolve()
            return (path, lab) if not lab or lab in [one.name for one in labs(path)] else None
    return None
