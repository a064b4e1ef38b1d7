"""Tensors for op cases: seeded, in the model's dtype, and non-contiguous where an op must take that."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from anychip.ops.op import OpSpec

TOKEN_COUNTS = (1, 3, 17)
"""Token counts every row-wise op is tried on: one, a few, and one that no tile divides."""


def dtype_of(name: str) -> torch.dtype:
    """The torch type of a name such as "bfloat16"."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype), f"{name} is no torch type"
    return dtype


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which references compute: float32, or float64 when given that."""
    return torch.promote_types(dtype, torch.float32)


def normal(generator: torch.Generator, *shape: int, dtype: str, scale: float = 1.0) -> torch.Tensor:
    """Normally distributed values of `shape`."""
    return (torch.randn(shape, generator=generator) * scale).to(dtype_of(dtype))


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as a view into a wider last axis, as a slice of a fused projection is."""
    wide = torch.cat([tensor, torch.full_like(tensor, float("nan"))], dim=-1)
    return wide[..., : tensor.shape[-1]]


def token_matrices(generator: torch.Generator, spec: OpSpec, width: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Labelled [T, width] inputs of every token count, the last one non-contiguous too."""
    for tokens in TOKEN_COUNTS:
        yield f"{tokens}x{width}", normal(generator, tokens, width, dtype=spec.dtype)
    yield f"strided {width}", strided(normal(generator, TOKEN_COUNTS[-1], width, dtype=spec.dtype))
