"""Small files, small functions, and no file that is named after nothing."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

from sources import ROOT, Source, run, sources

FOLDERS = ("core", "api", "platforms", "ci", "benchmarks", "examples", "tests")
FILE_LINES, FUNCTION_LINES = 300, 60
NAMELESS = {"utils", "util", "common", "helpers", "helper", "misc"}

# "path" or "path:function" -> why it is better long.
ALLOWED: dict[str, str] = {}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(source: Source) -> Iterator[tuple[str, int, int]]:
    """Name, first line and length of each function, nested ones included."""
    for node in ast.walk(source.tree):
        if isinstance(node, Function):
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


def file_problems(source: Source) -> Iterator[tuple[str, str]]:
    """(key of the allow-list, message) for each thing in a file that is too large or has no name."""
    length = len(source.text.splitlines())
    if length > FILE_LINES:
        yield source.name, f"{source.name}: {length} lines, the limit is {FILE_LINES}; split it by subject"
    if {*source.path.parent.relative_to(source.root).parts, source.path.stem} & NAMELESS:
        yield source.name, f"{source.name}: say in its name what it holds"
    if source.name.endswith(".py"):
        for name, line, size in functions(source):
            if size > FUNCTION_LINES:
                where = f"{source.name}:{line}: {name}"
                yield f"{source.name}:{name}", f"{where} has {size} lines, the limit is {FUNCTION_LINES}"


def check(root: Path) -> list[str]:
    """Every file and function over its budget that `ALLOWED` does not excuse, and every excuse that none needs."""
    found = [pair for source in code(root) for pair in file_problems(source)]
    stale = sorted(ALLOWED.keys() - {key for key, _ in found})
    problems = [message for key, message in found if key not in ALLOWED]
    return problems + [f"ci/budget.py: ALLOWED names {key}, which is within its budget" for key in stale]


def code(root: Path) -> Iterator[Source]:
    """The files that have a budget."""
    return sources(root, FOLDERS, (".py", ".cpp", ".h", ".hpp", ".cu"))


def medians(root: Path) -> str:
    """One line with the median length of files and functions in the packages."""
    files = [source for source in sources(root, ("core", "api", "platforms"), (".py",)) if source.text.strip()]
    sizes = [size for source in files for _, _, size in functions(source)]
    lines = [len(source.text.splitlines()) for source in files]
    if not lines or not sizes:
        return "no code yet"
    return (
        f"{len(lines)} files, median {statistics.median(lines):.0f} lines, largest {max(lines)}; "
        f"{len(sizes)} functions, median {statistics.median(sizes):.0f} lines, largest {max(sizes)}"
    )


if __name__ == "__main__":
    print(medians(ROOT))
    run("budget", check)
