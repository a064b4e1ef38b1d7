"""Paged attention of Intel's extension for PyTorch: single tokens by one of its kernels, other rows by another.

The operators are those behind `ipex.llm.modules.PagedAttention`. They come from the extension's library alone, because
its Python part does not import beside a current transformers.

One cache of a layer, in its layout:

    k [num_blocks, kv_heads, block_size, head_dim]      v likewise
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import torch

from anychip.ops.attention import AttentionInputs
from anychip.ops.op import Kernel, OpSpec
from anychip.ops.shapes import dtype_of
from anychip.plugin.contract import KVSpec

MIN_HEAD_DIM, MAX_HEAD_DIM = 16, 256
"""Between which every size was tested; see tests/platforms/xpu."""
MODULE = "intel_extension_for_pytorch"
LIBRARY = "lib/libintel-ext-pt-cpu.so"
NONE = -1
"""How it is told that there is no window, or no soft cap."""
SCALES = (1.0, 1.0)
"""Of keys and values in 8-bit floats, which we do not use."""


def load() -> None:
    """Load the operators, which also replaces some of torch's own for automatic casts."""
    found = find_spec(MODULE)
    assert found is not None and found.origin is not None, "the probe found it"
    torch.ops.load_library(Path(found.origin).parent / LIBRARY)


@dataclass(frozen=True)
class Cache:
    """Planes of one layer, [num_blocks, kv_heads, block_size, head_dim]."""

    k: torch.Tensor
    v: torch.Tensor


@dataclass(frozen=True)
class Plan:
    """What the layers of one KV group share in a step."""

    inputs: AttentionInputs
    block_size: int
    window: int | None
    slots: torch.Tensor
    """[T] int32, block * block_size + entry: where each token's key and value go."""

    @cached_property
    def query_start(self) -> torch.Tensor:
        """[R'+1] int32, where the tokens of each row that brings several begin, counted from the first such row's."""
        single = self.inputs.num_single
        return (self.inputs.query_start[single:] - single).int()

    @cached_property
    def key_start(self) -> torch.Tensor:
        """[R'+1] int32, the same of their contexts."""
        lengths = self.inputs.seq_lens[self.inputs.num_single :]
        return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int()

    @cached_property
    def single_table(self) -> torch.Tensor:
        """[num_single, B] blocks of rows with one token."""
        return self.inputs.block_table[: self.inputs.num_single].contiguous()

    @cached_property
    def other_table(self) -> torch.Tensor:
        """[R', B] blocks of the other rows."""
        return self.inputs.block_table[self.inputs.num_single :].contiguous()


def new_cache(spec: KVSpec, num_blocks: int, block_size: int, device: torch.device | str) -> Cache:
    """See anychip.ops.attention.new_cache."""
    plane = spec.planes[0]
    assert [one.shape for one in spec.planes] == [plane.shape] * 2, "keys and values of one size are all it keeps"
    heads, dim = plane.shape
    k, v = (
        torch.empty(num_blocks, heads, block_size, dim, dtype=dtype_of(plane.dtype), device=device) for _ in range(2)
    )
    return Cache(k, v)


def copy_blocks(cache: Cache, source: torch.Tensor, target: torch.Tensor) -> None:
    """See anychip.ops.attention.copy_blocks."""
    for plane in (cache.k, cache.v):
        plane.index_copy_(0, target, plane.index_select(0, source))


def plan_attention(inputs: AttentionInputs, spec: KVSpec, block_size: int) -> Plan:
    """See anychip.ops.attention.plan_attention."""
    tokens = torch.arange(inputs.positions.shape[0], device=inputs.positions.device, dtype=torch.int32)
    rows = torch.bucketize(tokens, inputs.query_start[1:], right=True)
    blocks = inputs.block_table[rows, inputs.positions.long() // block_size]
    return Plan(inputs, block_size, spec.window, blocks * block_size + inputs.positions % block_size)


def kv_write(k: torch.Tensor, v: torch.Tensor, cache: Cache, plan: Plan) -> None:
    """See anychip.ops.attention.kv_write."""
    torch.ops.torch_ipex.reshape_and_cache(
        k.contiguous(), v.contiguous(), cache.k, cache.v, plan.slots, "auto", *SCALES
    )


def paged_attention(
    q: torch.Tensor,
    cache: Cache,
    plan: Plan,
    scale: float,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """See anychip.ops.attention.paged_attention."""
    assert sinks is None, "a model that these kernels were not offered"
    q, single = q.contiguous(), plan.inputs.num_single
    out = torch.empty_like(q)
    if single:
        _attend_single(out[:single], q[:single], cache, plan, scale, softcap or NONE)
    if single < len(plan.inputs.host_seq_lens):
        _attend_others(out[single:], q[single:], cache, plan, scale, softcap or NONE)
    return out


def _attend_single(out: torch.Tensor, q: torch.Tensor, cache: Cache, plan: Plan, scale: float, softcap: float) -> None:
    """Without a window it gets one that holds all: it takes its own word for none in some processes and not in others.

    Beside a soft cap it takes no window of any size.
    """
    heads, kv_heads = q.shape[1], cache.k.shape[1]
    of_head = torch.arange(heads, dtype=torch.int32) // (heads // kv_heads)
    lengths = plan.inputs.seq_lens[: len(q)]
    window = plan.window or (plan.inputs.max_seq if softcap == NONE else NONE)
    torch.ops.torch_ipex.single_query_cached_kv_attention(
        out, q, cache.k, cache.v, of_head, scale, plan.single_table, lengths, plan.block_size, plan.inputs.max_seq,
        None, window, *SCALES, softcap,
    )  # fmt: skip


def _attend_others(out: torch.Tensor, q: torch.Tensor, cache: Cache, plan: Plan, scale: float, softcap: float) -> None:
    """Its window counts the tokens before a token, ours the token too."""
    before, after = (NONE, NONE) if plan.window is None else (plan.window - 1, 0)
    torch.ops.torch_ipex.flash_attn_varlen_func(
        out, q, cache.k, cache.v, plan.query_start, plan.key_start, plan.inputs.max_query, plan.inputs.max_seq, scale,
        True, plan.other_table, None, before, after, "auto", *SCALES, softcap,
    )  # fmt: skip


def unsupported(spec: OpSpec) -> list[str]:
    """Why its attention cannot serve a model."""
    reasons = []
    if not MIN_HEAD_DIM <= spec.head_dim <= MAX_HEAD_DIM:
        reasons.append(f"head size {spec.head_dim} is not between {MIN_HEAD_DIM} and {MAX_HEAD_DIM}")
    if spec.kv_dtype not in ("", spec.dtype):
        reasons.append(f"a cache in {spec.kv_dtype} for a model in {spec.dtype}")
    if spec.sinks:
        reasons.append("attention sinks")
    if spec.softcap and spec.windows:
        reasons.append("a soft cap together with a sliding window")
    return reasons


ATTENTION = {
    "new_cache": Kernel(new_cache, unsupported),
    "copy_blocks": Kernel(copy_blocks, unsupported),
    "plan_attention": Kernel(plan_attention, unsupported),
    "kv_write": Kernel(kv_write, unsupported),
    "paged_attention": Kernel(paged_attention, unsupported),
}
