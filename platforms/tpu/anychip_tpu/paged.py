"""The attention family on pages that our Pallas kernel reads.

One layer's cache, heads first because a page of all heads is one copy, each head filled up to whole vector registers:

    k [kv_heads, num_blocks, block_size, padded head_dim]      v likewise
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import torch
from torch.nn import functional

from anychip.errors import UserError
from anychip.ops.op import Kernel, OpSpec
from anychip.ops.shapes import dtype_of
from anychip.ops.static_attention import StaticPlan, static_plan
from anychip.plugin.contract import KVSpec
from anychip_tpu.pallas.attention import padded_head_size, ragged_paged_attention
from anychip_tpu.runtime import Runtime

ROWS = 16
"""A block holds a multiple of so many tokens."""


@dataclass(frozen=True, slots=True)
class PagedCache:
    """One layer's keys and values."""

    k: torch.Tensor
    v: torch.Tensor


def unsupported(spec: OpSpec) -> list[str]:
    """Why the kernel cannot serve a model."""
    reasons = {
        "no 8-bit caches": bool(spec.kv_dtype),
        "no attention sinks": spec.sinks,
        f"blocks of {spec.block_size} tokens": spec.block_size % ROWS > 0,
    }
    return [reason for reason, holds in reasons.items() if holds]


@dataclass(frozen=True, slots=True)
class PallasAttention:
    """The ops of the family. `interpret` runs the kernel without a TPU, for tests."""

    runtime: Runtime
    interpret: bool
    functions: dict[tuple[float, int | None, float], Callable[..., Any]] = field(default_factory=dict)
    """By scale, window and soft cap: the kernel as a function of arrays alone."""

    def kernels(self) -> Mapping[str, Kernel]:
        """By op name."""
        functions: dict[str, Callable[..., Any]] = {
            "new_cache": new_cache,
            "copy_blocks": copy_blocks,
            "plan_attention": static_plan,
            "kv_write": kv_write,
            "paged_attention": self.paged_attention,
        }
        return {name: Kernel(function, unsupported) for name, function in functions.items()}

    def paged_attention(
        self,
        q: torch.Tensor,
        cache: PagedCache,
        plan: StaticPlan,
        scale: float,
        softcap: float = 0.0,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See anychip.ops.attention.paged_attention."""
        assert sinks is None, "a model with sinks was let pass"
        form, inputs = (scale, plan.window, softcap), plan.inputs
        if form not in self.functions:
            self.functions[form] = attention_of(*form, self.interpret)
        arrays = cache.k, cache.v, inputs.block_table, inputs.query_start, inputs.seq_lens
        return self.runtime.call_jax(self.functions[form], q, *arrays)


def attention_of(scale: float, window: int | None, softcap: float, interpret: bool) -> Callable[..., Any]:
    """The kernel with all that is no array filled in."""

    def attention(
        q: jax.Array, k: jax.Array, v: jax.Array, tables: jax.Array, starts: jax.Array, lengths: jax.Array
    ) -> jax.Array:
        cap = softcap or None
        attended: jax.Array = ragged_paged_attention(
            q, k, v, tables, starts, lengths, scale=scale, window=window, soft_cap=cap, interpret=interpret
        )
        return attended

    return attention


def new_cache(spec: KVSpec, num_blocks: int, block_size: int, device: torch.device | str) -> PagedCache:
    """See anychip.ops.attention.new_cache. What fills up a head is read, and so has to be numbers."""
    planes = {plane.name: plane for plane in spec.planes}
    if set(planes) != {"k", "v"} or planes["k"].shape != planes["v"].shape:
        raise UserError(f"The TPU's attention keeps keys and values of one size, not {', '.join(planes)}.")
    plane = planes["k"]
    shape = plane.shape[0], num_blocks, block_size, padded_head_size(plane.shape[1])
    return PagedCache(*(torch.zeros(shape, dtype=dtype_of(plane.dtype), device=device) for _ in range(2)))


def copy_blocks(cache: PagedCache, source: torch.Tensor, target: torch.Tensor) -> None:
    """See anychip.ops.attention.copy_blocks."""
    for plane in (cache.k, cache.v):
        plane.index_copy_(1, target, plane.index_select(1, source))


def kv_write(k: torch.Tensor, v: torch.Tensor, cache: PagedCache, plan: StaticPlan) -> None:
    """See anychip.ops.attention.kv_write."""
    for values, plane in ((k, cache.k), (v, cache.v)):
        filled = functional.pad(values.to(plane.dtype), (0, plane.shape[3] - values.shape[2]))
        plane[:, plan.blocks, plan.entries] = filled.transpose(0, 1)
