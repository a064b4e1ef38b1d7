"""Attention through the native kernels. Their index work is done where it is needed: a plan only names the arrays."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.ops.attention import AttentionInputs
from anychip.ops.op import OpSpec
from anychip.plugin.contract import KVSpec
from anychip_cpu.native.cache import PackedCache
from anychip_cpu.native.library import Library

MAX_GROUP = 48
"""Query heads of one cached head that a task holds."""
MAX_BLOCK = 128
"""Tokens of a block that a step of the kernel holds."""


@dataclass(frozen=True, slots=True)
class NativePlan:
    """Where the tokens of a step lie; `window` 0 means all that came before."""

    positions: torch.Tensor
    query_start: torch.Tensor
    table: torch.Tensor
    window: int


def plan_attention(inputs: AttentionInputs, spec: KVSpec, block_size: int) -> NativePlan:
    """See anychip.ops.attention.plan_attention."""
    return NativePlan(inputs.positions, inputs.query_start, inputs.block_table.contiguous(), spec.window or 0)


def unsupported(spec: OpSpec, library: Library) -> list[str]:
    """Why the kernels cannot serve a model's attention."""
    reasons = []
    if spec.kv_dtype not in ("", "int8") or spec.dtype not in ("float32", "bfloat16"):
        reasons.append(f"cache of {spec.kv_dtype or spec.dtype}")
    if spec.block_size % library.variant.lanes or spec.block_size > MAX_BLOCK:
        reasons.append(f"blocks of {spec.block_size}")
    if spec.head_dim % 16:
        reasons.append(f"heads of {spec.head_dim}")
    if spec.num_heads > MAX_GROUP * spec.num_kv_heads:
        reasons.append(f"{spec.num_heads // spec.num_kv_heads} heads on one cached head")
    return reasons


class NativeAttention:
    """The family's ops that call the library."""

    def __init__(self, library: Library) -> None:
        self._write = library.ops.kv_write.default
        self._rotate = library.ops.rotate_and_write.default
        self._attend = library.ops.paged_attention.default

    def kv_write(self, k: torch.Tensor, v: torch.Tensor, cache: PackedCache, plan: NativePlan) -> None:
        """See anychip.ops.attention.kv_write."""
        self._write(k, v, cache.k, cache.v, plan.positions, plan.query_start, plan.table)

    def qk_norm_rope_kv_write(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
        eps: float,
        positions: torch.Tensor,
        cos_sin: torch.Tensor,
        cache: PackedCache,
        plan: NativePlan,
    ) -> torch.Tensor:
        """See anychip.ops.composite.qk_norm_rope_kv_write."""
        turned: torch.Tensor = self._rotate(
            q, k, v, q_norm, k_norm, eps, positions, cos_sin, cache.k, cache.v, plan.query_start, plan.table
        )
        return turned

    def paged_attention(
        self,
        q: torch.Tensor,
        cache: PackedCache,
        plan: NativePlan,
        scale: float,
        softcap: float = 0.0,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See anychip.ops.attention.paged_attention."""
        attended: torch.Tensor = self._attend(
            q, cache.k, cache.v, plan.positions, plan.query_start, plan.table, plan.window, scale, softcap, sinks
        )
        return attended
