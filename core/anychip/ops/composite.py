"""Composites: several ops that a chip may do in one. The reference is the decomposition, through the bound parts."""

from __future__ import annotations

from typing import Any

import torch

from anychip.ops.parts import Parts
from anychip.weights.weight import Weight

GELU = {"gelu": "none", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}
"""Names of GELU in checkpoints, and torch's `approximate` for each."""


def norm_linear(
    ops: Parts,
    x: torch.Tensor,
    residual: torch.Tensor | None,
    norm_weight: torch.Tensor,
    eps: float,
    weight: Weight,
    bias: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalize x (plus residual) and multiply. x [T, H], weight [N, H] -> (y [T, N], new residual [T, H])."""
    if residual is None:
        normed, residual = ops.rms_norm(x, norm_weight, eps), x
    else:
        normed, residual = ops.add_rms_norm(x, residual, norm_weight, eps)
    return ops.linear(normed, weight, bias), residual


def qk_norm_rope_kv_write(
    ops: Parts,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    eps: float,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    cache: Any,
    plan: Any,
) -> torch.Tensor:
    """Normalize each head (where given weights [D]), rotate, write k and v. q [T, N, D], k, v [T, M, D] -> q."""
    if q_norm is not None:
        q = ops.rms_norm(q, q_norm, eps)
    if k_norm is not None:
        k = ops.rms_norm(k, k_norm, eps)
    q, k = ops.rope(q, k, positions, cos_sin)
    ops.kv_write(k, v, cache, plan)
    return q


def gated_mlp(ops: Parts, x: torch.Tensor, gate_up: Weight, down: Weight, activation: str) -> torch.Tensor:
    """down(activation(gate x) * (up x)). x [T, H], gate_up [2I, H], down [H, I]; silu, or a GELU. -> [T, H]."""
    return ops.linear(gated(ops, ops.linear(x, gate_up, None), activation), down, None)


def gated(ops: Parts, x: torch.Tensor, activation: str) -> torch.Tensor:
    """activation(first half) * second half, for an activation's name. [T, 2I] -> [T, I]."""
    return ops.silu_mul(x) if activation == "silu" else ops.gelu_mul(x, GELU[activation])
