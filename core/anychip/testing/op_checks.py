"""Level 1: every op as the platform binds it, against the reference in float32 on the host.

An op without a kernel runs by its reference on the device, and is held to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from anychip.ops.attention_cases import AttentionCase, attention_cases
from anychip.ops.bind import bind
from anychip.ops.op import Binding, Case, NumericClass, Op, OpSpec
from anychip.ops.parts import Ops
from anychip.ops.registry import OPS
from anychip.ops.shapes import dtype_of
from anychip.ops.specs import case_specs
from anychip.plugin.contract import Capabilities
from anychip.testing.check import Check, CheckFailedError, NotApplicableError, Part
from anychip.testing.compare import Guarded, difference, moved, wide
from anychip.testing.subject import Subject
from anychip.weights.weight import Weight

if TYPE_CHECKING:
    from anychip.runner.platform import TorchPlatform

SEED = 11
AttentionCases = Callable[[torch.Generator, OpSpec], Iterator[AttentionCase]]
ROW_WISE = (
    "rms_norm", "add_rms_norm", "layer_norm", "silu_mul", "gelu_mul", "linear", "norm_linear", "gated_mlp", "greedy",
    "gather_logprobs",
)  # fmt: skip
"""Ops whose rows do not touch: what is not a number in one stays there, and stays visible."""
WITH_WEIGHTS = ("linear", "experts", "norm_linear", "gated_mlp")


@dataclass(frozen=True, slots=True)
class Bound:
    """The ops of one spec, as a platform binds them, and the references they are held to."""

    platform: TorchPlatform
    spec: OpSpec
    ops: Ops
    references: Ops

    def tolerance(self, op: Op, numeric: NumericClass = "native") -> float:
        """Of one op in the spec's dtype."""
        return op.tolerance[numeric, self.spec.dtype]

    @property
    def dtype(self) -> torch.dtype:
        """The spec's dtype."""
        return dtype_of(self.spec.dtype)


def tried_specs(capabilities: Capabilities, name: str = "") -> Iterator[OpSpec]:
    """Each dtype and shape of the kit.

    For an op that multiplies by weights, each quantized format of the platform as well, and for attention each further
    type of cache.
    """
    formats = capabilities.weight_formats if name in WITH_WEIGHTS else ()
    caches = capabilities.kv_cache_dtypes if name in OPS and OPS[name].family == "attention" else ()
    for dtype in capabilities.dtypes:
        shapes = case_specs(dtype)
        yield from shapes
        yield from (replace(shapes[0], weight_formats=(each,)) for each in formats)
        yield from (replace(shape, kv_dtype=each) for each in caches for shape in shapes)


@dataclass(frozen=True, slots=True)
class Tried:
    """An op in one dtype and shape."""

    binding: Binding
    cases: int


def check_op(name: str, subject: Subject) -> str:
    """Try an op in every dtype and shape; how it was bound, or CheckFailedError listing what is wrong."""
    return summary([part.run(subject) for part in _parts(name, subject)])


def _parts(name: str, subject: Subject) -> tuple[Part, ...]:
    platform = subject.torch_platform
    if platform is None:
        raise NotApplicableError("the platform brings its own runner; its ops are its own")
    specs = tried_specs(platform.capabilities, name)
    return tuple(Part(_home(OPS[name], spec), partial(_try_spec, name, spec)) for spec in specs)


def _home(op: Op, spec: OpSpec) -> str:
    """With ops that are likely to be computed by the same programs: of one model shape, or in one dtype."""
    if op.family or op.name in WITH_WEIGHTS:
        return f"{op.family or 'weights'} {words(spec)}"
    return f"rows {spec.dtype}"


def words(spec: OpSpec) -> str:
    """A spec for people."""
    formats = "".join(f", {each}" for each in (*spec.weight_formats, spec.kv_dtype) if each)
    return f"{spec.dtype}{formats}, {spec.num_heads}/{spec.num_kv_heads} heads of {spec.head_dim}"


def _try_spec(name: str, spec: OpSpec, subject: Subject) -> Tried:
    platform = subject.torch_platform
    assert platform is not None, "asked before"
    return try_op(OPS[name], platform, spec, attention_cases)


def computed(name: str, platform: TorchPlatform, spec: OpSpec) -> bool:
    """Whether an op runs by a kernel of the platform."""
    kernel = platform.kernels(spec).get(name)
    return kernel is not None and not kernel.unsupported(spec)


def try_op(op: Op, platform: TorchPlatform, spec: OpSpec, cases: AttentionCases) -> Tried:
    """Try an op in one dtype and shape, one of attention on `cases`. Raises CheckFailedError."""
    kernels = platform.kernels(spec)
    bound = Bound(platform, spec, bind(kernels, spec), bind({}, replace(spec, dtype="float32")))
    binding = next(each for each in bound.ops.bindings if each.op == op.name)
    numeric: NumericClass = kernels[op.name].numeric if binding.kind == "kernel" else "native"
    # Whoever computes, what differs a little may round to codes that differ by one.
    tolerance = bound.tolerance(op, "coded-cache" if spec.kv_dtype else numeric)
    tried = list(_tried(op, bound, tolerance, cases))
    problems = [f"{op.name} {words(spec)}, case {label!r}: {problem}" for label, problem in tried if problem]
    if problems:
        raise CheckFailedError(*problems)
    return Tried(binding, len(tried))


def _tried(op: Op, bound: Bound, tolerance: float, cases: AttentionCases) -> Iterator[tuple[str, str]]:
    """(label, problem) of each case; a kernel that raises is a problem of its case."""
    from anychip.testing.attention_ops import attention_trials  # needs this module's types

    with torch.inference_mode():
        attends = op.family == "attention"
        trials = attention_trials(op, bound, tolerance, cases) if attends else _trials(op, bound, tolerance)
        for label, trial in trials:
            try:
                yield label, trial()
            except Exception as error:  # noqa: BLE001 (reported as the case's failure)
                yield label, f"raised {type(error).__name__}: {error}"


def _trials(op: Op, bound: Bound, tolerance: float) -> Iterator[tuple[str, Callable[[], str]]]:
    generator = torch.Generator().manual_seed(SEED)
    for case in op.generate(generator, bound.spec):
        yield case.label, partial(_try_case, op, bound, tolerance, case)
        first = case.arguments[0]
        if op.name in ROW_WISE and isinstance(first, torch.Tensor) and first.is_floating_point() and len(first) > 1:
            for value in (float("nan"), float("inf")):
                yield f"{case.label}, one row {value}", partial(_try_broken_row, op, bound, case, value)


def _try_case(op: Op, bound: Bound, tolerance: float, case: Case) -> str:
    device = bound.platform.device
    guards = [Guarded(value, device) if isinstance(value, torch.Tensor) else None for value in case.arguments]
    arguments = [
        _on_device(value, bound.platform) if guard is None else guard.tensor
        for value, guard in zip(case.arguments, guards, strict=True)
    ]
    widened = [value.clone() if isinstance(value, torch.Tensor) else value for value in map(wide, case.arguments)]
    result = getattr(bound.ops, op.name)(*arguments)
    bound.platform.synchronize()
    reference = getattr(bound.references, op.name)(*widened)
    if result is None:  # what counts is what it wrote
        result, reference = (tuple(given[place] for place in case.writes) for given in (arguments, widened))
    problem = difference(result, reference, bound.dtype, tolerance)
    problems = [guard.problem() for index, guard in enumerate(guards) if guard and index not in case.writes]
    return problem or next(filter(None, problems), "")


def _try_broken_row(op: Op, bound: Bound, case: Case, value: float) -> str:
    """A row that holds `value`: the other rows as before, and this one as the reference has it."""
    spoiled = case.arguments[0].clone()
    spoiled[-1, ..., 0] = value
    result, clean = (
        getattr(bound.ops, op.name)(
            _on_device(first, bound.platform), *(_on_device(each, bound.platform) for each in case.arguments[1:])
        )
        for first in (spoiled, case.arguments[0])
    )
    reference = getattr(bound.references, op.name)(*map(wide, (spoiled, *case.arguments[1:])))
    for out, before, right in zip(*map(_as_tuple, (result, clean, reference)), strict=True):
        if not torch.equal(out[:-1].cpu(), before[:-1].cpu()):
            return f"a row that holds {value} changed other rows"
        if right.is_floating_point() and not torch.equal(out[-1].cpu().isfinite(), right[-1].isfinite()):
            return f"a row that holds {value} does not show it where the reference does"
    return ""


def _on_device(value: Any, platform: TorchPlatform) -> Any:
    there = moved(value, platform.device)
    return platform.prepare_weight(there) if isinstance(there, Weight) else there


def _as_tuple(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def summary(tried: Sequence[Tried]) -> str:
    """How an op was bound over all specs."""
    kinds = {each.binding.kind for each in tried}
    reasons = dict.fromkeys(reason for each in tried for reason in each.binding.reasons)
    listed = f" ({'; '.join(reasons)})" if reasons else ""
    return f"{' and '.join(sorted(kinds))}{listed}; {sum(each.cases for each in tried)} cases"


OP_CHECKS = tuple(Check(1, name, partial(_parts, name), summary) for name in OPS)
