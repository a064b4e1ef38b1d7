"""Paged attention by gathering: decoding rows in batched float32 products, others one by one in flash attention.

Torch's attention on bfloat16 is several times slower than on float32 for single queries, so those are converted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch.nn import functional

from anychip.ops.attention import entry_codes
from anychip_cpu.cache import HeadCache
from anychip_cpu.plan import CpuPlan, DecodeGroup, PrefillRow
from anychip_cpu.processor import has_bfloat16
from anychip_cpu.rope import rotate

MAX_SCORES = 1 << 22
"""Scores held at once where flash attention cannot be used."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How scores become weights."""

    scale: float
    softcap: float
    sinks: torch.Tensor | None

    @property
    def plain(self) -> bool:
        return not self.softcap and self.sinks is None


@dataclass(slots=True)
class Attention:
    """The ops of one loaded model; it keeps the buffers that gathering needs from layer to layer."""

    _buffers: dict[str, torch.Tensor] = field(default_factory=dict)

    def kv_write(self, k: torch.Tensor, v: torch.Tensor, cache: HeadCache, plan: CpuPlan) -> None:
        """See anychip.ops.attention.kv_write."""
        for values, slots, scale in ((k, cache.k_slots, cache.k_scale), (v, cache.v_slots, cache.v_scale)):
            if scale is None:
                slots.index_copy_(0, plan.slots, values.reshape(-1, values.shape[2]).to(slots.dtype))
                continue
            codes, factors = entry_codes(values, slots.dtype)
            slots.index_copy_(0, plan.slots, codes.view(-1, values.shape[2]))
            scale.view(-1).index_copy_(0, plan.slots, factors.flatten())

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
        cache: HeadCache,
        plan: CpuPlan,
    ) -> torch.Tensor:
        """See anychip.ops.composite.qk_norm_rope_kv_write; q and k are turned together where they lie side by side."""
        if q_norm is not None:
            q = functional.rms_norm(q, q_norm.shape, q_norm, eps)
        if k_norm is not None:
            k = functional.rms_norm(k, k_norm.shape, k_norm, eps)
        turns = plan.rotation(positions, cos_sin)
        if side_by_side(q, k):
            heads = q.shape[1]
            both = q.as_strided((q.shape[0], heads + k.shape[1], q.shape[2]), q.stride())
            turned = rotate(both, *turns)
            self.kv_write(turned[:, heads:], v, cache, plan)
            return turned[:, :heads].to(q.dtype)
        self.kv_write(rotate(k, *turns), v, cache, plan)
        return rotate(q, *turns).to(q.dtype)

    def paged_attention(
        self,
        q: torch.Tensor,
        cache: HeadCache,
        plan: CpuPlan,
        scale: float,
        softcap: float = 0.0,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See anychip.ops.attention.paged_attention."""
        form = _Form(scale, softcap, sinks)
        if len(plan.groups) == 1 and not plan.rows and plan.groups[0].tokens is None:
            return self._decode(q, cache, plan.groups[0], form).to(q.dtype)
        result = q.new_empty(q.shape[0], q.shape[1], cache.v.shape[-1])
        for group in plan.groups:
            if group.tokens is None:
                result[: group.count] = self._decode(q[: group.count], cache, group, form)
            else:
                result[group.tokens] = self._decode(q[group.tokens], cache, group, form).to(q.dtype)
        for row in plan.rows:
            attend = _flash if form.plain else _prefill
            result[row.first : row.last] = attend(q[row.first : row.last], cache, row, form)
        return result

    def _decode(self, q: torch.Tensor, cache: HeadCache, group: DecodeGroup, form: _Form) -> torch.Tensor:
        """q [R, N, D] -> [R, N, Dv] float32."""
        rows, heads, dim = q.shape
        k = self._gather("k", cache.k_heads, group, cache.k.shape, cache.k_scale)
        v = self._gather("v", cache.v_heads, group, cache.v.shape, cache.v_scale)
        queries = q.view(rows, cache.num_heads, -1, dim).transpose(0, 1).float() * form.scale
        result = _attend(queries, k, v, group.mask, form)
        if not torch.isfinite(result.sum()):
            # Perhaps what nobody sees, another request's leavings, is not a number: 0 * nan is nan.
            unseen = torch.isinf(group.mask).view(1, rows, -1, 1)
            result = _attend(queries, k.masked_fill(unseen, 0.0), v.masked_fill(unseen, 0.0), group.mask, form)
        return result.transpose(0, 1).reshape(rows, heads, -1)

    def _gather(
        self, name: str, lines: torch.Tensor, group: DecodeGroup, plane: torch.Size, scale: torch.Tensor | None
    ) -> torch.Tensor:
        """The group's context as [M, R, S, dim] float32; `plane` is the shape of the cache's plane."""
        shape = (len(group.heads), lines.shape[1])
        gathered = torch.index_select(lines, 0, group.heads, out=self._buffer(name, shape, lines.dtype))
        if lines.dtype != torch.float32:
            gathered = self._buffer(f"{name} wide", shape, torch.float32).copy_(gathered)
        if scale is not None:
            factors = scale.flatten(0, 1).index_select(0, group.heads)
            gathered.view(*factors.shape, -1).mul_(factors.unsqueeze(-1))
        return gathered.view(plane[1], group.count, -1, plane[3])

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        count = torch.Size(shape).numel()
        held = self._buffers.get(name)
        if held is None or held.numel() < count or held.dtype != dtype:
            held = self._buffers[name] = torch.empty(count + count // 4, dtype=dtype)
        return held[:count].view(shape)


def side_by_side(q: torch.Tensor, k: torch.Tensor) -> bool:
    """Whether q [T, N, D] and k [T, M, D] are neighbours in one fused projection."""
    return (
        q.stride() == k.stride()
        and q.stride(1) == q.shape[2]
        and q.untyped_storage().data_ptr() == k.untyped_storage().data_ptr()
        and k.storage_offset() - q.storage_offset() == q.shape[1] * q.shape[2]
    )


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, form: _Form) -> torch.Tensor:
    """q [M, R, Q, D], scaled, against k [M, R, S, D] and v; mask [R, 1 or Q, S] -> [M, R, Q, Dv]. All float32."""
    scores = torch.matmul(q, k.transpose(-1, -2))
    if form.softcap:
        scores.div_(form.softcap).tanh_().mul_(form.softcap)
    scores.add_(mask)
    if form.sinks is None:
        return torch.matmul(scores.softmax(-1), v)
    heads, rows, queries, _ = scores.shape
    # Queries of one cached head are ordered head by head, then token by token.
    sinks = form.sinks.float().view(heads, 1, -1, 1).expand(-1, rows, -1, -1)
    sinks = sinks.repeat_interleave(queries // sinks.shape[2], dim=2)
    return torch.matmul(torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1], v)


def _context(plane: torch.Tensor, scale: torch.Tensor | None, row: PrefillRow, dtype: torch.dtype) -> torch.Tensor:
    """A row's context as [1, M, length, dim]."""
    blocks = plane.flatten(0, 1).index_select(0, row.heads)
    if scale is not None:
        blocks = blocks * scale.flatten(0, 1).index_select(0, row.heads).unsqueeze(-1)
    return blocks.view(plane.shape[1], -1, plane.shape[3])[:, : row.length].unsqueeze(0).to(dtype)


def _flash(q: torch.Tensor, cache: HeadCache, row: PrefillRow, form: _Form) -> torch.Tensor:
    """q [t, N, D] -> [t, N, Dv]."""
    dtype = torch.bfloat16 if q.dtype == torch.bfloat16 and has_bfloat16() else torch.float32
    attended = functional.scaled_dot_product_attention(
        q.to(dtype).transpose(0, 1).unsqueeze(0),
        _context(cache.k, cache.k_scale, row, dtype),
        _context(cache.v, cache.v_scale, row, dtype),
        attn_mask=None if row.mask is None else row.mask.to(dtype),
        is_causal=row.mask is None,
        scale=form.scale,
        enable_gqa=q.shape[1] != cache.num_heads,
    )
    return attended.squeeze(0).transpose(0, 1)


def _prefill(q: torch.Tensor, cache: HeadCache, row: PrefillRow, form: _Form) -> torch.Tensor:
    """q [t, N, D] -> [t, N, Dv], in parts whose scores fit."""
    tokens, heads, dim = q.shape
    kv_heads = cache.num_heads
    k = _context(cache.k, cache.k_scale, row, torch.float32).transpose(0, 1)
    v = _context(cache.v, cache.v_scale, row, torch.float32).transpose(0, 1)
    mask = _causal(tokens) if row.mask is None else row.mask
    count = max(1, MAX_SCORES // (heads * row.length))
    parts = []
    for first in range(0, tokens, count):
        part = q[first : first + count].float() * form.scale
        queries = part.view(-1, kv_heads, heads // kv_heads, dim).permute(1, 2, 0, 3).reshape(kv_heads, 1, -1, dim)
        seen = mask[first : first + count].repeat(heads // kv_heads, 1).unsqueeze(0)
        attended = _attend(queries, k, v, seen, form).view(kv_heads, heads // kv_heads, len(part), -1)
        parts.append(attended.permute(2, 0, 1, 3).reshape(len(part), heads, -1))
    return torch.cat(parts)


def _causal(tokens: int) -> torch.Tensor:
    return torch.full((tokens, tokens), float("-inf")).triu(1)
