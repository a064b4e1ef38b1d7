"""One layer's KV cache: within a block head by head, so that a head's gathered blocks are one matrix.

k [num_blocks, heads, block_size, head_dim]      v likewise
  k_heads [num_blocks * heads, block_size * head_dim]   the same memory, a line for each head of each block
  k_slots [num_blocks * heads * block_size, head_dim]   and a line for each token of each
k_scale [num_blocks, heads, block_size] float32, where k is int8
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from anychip.ops.shapes import dtype_of
from anychip.plugin.contract import KVSpec, Plane


@dataclass(frozen=True, slots=True)
class HeadCache:
    """Planes of one layer, and views of them to gather from and to write to."""

    k: torch.Tensor
    v: torch.Tensor
    k_heads: torch.Tensor
    v_heads: torch.Tensor
    k_slots: torch.Tensor
    v_slots: torch.Tensor
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None

    @property
    def num_heads(self) -> int:
        """Cached heads."""
        return self.k.shape[1]


def new_cache(spec: KVSpec, num_blocks: int, block_size: int, device: torch.device | str) -> HeadCache:
    """See anychip.ops.attention.new_cache; memory is taken page by page as it is written to."""
    planes = {plane.name: plane for plane in spec.planes}
    assert set(planes) <= {"k", "v", "k_scale", "v_scale"}, f"planes {sorted(planes)} are not those of attention"
    k, v = (_zeros(planes[name], num_blocks, block_size) for name in ("k", "v"))
    heads = (plane.view(-1, block_size * plane.shape[3]) for plane in (k, v))
    slots = (plane.view(-1, plane.shape[3]) for plane in (k, v))
    scales = [_zeros(plane, num_blocks, block_size) for name, plane in planes.items() if name.endswith("_scale")]
    return HeadCache(k, v, *heads, *slots, *scales)


def copy_blocks(cache: HeadCache, source: torch.Tensor, target: torch.Tensor) -> None:
    """See anychip.ops.attention.copy_blocks."""
    for plane in (cache.k, cache.v, cache.k_scale, cache.v_scale):
        if plane is not None:
            plane[target] = plane[source]


def _zeros(plane: Plane, num_blocks: int, block_size: int) -> torch.Tensor:
    heads, *dim = plane.shape
    # The allocator of numpy leaves untouched zeros to the kernel; torch.zeros writes them.
    raw = torch.from_numpy(np.zeros(num_blocks * block_size * plane.bytes_per_token, np.uint8))
    return raw.view(dtype_of(plane.dtype)).view(num_blocks, heads, block_size, *dim)
