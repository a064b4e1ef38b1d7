"""Which ops a platform has kernels for: the table of the docs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from anychip.ops.bind import bind
from anychip.ops.op import Binding
from anychip.ops.registry import OPS
from anychip.ops.specs import case_specs
from anychip.testing.subject import Subject

if TYPE_CHECKING:
    from anychip.runner.platform import TorchPlatform

OWN = "own runner"
UNTESTED = "Untested"


def support(subject: Subject) -> dict[str, str]:
    """By op: `Yes`, `Reference`, `By parts` (of other ops, or torch's operators), or `No (reason)`."""
    platform = subject.torch_platform
    if platform is None:
        return dict.fromkeys(OPS, OWN)
    bound = _bindings(platform)
    return {name: _cell(name, bound[name], name in _listed(platform)) for name in OPS}


def markdown(columns: Mapping[str, Mapping[str, str]]) -> str:
    """A table with a row an op and a column a platform."""
    lines = [_line("op", columns), _line("---", dict.fromkeys(columns, "---").values())]
    for name in OPS:
        lines.append(_line(f"`{name}`", (column.get(name, UNTESTED) for column in columns.values())))
    return "\n".join(lines)


def _line(first: str, cells: Iterable[str]) -> str:
    return f"| {' | '.join([first, *cells])} |"


def _listed(platform: TorchPlatform) -> set[str]:
    return {
        name for dtype in platform.capabilities.dtypes for spec in case_specs(dtype) for name in platform.kernels(spec)
    }


def _bindings(platform: TorchPlatform) -> dict[str, list[Binding]]:
    found: dict[str, list[Binding]] = {name: [] for name in OPS}
    for dtype in platform.capabilities.dtypes:
        for spec in case_specs(dtype):
            for binding in bind(platform.kernels(spec), spec).bindings:
                if binding.kind != "unused":
                    found[binding.op].append(binding)
    return found


def _cell(name: str, bindings: list[Binding], listed: bool) -> str:
    if all(binding.kind == "kernel" for binding in bindings):
        return "Yes"
    if not listed:
        return "By parts" if OPS[name].composite or OPS[name].optional else "Reference"
    reasons = "; ".join(dict.fromkeys(reason for binding in bindings for reason in binding.reasons))
    partly = any(binding.kind == "kernel" for binding in bindings)
    return f"Yes, not where {reasons}" if partly else f"No ({reasons})"
