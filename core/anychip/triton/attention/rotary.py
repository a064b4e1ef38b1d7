"""Launching what lies between the projections and attention: normalizing heads, rotary embedding, the cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.triton.attention.cache import PagedCache
from anychip.triton.attention.plan import PagedPlan
from anychip.triton.chip import Chip
from anychip.triton.coding import coding
from anychip.triton.powers import padded
from anychip.triton.programs.rotary import prepare_heads, read_heads, write_heads
from anychip.triton.rows import unit_stride

FEW_TOKENS = 64
"""Most tokens of which each has a program of its own, so that there are enough programs."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The ops on heads on one chip. T tokens, N query heads, M key heads, D head size."""

    chip: Chip
    query_overread: int = 0
    """Rows of memory allocated behind the rotated queries, as somebody reads them, whatever they hold."""

    def kv_write(self, k: torch.Tensor, v: torch.Tensor, cache: PagedCache, plan: PagedPlan) -> None:
        """See anychip.ops.attention.kv_write."""
        k, v = unit_stride(k), unit_stride(v)
        tokens, heads, dim = k.shape
        blocks = self._blocks(tokens)
        write_heads[(-(-tokens // blocks["TOKENS"]), heads)](
            k, v, plan.slots, cache.k, cache.v, cache.k_scale, cache.v_scale, tokens, k.stride(0), k.stride(1),
            v.stride(0), v.stride(1), M=heads, D=dim, PAGE=plan.block_size, BLOCK_D=padded(dim), **coding(cache.codes),
            **blocks, **self.chip.order,
        )  # fmt: skip

    def read(
        self, cache: PagedCache, slots: torch.Tensor, room: int, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values out of a cache, [room, M, D] each in `dtype`, zeros behind the last slot's.

        `slots` [K] int64, K <= room. Values are finite: where one is not, it is read as 0 and
        its key as NaN.
        """
        _, heads, page, dim = cache.k.shape
        k, v = (torch.empty(room, heads, dim, dtype=dtype, device=cache.k.device) for _ in range(2))
        blocks = self._blocks(room)
        read_heads[(-(-room // blocks["TOKENS"]), heads)](
            cache.k, cache.v, cache.k_scale, cache.v_scale, slots, k, v, len(slots), room, M=heads, D=dim, PAGE=page,
            CODED=not cache.whole, BLOCK_D=padded(dim), **blocks, **self.chip.order,
        )  # fmt: skip
        return k, v

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
        cache: PagedCache,
        plan: PagedPlan,
    ) -> torch.Tensor:
        """See anychip.ops.composite.qk_norm_rope_kv_write."""
        return self.prepare(q, k, v, q_norm, k_norm, eps, positions, cos_sin, cache, plan, None)

    def prepare(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
        eps: float,
        positions: torch.Tensor,
        cos_sin: torch.Tensor,
        cache: PagedCache,
        plan: PagedPlan,
        k_beside: torch.Tensor | None,
    ) -> torch.Tensor:
        """As `qk_norm_rope_kv_write`; rotated keys also go to `k_beside` [T, M, D], contiguous, if it is given."""
        q, k, v = unit_stride(q), unit_stride(k), unit_stride(v)
        tokens, heads, dim = q.shape
        out = torch.empty(tokens + self.query_overread, heads, dim, dtype=q.dtype, device=q.device)[:tokens]
        blocks, kv_heads = self._blocks(tokens), k.shape[1]
        prepare_heads[(-(-tokens // blocks["TOKENS"]), heads + 2 * kv_heads)](
            q, k, v, q_norm, k_norm, positions, cos_sin, plan.slots, out, cache.k, cache.v, cache.k_scale,
            cache.v_scale, k_beside, eps, tokens, q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0),
            v.stride(1), N=heads, M=kv_heads, D=dim, ROTARY=cos_sin.shape[1], NORM_Q=q_norm is not None,
            NORM_K=k_norm is not None, PAGED=True, PAGE=plan.block_size, BESIDE=k_beside is not None,
            BLOCK_D=padded(dim), **coding(cache.codes), **blocks, **self.chip.order,
        )  # fmt: skip
        return out

    def rope(
        self, q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See anychip.ops.rope.rope."""
        q, k = unit_stride(q), unit_stride(k)
        tokens, heads, dim = q.shape
        q_out, k_out, blocks, kv_heads = _empty(q), _empty(k), self._blocks(tokens), k.shape[1]
        prepare_heads[(-(-tokens // blocks["TOKENS"]), heads + kv_heads)](
            q, k, k, None, None, positions, cos_sin, None, q_out, k_out, k_out, None, None, None, 0.0, tokens,
            q.stride(0), q.stride(1), k.stride(0), k.stride(1), 0, 0, N=heads, M=kv_heads, D=dim,
            ROTARY=cos_sin.shape[1], NORM_Q=False, NORM_K=False, PAGED=False, PAGE=1, LARGEST=0, WHOLE=False,
            BESIDE=False, BLOCK_D=padded(dim), **blocks, **self.chip.order,
        )  # fmt: skip
        return q_out, k_out

    def _blocks(self, tokens: int) -> dict[str, int]:
        few = tokens <= FEW_TOKENS
        return {"TOKENS": 1 if few else 16, "num_warps": self.chip.tuning.warps(32 if few else 128)}


def _empty(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)
