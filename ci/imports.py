"""Reads import statements off a syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from sources import Source


@dataclass(frozen=True)
class Import:
    """One imported module. `late`: only when a function runs. `typing`: only for type checkers."""

    module: str
    line: int
    late: bool
    typing: bool

    def within(self, *packages: str) -> bool:
        """Whether the module is one of `packages` or inside one."""
        return any(self.module == package or self.module.startswith(f"{package}.") for package in packages)


def imports(source: Source) -> Iterator[Import]:
    """Every import of a file. `from a import b` counts as `a.b`, as b may be a module."""
    yield from _walk(source.tree, late=False, typing=False)


def _walk(node: ast.AST, late: bool, typing: bool) -> Iterator[Import]:
    for name in _modules(node):
        yield Import(name, getattr(node, "lineno", 0), late, typing)
    late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    if isinstance(node, ast.If) and _is_type_checking(node.test):
        for statement in node.body:
            yield from _walk(statement, late, typing=True)
        for statement in node.orelse:
            yield from _walk(statement, late, typing)
        return
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, late, typing)


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
