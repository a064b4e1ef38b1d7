"""Each op's reference: its cases run, in float32 they equal float64, and arguments are left alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch

from anychip.ops.bind import bind
from anychip.ops.op import TOLERANCE, OpSpec
from anychip.ops.registry import OPS
from anychip.ops.specs import case_specs

PLAIN_DATA = ("new_cache", "plan_attention")
"""Ops whose results are whatever their provider likes."""

SAMPLING = ("greedy", "sample")


def converted(value: Any, dtype: torch.dtype) -> Any:
    """A copy of an argument in which every floating tensor has `dtype`."""
    if isinstance(value, torch.Tensor):
        copy = value.clone()
        return copy.to(dtype) if value.is_floating_point() else copy
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{item.name: converted(getattr(value, item.name), dtype) for item in fields(value)})
    return value


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Every floating tensor in a result or an argument."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            yield from tensors(getattr(value, item.name))


def results(name: str, spec: OpSpec, arguments: tuple[Any, ...], writes: tuple[int, ...]) -> list[torch.Tensor]:
    """What a call gives back and writes."""
    output = getattr(bind({}, spec), name)(*arguments)
    return [*tensors(output), *(tensor for index in writes for tensor in tensors(arguments[index]))]


def distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """norm(found - wanted) / norm(wanted), NaN and infinities in the same places."""
    assert found.shape == wanted.shape
    finite = wanted.isfinite()
    assert torch.equal(found[~finite].double().nan_to_num(), wanted[~finite].double().nan_to_num())
    norm = float(wanted[finite].double().norm())
    return float((found.double() - wanted.double())[finite].norm()) / (norm or 1.0)


@pytest.mark.parametrize("spec", case_specs("float32"), ids=lambda spec: f"{spec.num_heads}:{spec.num_kv_heads}")
@pytest.mark.parametrize("name", [name for name in OPS if name not in (*PLAIN_DATA, *SAMPLING)])
def test_float32_equals_float64(name: str, spec: OpSpec) -> None:
    """The references' own rounding stays within the tolerance that kernels are given."""
    count = 0
    for case in OPS[name].generate(torch.Generator().manual_seed(1), spec):
        single = results(name, spec, converted_all(case.arguments, torch.float32), case.writes)
        double = results(name, spec, converted_all(case.arguments, torch.float64), case.writes)
        for found, wanted in zip(single, double, strict=True):
            assert wanted.dtype == torch.float64
            assert distance(found, wanted) <= TOLERANCE["native", "float32"], case.label
        count += 1
    assert count >= 3


def converted_all(arguments: tuple[Any, ...], dtype: torch.dtype) -> tuple[Any, ...]:
    return tuple(converted(value, dtype) for value in arguments)


@pytest.mark.parametrize("name", [name for name in OPS if name not in PLAIN_DATA])
def test_only_what_a_case_names_is_written(name: str) -> None:
    spec = case_specs("bfloat16")[2]
    for case in OPS[name].generate(torch.Generator().manual_seed(2), spec):
        before = converted_keep(case.arguments)
        getattr(bind({}, spec), name)(*case.arguments)
        for index, (old, new) in enumerate(zip(before, case.arguments, strict=True)):
            if index not in case.writes:
                for left, right in zip(tensors(old), tensors(new), strict=True):
                    assert torch.equal(left.nan_to_num(), right.nan_to_num()), f"{case.label}: argument {index}"


def converted_keep(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        value.clone() if isinstance(value, torch.Tensor) else converted(value, torch.bfloat16) for value in arguments
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_low_precision_stays_within_tolerance(dtype: str) -> None:
    """A reference in a short type against itself in float32 on the same rounded inputs."""
    spec = case_specs(dtype)[1]
    for name in ("rms_norm", "add_rms_norm", "silu_mul", "gelu_mul", "rope", "linear", "paged_attention"):
        for case in OPS[name].generate(torch.Generator().manual_seed(3), spec):
            found = results(name, spec, case.arguments, ())
            wanted = results(name, spec, converted_all(case.arguments, torch.float32), ())
            for left, right in zip(found, wanted, strict=True):
                assert left.dtype == getattr(torch, dtype)
                assert distance(left, right) <= TOLERANCE["native", dtype], f"{name} {case.label}"


def test_generators_depend_on_their_seed_only() -> None:
    spec = case_specs("float32")[0]
    first, second = (list(OPS["paged_attention"].generate(torch.Generator().manual_seed(4), spec)) for _ in range(2))
    assert [case.label for case in first] == [case.label for case in second]
    assert torch.equal(first[0].arguments[0], second[0].arguments[0])
