"""Rotary embedding as two products: x * cosines + swapped halves of x * signed sines."""

from __future__ import annotations

import torch


def rope(
    q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """See anychip.ops.rope.rope."""
    cosines, sines = rotation(positions, cos_sin)
    return rotate(q, cosines, sines).to(q.dtype), rotate(k, cosines, sines).to(k.dtype)


def rotation(positions: torch.Tensor, cos_sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(cos, cos) and (-sin, sin), both [T, 1, rot] float32, of the tokens at `positions` [T]."""
    cosines, sines = cos_sin.index_select(0, positions).unsqueeze(1).chunk(2, dim=-1)
    return torch.cat([cosines, cosines], dim=-1), torch.cat([-sines, sines], dim=-1)


def rotate(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """x [T, N, D] turned, in float32; elements beyond the rotary ones stay."""
    rotary = cosines.shape[-1]
    if rotary < x.shape[-1]:
        return torch.cat([rotate(x[..., :rotary], cosines, sines), x[..., rotary:].float()], dim=-1)
    wide = x.float()
    return torch.mul(wide, cosines).addcmul_(wide.roll(rotary // 2, -1), sines)
