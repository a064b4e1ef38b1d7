"""Normalization and gated activations: one or two torch calls each."""

from __future__ import annotations

import torch
from torch.nn import functional


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See anychip.ops.norm.rms_norm."""
    return functional.rms_norm(x, weight.shape, weight, eps)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """See anychip.ops.norm.add_rms_norm."""
    total = x + residual
    return functional.rms_norm(total, weight.shape, weight, eps), total


def layer_norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """See anychip.ops.norm.layer_norm."""
    return functional.layer_norm(x if residual is None else x + residual, weight.shape, weight, bias, eps)


def silu_mul(x: torch.Tensor) -> torch.Tensor:
    """See anychip.ops.activation.silu_mul."""
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)


def gelu_mul(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """See anychip.ops.activation.gelu_mul."""
    gate, up = x.chunk(2, dim=-1)
    return functional.gelu(gate, approximate=approximate).mul_(up)
