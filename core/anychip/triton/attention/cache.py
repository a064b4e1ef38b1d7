"""One layer's KV cache: within a block head by head, so that what a program reads of a block is one piece of memory.

k [num_blocks, heads, block_size, head_dim]      v likewise      scales of codes [num_blocks, heads, block_size]
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
    k_scale: torch.Tensor | None = None
    """[num_blocks, heads, block_size] float32, where keys and values are codes of 8 bits."""
    v_scale: torch.Tensor | None = None

    @property
    def planes(self) -> tuple[torch.Tensor, ...]:
        """Those that there are."""
        return tuple(plane for plane in (self.k, self.v, self.k_scale, self.v_scale) if plane is not None)

    @property
    def codes(self) -> torch.dtype | None:
        """The type of the codes, if it holds such."""
        return None if self.whole else self.k.dtype

    @property
    def whole(self) -> bool:
        """Whether keys and values are numbers, not codes of 8 bits."""
        return self.k_scale is None

    @property
    def heads(self) -> int:
        """Heads of keys."""
        return self.k.shape[1]

    @property
    def pages(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [num_blocks * heads, block_size, head_dim]."""
        return self.k.view(-1, *self.k.shape[2:]), self.v.view(-1, *self.v.shape[2:])


def new_cache(spec: KVSpec, num_blocks: int, block_size: int, device: torch.device | str) -> PagedCache:
    """See anychip.ops.attention.new_cache."""
    planes = {plane.name: plane for plane in spec.planes}
    assert {"k", "v"} <= set(planes) <= set(PagedCache.__slots__), f"planes {sorted(planes)} are not those of attention"
    assert planes["k"].shape == planes["v"].shape, "keys and values of different sizes"
    made = {
        name: torch.empty(
            (num_blocks, plane.shape[0], block_size, *plane.shape[1:]), dtype=dtype_of(plane.dtype), device=device
        )
        for name, plane in planes.items()
    }
    return PagedCache(made["k"], made["v"], made.get("k_scale"), made.get("v_scale"))


def copy_blocks(cache: PagedCache, source: torch.Tensor, target: torch.Tensor) -> None:
    """See anychip.ops.attention.copy_blocks."""
    for plane in cache.planes:
        there = plane.view(torch.uint8) if plane.dtype.itemsize == 1 else plane
        there.index_copy_(0, target, there.index_select(0, source))
