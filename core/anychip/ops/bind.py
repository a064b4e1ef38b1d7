"""Choosing an implementation for every op, once, at load."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from anychip.errors import UserError
from anychip.ops.op import Binding, Kernel, Op, OpSpec
from anychip.ops.parts import Ops, Parts
from anychip.ops.registry import OPS

NO_KERNEL = "no kernel"


def bind(kernels: Mapping[str, Kernel], spec: OpSpec, *, strict: bool = False, refused: Iterable[str] = ()) -> Ops:
    """Resolve each op to the coarsest implementation that accepts `spec`.

    A family is taken whole or not at all. `strict` refuses any plain op that falls back to its reference; `refused`
    names the ops whose reference must not run on this platform. Raises `UserError` for either, and for a kernel that
    is no op or has another signature.
    """
    for name, kernel in kernels.items():
        check_kernel(name, kernel)
    bindings = {name: _resolve(op, kernels, spec) for name, op in OPS.items()}
    _refuse(bindings.values(), strict, frozenset(refused))
    parts = {
        name: kernels[name].function if bindings[name].kind == "kernel" else op.reference
        for name, op in OPS.items()
        if not op.composite
    }
    plain = Parts(**parts)
    composites = {
        name: kernels[name].function if bindings[name].kind == "kernel" else partial(op.reference, plain)
        for name, op in OPS.items()
        if op.composite
    }
    return Ops(**parts, **composites, bindings=tuple(bindings.values()))


def describe(ops: Ops) -> str:
    """The start-up line: which plain ops run by their reference, and why; empty when none does."""
    reasons: dict[tuple[str, ...], list[str]] = {}
    for binding in ops.bindings:
        if binding.kind == "reference":
            reasons.setdefault(binding.reasons, []).append(binding.op)
    return "; ".join(f"reference for {', '.join(names)} ({', '.join(why)})" for why, names in reasons.items())


def check_kernel(name: str, kernel: Kernel) -> None:
    """Raise `UserError` unless `name` is an op and the kernel takes the same parameters as its reference."""
    op = OPS.get(name)
    if op is None:
        raise UserError(f"The platform brings a kernel for {name!r}, which is no op.", f"Ops are: {', '.join(OPS)}.")
    wanted = _parameters(op.reference)[1 if op.composite else 0 :]
    try:
        given = _parameters(kernel.function)
    except ValueError:
        raise UserError(
            f"The signature of the kernel for {name!r} cannot be read.", "Wrap it in a Python function."
        ) from None
    if given != wanted:
        raise UserError(
            f"The kernel for {name!r} takes ({_show(given)}), but the op is ({_show(wanted)}).",
            "Install a platform made for this version of anychip.",
        )


def _parameters(function: Callable[..., Any]) -> list[tuple[str, bool]]:
    """(name, whether it has a default) of each parameter; a keyword-only one never matches."""
    parameters = inspect.signature(function).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    return [
        (item.name if item.kind in positional else f"*{item.name}", item.default is not item.empty)
        for item in parameters
    ]


def _show(parameters: list[tuple[str, bool]]) -> str:
    return ", ".join(f"{name}=" if optional else name for name, optional in parameters)


def _resolve(op: Op, kernels: Mapping[str, Kernel], spec: OpSpec) -> Binding:
    reasons = _own_reasons(op.name, kernels, spec)
    if not reasons and op.family:
        reasons = _family_reasons(op.family, kernels, spec)
    if not reasons:
        return Binding(op.name, "kernel")
    if not op.used(spec):
        return Binding(op.name, "unused", tuple(reasons))
    return Binding(op.name, "decomposition" if op.composite or op.optional else "reference", tuple(reasons))


def _own_reasons(name: str, kernels: Mapping[str, Kernel], spec: OpSpec) -> list[str]:
    return kernels[name].unsupported(spec) if name in kernels else [NO_KERNEL]


def _family_reasons(family: str, kernels: Mapping[str, Kernel], spec: OpSpec) -> list[str]:
    """Why the family's plain ops cannot all come from `kernels`."""
    members = [op.name for op in OPS.values() if op.family == family and not op.composite]
    return [f"{name}: {reason}" for name in members for reason in _own_reasons(name, kernels, spec)]


def _refuse(bindings: Iterable[Binding], strict: bool, refused: frozenset[str]) -> None:
    fallen = [binding for binding in bindings if binding.kind == "reference"]
    if banned := [binding for binding in fallen if binding.op in refused]:
        raise UserError(
            f"This platform has no usable kernel for {_because(banned)}, and the reference is uselessly slow here.",
            "Choose another model or dtype, or another device.",
        )
    if strict and fallen:
        raise UserError(
            f"Strict kernels: {_because(fallen)} would fall back to the reference.",
            "Leave out --strict-kernels to run slower.",
        )


def _because(bindings: list[Binding]) -> str:
    return ", ".join(f"{binding.op} ({', '.join(binding.reasons)})" for binding in bindings)
