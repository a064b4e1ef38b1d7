"""Gated activations: the first half of the last axis passes the activation, the second half multiplies it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from anychip.ops.op import Case, Op, OpSpec
from anychip.ops.shapes import accumulation_dtype, token_matrices


def silu_mul(x: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up (Shazeer, 2020). [T, 2I] -> [T, I]."""
    gate, up = x.to(accumulation_dtype(x.dtype)).chunk(2, dim=-1)
    return (functional.silu(gate) * up).to(x.dtype)


def gelu_mul(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """gelu(gate) * up; `approximate` is "none" or "tanh". [T, 2I] -> [T, I]."""
    gate, up = x.to(accumulation_dtype(x.dtype)).chunk(2, dim=-1)
    return (functional.gelu(gate, approximate=approximate) * up).to(x.dtype)


def _silu_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    for label, x in token_matrices(generator, spec, 2 * (spec.intermediate_size or 4 * spec.hidden_size)):
        yield Case(label, (x,))


def _gelu_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    for case in _silu_cases(generator, spec):
        for approximate in ("none", "tanh"):
            yield Case(f"{case.label} {approximate}", (*case.arguments, approximate))


ACTIVATION_OPS = (Op("silu_mul", silu_mul, _silu_cases), Op("gelu_mul", gelu_mul, _gelu_cases))
