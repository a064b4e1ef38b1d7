"""One layer's KV cache. A block lies head by head, so that what a program reads of it, one head, is contiguous.

k, v                 [num_blocks, heads, block_size, head_dim]
k_scale, v_scale     [num_blocks, heads, block_size]     of codes of 8 bits
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
        """All of its tensors."""
        return tuple(plane for plane in (self.k, self.v, self.k_scale, self.v_scale) if plane is not None)

    @property
    def codes(self) -> torch.dtype | None:
        """The type of its codes; None if it is not quantized."""
        return None if self.whole else self.k.dtype

    @property
    def whole(self) -> bool:
        """Whether keys and values are numbers, not codes of 8 bits."""
        return self.k_scale is None

    @property
    def heads(self) -> int:
        """Key heads."""
        return self.k.shape[1]

    @property
    def pages(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values as [num_blocks * heads, block_size, head_dim]: each page is contiguous."""
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
