"""One layer's KV cache as the native kernels read it: pages that are packed matrices.

bfloat16   k [num_blocks, heads, head_dim / 2, block_size, 2]      v [num_blocks, heads, block_size / 2, head_dim, 2]
float32    k [num_blocks, heads, head_dim / 2, 2, block_size]      v [num_blocks, heads, block_size / 2, 2, head_dim]
int8       k [num_blocks, heads, block_size * head_dim codes as in bfloat16, then block_size scales in float32]
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.ops.shapes import dtype_of
from anychip.plugin.contract import KVSpec, Plane


@dataclass(frozen=True, slots=True)
class PackedCache:
    """Planes of one layer."""

    k: torch.Tensor
    v: torch.Tensor


def new_cache(spec: KVSpec, num_blocks: int, block_size: int, device: torch.device | str) -> PackedCache:
    """See anychip.ops.attention.new_cache."""
    planes = {plane.name: plane for plane in spec.planes}
    assert set(planes) <= {"k", "v", "k_scale", "v_scale"}, f"planes {sorted(planes)} are not those of attention"
    if planes["k"].dtype == "int8":
        return PackedCache(*(_codes(planes[name], num_blocks, block_size) for name in ("k", "v")))
    made = []
    for name, size in (("k", lambda dim: (dim, block_size)), ("v", lambda dim: (block_size, dim))):
        heads, dim = planes[name].shape
        rows, columns = size(dim)
        dtype = dtype_of(planes[name].dtype)
        pair = (columns, 2) if dtype == torch.bfloat16 else (2, columns)
        made.append(torch.empty(num_blocks, heads, rows // 2, *pair, dtype=dtype))
    return PackedCache(*made)


def _codes(plane: Plane, num_blocks: int, block_size: int) -> torch.Tensor:
    """Pages of bytes; the shape tells the library the sizes, not where a byte lies."""
    heads, dim = plane.shape
    return torch.empty(num_blocks, heads, block_size, dim + torch.float32.itemsize, dtype=torch.int8)


def copy_blocks(cache: PackedCache, source: torch.Tensor, target: torch.Tensor) -> None:
    """See anychip.ops.attention.copy_blocks."""
    for plane in (cache.k, cache.v):
        plane[target] = plane[source]
