"""Level 2: steps so large that a platform may attend in another way, in each of the ways among which it chooses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from anychip.ops.attention_cases import large_cases
from anychip.ops.op import OpSpec
from anychip.ops.registry import OPS
from anychip.ops.specs import large_specs
from anychip.testing.check import Check, CheckFailedError, NotApplicableError, Part
from anychip.testing.op_checks import computed, try_op, words
from anychip.testing.subject import Subject

if TYPE_CHECKING:
    from anychip.runner.platform import TorchPlatform

ATTENTION = "paged_attention"
AS_CHOSEN = ""
"""The name of the only way, where a platform has nothing to choose."""


@dataclass(frozen=True, slots=True)
class _Tried:
    way: str
    cases: int


def ways(platform: TorchPlatform, spec: OpSpec) -> dict[str, TorchPlatform]:
    """All that a platform may choose for a model, by name."""
    return dict(platform.choices(spec)) or {AS_CHOSEN: platform}


def _parts(subject: Subject) -> tuple[Part, ...]:
    platform = subject.torch_platform
    if platform is None:
        raise NotApplicableError("the platform brings its own runner; its ops are its own")
    return tuple(
        Part(f"large {words(spec)}, blocks of {spec.block_size}", partial(_try, name, spec, way))
        for name, spec in _specs(platform)
        for way in ways(platform, spec)
    )


def _specs(platform: TorchPlatform) -> Iterator[tuple[str, OpSpec]]:
    """By which op: that keys and values are written by one or by the other is tried on one half each."""
    offers = platform.capabilities
    for dtype in offers.dtypes:
        many, few = large_specs(dtype, offers.block_sizes, offers.kv_cache_dtypes)
        yield from ((ATTENTION, spec) for spec in many)
        yield from (("qk_norm_rope_kv_write", spec) for spec in few)


def _try(name: str, spec: OpSpec, way: str, subject: Subject) -> _Tried:
    platform = subject.torch_platform
    assert platform is not None, "asked before"
    fixed = ways(platform, spec)[way]
    if not computed(ATTENTION, fixed, spec):
        return _Tried(way, 0)
    try:
        tried = try_op(OPS[name], fixed, spec, large_cases)
    except CheckFailedError as error:
        prefix = f"{way}, blocks of {spec.block_size}: ".removeprefix(", ")
        raise CheckFailedError(*(prefix + str(problem) for problem in error.args)) from None
    return _Tried(way, tried.cases)


def _summary(tried: Sequence[_Tried]) -> str:
    if not any(each.cases for each in tried):
        return "attention runs by its reference, in one way"
    named = dict.fromkeys(each.way for each in tried if each.way != AS_CHOSEN)
    return "; ".join((*named, f"{sum(each.cases for each in tried)} cases"))


LARGE_CHECKS = (Check(2, "large steps against the reference", _parts, _summary),)
