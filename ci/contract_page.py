"""The lists of docs/contract.md: every hook, member, field and op, from the code and its docstrings.

`python ci/contract_page.py` writes them, `--check` only compares.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import embed
from anychip.engine import batch
from anychip.ops.op import Kernel, Op, OpSpec
from anychip.ops.registry import OPS
from anychip.plugin import Communicator, contract, hookspec, spec
from anychip.plugin.signatures import DEPRECATED, members
from anychip.runner import TorchPlatform

NAME = "contract"
DOCUMENT = "docs/contract.md"
PIPE = r"\|"

PUBLIC = ("anychip", "anychip.plugin", "anychip.runner", "anychip.ops", "anychip.weights", "anychip.testing")
"""Modules whose `__all__` the contract covers."""

RECORDS = (
    spec.PlatformSpec,
    spec.Probe,
    contract.Memory,
    contract.Capabilities,
    contract.ModelSource,
    contract.ModelInfo,
    contract.KVSpec,
    contract.Plane,
    contract.KVGroup,
    contract.KVPlan,
    batch.Batch,
    batch.AdmittedRow,
    batch.RowSampling,
    batch.BlockCopy,
    contract.Late,
    batch.Masks,
    batch.StepResult,
    batch.Logprobs,
    batch.PromptLogprobs,
    batch.Pooled,
    contract.Control,
    Kernel,
    OpSpec,
)
CLASSES = (contract.Platform, TorchPlatform, contract.Runner, contract.Step, contract.Pending, Communicator)


def signature(name: str, function: Callable[..., Any], skip: int = 0) -> str:
    """`name(a, b=default)`, without self and annotations."""
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name != "self"][skip:]
    shown = [each.name if each.default is each.empty else f"{each.name}={each.default!r}" for each in parameters]
    return f"{name}({', '.join(shown)})"


def first_line(thing: Any) -> str:
    """The first sentence of a docstring, for a table."""
    return inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def public_rows() -> list[str]:
    """A row a module, with its public names."""
    named = {module: sorted(import_module(module).__all__) for module in PUBLIC}
    return [_row(module, ", ".join(f"`{name}`" for name in names)) for module, names in named.items()]


def hooks() -> list[str]:
    """A row a hook."""
    found = [
        (name, each)
        for name, each in vars(hookspec).items()
        if inspect.isfunction(each) and each.__module__ == hookspec.__name__
    ]
    return [_row(signature(name, each), first_line(each)) for name, each in found]


def class_rows(kind: type) -> list[str]:
    """A row a member of a class of the contract; those that must be overridden come in bold."""
    texts = dict(_field_texts(kind))
    rows = [_row(f"{name}: {shown}", texts.get(name, "")) for name, shown in attributes(kind).items()]
    for name, member in members(kind).items():
        function: Any = member.fget if isinstance(member, property) else member
        shown = name if isinstance(member, property) else signature(name, function)
        instead = DEPRECATED.get(f"{kind.__name__}.{name}")
        text = f"Deprecated: {instead}" if instead else first_line(function)
        rows.append(_row(shown, text, needed=getattr(function, "__isabstractmethod__", False)))
    return rows


def attributes(kind: type) -> dict[str, str]:
    """The public attributes that a class declares, with their types."""
    return {name: str(shown) for name, shown in inspect.get_annotations(kind).items() if not name.startswith("_")}


def record_rows(kind: type) -> list[str]:
    """A row a field of a record, with the string below it in the source."""
    assert is_dataclass(kind), f"{kind} is no dataclass"
    texts = dict(_field_texts(kind))
    return [_row(f"{field.name}: {field.type}", texts.get(field.name, "")) for field in fields(kind)]


def op_rows() -> list[str]:
    """A row an op; a composite's reference takes the bound ops first, its kernel does not."""
    return [_row(op_signature(op), first_line(op.reference)) for op in OPS.values()]


def op_signature(op: Op) -> str:
    """What a kernel takes."""
    return signature(op.name, op.reference, skip=1 if op.composite else 0)


def page() -> str:
    """All lists."""
    parts = ["## Public names", *_table(public_rows()), "", "## Hooks", *_table(hooks())]
    for kind in CLASSES:
        parts += ["", f"## {kind.__name__}", "", first_line(kind), *_table(class_rows(kind))]
    for record in RECORDS:
        parts += ["", f"## {record.__name__}", "", first_line(record), *_table(record_rows(record))]
    return "\n".join([*parts, "", "## Ops", *_table(op_rows())])


def _table(rows: list[str]) -> list[str]:
    return ["", "| | |", "|---|---|", *rows]


def _row(shown: str, text: str, needed: bool = False) -> str:
    mark = "**" if needed else ""
    return f"| {mark}`{shown.replace('|', PIPE)}`{mark} | {text.replace('|', PIPE)} |"


def _field_texts(kind: type) -> Iterator[tuple[str, str]]:
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef), "this is the source of a class"
    for statement, below in zip(body.body, body.body[1:], strict=False):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())


if __name__ == "__main__":
    sys.exit(embed.run(NAME, {DOCUMENT: page()}))
