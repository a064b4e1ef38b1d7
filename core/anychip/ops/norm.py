"""Normalization: by root mean square (Zhang and Sennrich, 2019), and by mean and variance (Ba et al., 2016)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from anychip.ops.op import Case, Op, OpSpec
from anychip.ops.shapes import accumulation_dtype, normal, token_matrices

EPSILON = 1e-5


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis. [.., H], [H] -> [.., H]; rounded once, at the end."""
    wide = x.to(accumulation_dtype(x.dtype))
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.to(wide.dtype)).to(x.dtype)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalize the unrounded sum. [T, H], [T, H], [H] -> (normed [T, H], new residual [T, H])."""
    wide = x.to(accumulation_dtype(x.dtype)) + residual.to(accumulation_dtype(x.dtype))
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.to(wide.dtype)).to(x.dtype), wide.to(x.dtype)


def layer_norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """(y - mean(y)) / sqrt(var(y) + eps) * weight + bias, y = x + residual. [T, H], [T, H] or None, [H], [H] -> [T, H].

    The sum is not rounded before it is normalized.
    """
    wide = x.to(accumulation_dtype(x.dtype))
    total = wide if residual is None else wide + residual.to(wide.dtype)
    return functional.layer_norm(total, weight.shape, weight.to(wide.dtype), bias.to(wide.dtype), eps).to(x.dtype)


def _norm_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    for width in {spec.hidden_size: None, spec.head_dim: None}:
        weight = normal(generator, width, dtype=spec.dtype)
        for label, x in token_matrices(generator, spec, width):
            yield Case(label, (x, weight, EPSILON))
    x = normal(generator, 5, spec.num_heads, spec.head_dim, dtype=spec.dtype)
    yield Case("heads", (x, normal(generator, spec.head_dim, dtype=spec.dtype), EPSILON))
    yield Case("zeros", (torch.zeros_like(x), normal(generator, spec.head_dim, dtype=spec.dtype), EPSILON))


def _add_norm_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    weight = normal(generator, spec.hidden_size, dtype=spec.dtype)
    for label, x in token_matrices(generator, spec, spec.hidden_size):
        residual = normal(generator, *x.shape, dtype=spec.dtype, scale=8.0)
        yield Case(label, (x, residual, weight, EPSILON))


def _layer_norm_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    weight, bias = normal(generator, 2, spec.hidden_size, dtype=spec.dtype).unbind()
    for label, x in token_matrices(generator, spec, spec.hidden_size):
        residual = normal(generator, *x.shape, dtype=spec.dtype, scale=8.0)
        yield Case(label, (x, residual, weight, bias, EPSILON))
        yield Case(f"{label}, no residual", (x, None, weight, bias, EPSILON))
    shifted = normal(generator, 5, spec.hidden_size, dtype=spec.dtype) + 30.0
    yield Case("far from zero", (shifted, None, weight, bias, EPSILON))


NORM_OPS = (
    Op("rms_norm", rms_norm, _norm_cases),
    Op("add_rms_norm", add_rms_norm, _add_norm_cases),
    Op("layer_norm", layer_norm, _layer_norm_cases, used=lambda spec: spec.encoder),
)
