"""Habits that linters do not know: hidden state, hidden inputs, unfinished code, and ties to one machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sources import Source, run, sources

PACKAGES = ("core", "api", "platforms")
READS_ENVIRONMENT = ("core/anychip/config.py",)
THIS = "ci/habits.py"  # lists what it forbids
TEXT = (".py", ".md", ".toml", ".txt", ".sh", ".yml", ".yaml", ".json", ".cpp", ".h", ".cu", "Containerfile", "ci/run")

MACHINE_PATH = re.compile(r"(?<![\w.~/$}-])/(?:home|root|work|opt|Users|mnt|srv|data|scratch)/[\w.-]")
REGISTRY_WORDS = (
    r"pypi\.org", r"pythonhosted\.org", r"download\.pytorch\.org", r"anaconda\.org", r"docker\.io", r"ghcr\.io",
    r"quay\.io", r"nvcr\.io", r"npmjs\.org", r"--(?:extra-)?index-url", r"--find-links",
)  # fmt: skip
REGISTRY = re.compile("|".join(REGISTRY_WORDS))
FOREIGN = {"torch", "transformers", "numpy"}

# "path: what" -> why it is right there.
ALLOWED: dict[str, str] = {
    "core/anychip/sampling_params.py: replace passes **changes on": "the parameters are the fields of the struct",
    "platforms/cpu/hatch_build.py: only core/anychip/config.py reads the environment": "there is no config yet",
    "core/anychip/cli/report.py: call passes **options on": "a decorator of commands, whatever their parameters",
}


def line_problems(source: Source) -> Iterator[str]:
    """A message for each line of any text file that ties the project to one machine."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        if match := MACHINE_PATH.search(line):
            yield f"{source.name}:{number}: a path of one machine: {match.group()}"
        if match := REGISTRY.search(line):
            yield f"{source.name}:{number}: names a package registry: {match.group()}; the user's pip knows its own"


def node_problem(node: ast.AST, source: Source) -> str | None:
    """What is wrong with one node of a package's syntax tree."""
    match node:
        case ast.Global():
            return "`global`: keep state in an object that its users are given"
        case ast.ExceptHandler(type=None):
            return "bare `except`: name what can happen"
        case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "environb" | "getenv" | "putenv"):
            return None if source.name in READS_ENVIRONMENT else "only core/anychip/config.py reads the environment"
        case ast.ImportFrom(module="os", names=names) if {name.name for name in names} & {"environ", "getenv"}:
            return None if source.name in READS_ENVIRONMENT else "only core/anychip/config.py reads the environment"
        case ast.Name(id="NotImplementedError"):
            return "NotImplementedError: make the method abstract, or refuse with a UserError"
        case ast.Call(func=ast.Name(id="hasattr")):
            return "hasattr: give the types a name, or a method with a default"
        case ast.ClassDef(name=name) if "Mixin" in name:
            return f"{name}: pass an object instead of mixing in behaviour"
        case ast.Assign(targets=targets):
            return foreign_assignment(targets)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return passed_through(node)
    return None


def foreign_assignment(targets: list[ast.expr]) -> str | None:
    """Assigning to an attribute of a library changes it for everyone in the process."""
    for target in targets:
        owner: ast.expr = target
        while isinstance(owner, ast.Attribute):
            owner = owner.value
        if owner is not target and isinstance(owner, ast.Name) and owner.id in FOREIGN:
            return f"changes {owner.id} for the whole process"
    return None


def passed_through(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """`**kwargs` handed on unread hides a signature."""
    name = function.args.kwarg.arg if function.args.kwarg else None
    for node in ast.walk(function):
        match node:
            case ast.keyword(arg=None, value=ast.Name(id=handed)) if handed == name:
                return f"{function.name} passes **{name} on: spell the parameters"
    return None


def package_problems(source: Source) -> Iterator[str]:
    """A message for each bad habit in a Python file of a package."""
    for node in ast.walk(source.tree):
        problem = node_problem(node, source)
        if problem and f"{source.name}: {problem.split(':')[0]}" not in ALLOWED:
            yield f"{source.name}:{getattr(node, 'lineno', 1)}: {problem}"


def check(root: Path) -> list[str]:
    """Every bad habit, in the packages' code and in every text file."""
    problems: list[str] = []
    for source in sources(root, ("",), TEXT):
        if source.name != THIS:
            problems += line_problems(source)
        if source.name.startswith(tuple(f"{folder}/" for folder in PACKAGES)) and source.name.endswith(".py"):
            problems += package_problems(source)
    return problems


if __name__ == "__main__":
    run("habits", check)
