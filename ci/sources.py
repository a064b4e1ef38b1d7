"""Which files the checks read, and how they print what they found."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Source:
    """One file of the repository: `path` is absolute, `name` relative to the root with forward slashes."""

    root: Path
    path: Path

    @property
    def name(self) -> str:
        """The path as messages print it."""
        return self.path.relative_to(self.root).as_posix()

    @cached_property
    def text(self) -> str:
        """The whole file."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of a Python file."""
        return ast.parse(self.text, self.name)


def listed(root: Path) -> list[str]:
    """Names of the files git tracks or would track; every file where there is no repository."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode == 0 and (root / ".git").exists():
        return sorted(answer.stdout.splitlines())
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def sources(root: Path, folders: tuple[str, ...], endings: tuple[str, ...]) -> Iterator[Source]:
    """The files under `folders` ("" is the root) whose names end so, in order."""
    prefixes = tuple(f"{folder}/" if folder else "" for folder in folders)
    for name in listed(root):
        if name.startswith(prefixes) and name.endswith(endings) and (root / name).is_file():
            yield Source(root, root / name)


def run(title: str, check: Callable[[Path], list[str]]) -> None:
    """Print each problem `check` finds in this repository and exit 1, or say that there is none."""
    problems = check(ROOT)
    for problem in problems:
        print(problem)
    print(f"{title}: {len(problems)} problem(s)" if problems else f"{title}: ok")
    sys.exit(1 if problems else 0)
