"""One layer's KV cache: within a block head by head, so that what a program reads of a block is one piece of memory.

k [num_blocks, heads, block_size, head_dim]      v likewise
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.ops.shapes import dtype_of
from anychip.plugin.contract import KVSpec


@dataclass(frozen=True, slots=True)
class PagedCache:
    """Planes of one layer, [num_blocks, heads, block_size, head_dim]."""

    k: torch.Tensor
    v: torch.Tensor


def new_cache(spec: KVSpec, num_blocks: int, block_size: int, device: torch.device | str) -> PagedCache:
    """See anychip.ops.attention.new_cache."""
    planes = {plane.name: plane for plane in spec.planes}
    assert set(planes) == {"k", "v"}, f"planes {sorted(planes)} are not those of attention"
    assert planes["k"].shape == planes["v"].shape, "keys and values of different sizes"
    heads, dim = planes["k"].shape
    shape, dtype = (num_blocks, heads, block_size, dim), dtype_of(planes["k"].dtype)
    return PagedCache(torch.empty(shape, dtype=dtype, device=device), torch.empty(shape, dtype=dtype, device=device))


def copy_blocks(cache: PagedCache, source: torch.Tensor, target: torch.Tensor) -> None:
    """See anychip.ops.attention.copy_blocks."""
    for plane in (cache.k, cache.v):
        plane.index_copy_(0, target, plane.index_select(0, source))
