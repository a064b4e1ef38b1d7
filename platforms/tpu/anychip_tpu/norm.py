"""Normalization by mean and variance in two passes: XLA's own takes the difference of two large sums."""

from __future__ import annotations

import torch

from anychip.ops.shapes import accumulation_dtype


def layer_norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """See anychip.ops.norm.layer_norm."""
    wide = x.to(accumulation_dtype(x.dtype))
    total = wide if residual is None else wide + residual.to(wide.dtype)
    centred = total - total.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return (centred * scale * weight.to(wide.dtype) + bias.to(wide.dtype)).to(x.dtype)
