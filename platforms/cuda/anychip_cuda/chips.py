"""What NVIDIA's chips can do, by compute capability, and the tiles that were measured on them."""

from __future__ import annotations

from dataclasses import replace

import torch

from anychip.triton.chip import Chip
from anychip.triton.keys import has_gluon
from anychip.triton.packing import FORMATS
from anychip.triton.tuning import FragmentTile, GroupTile, Tile, Tuning, WeightTile

HAS_FP8 = (8, 9)
"""Compute capability from which there is arithmetic on 8-bit floats."""
OVERLAPS = (9, 0)
"""Compute capability from which there are programmatic dependent launch and the tensor memory accelerator (TMA)."""
FRAGMENTS = (8, 0)
"""Compute capability from which there are mma.m16n8k16 on bfloat16 and arithmetic on two bfloat16 in a register."""
ROOMY = 128 * 1024
"""Bytes of shared memory for one program; chips with no more than that need smaller tiles than those of an H200."""

H200 = Tuning(
    waves=2,
    context=Tile(16, 64, 4, 2),
    context_coded=Tile(16, 128, 4, 2),
    context_coded_crowd=Tile(16, 64, 2, 3),
    context_float32=Tile(16, 32, 8, 2),
    context_crowd=(Tile(16, 64, 4, 3), Tile(64, 64, 4, 3)),
    context_many=(Tile(16, 64, 4, 3), Tile(64, 32, 4, 3)),
    context_large=Tile(16, 32, 4, 3),
    context_blocks=True,
    query_few=Tile(16, 64, 4, 4),
    query_small=Tile(64, 64, 4, 4),
    query_medium=Tile(128, 64, 8, 6),
    query_large=Tile(128, 128, 8, 6),
    query_coded_small=Tile(64, 64, 4, 4),
    query_coded=Tile(128, 64, 8, 6),
    query_float32=Tile(32, 32, 8, 1),
    copied_small=Tile(64, 64, 4, 2),
    copied=Tile(128, 64, 8, 2, {"maxnreg": 128}),
    copied_wide=Tile(128, 32, 8, 2),
    grouped=Tile(128, 128, 4, 2),
    grouped_wide=Tile(128, 64, 4, 2),
    thin=WeightTile(64, 128, 4, 4),
    thin_many=WeightTile(64, 128, 4, 3),
    thin_tall=WeightTile(128, 128, 8, 3),
    thin_wide=WeightTile(128, 64, 8, 4),
    thin_rows=1 << 20,
    thin_ahead=12 << 20,
    thin_float32=WeightTile(32, 64, 4, 4),
    experts_vector=WeightTile(2, 1024, 4, 1),
    experts_join=WeightTile(2, 256, 4, 1),
    experts_few=WeightTile(128, 128, 8, 3),
    experts_some=WeightTile(128, 64, 8, 4),
    experts_many=WeightTile(128, 64, 8, 3),
    experts_copied=(WeightTile(64, 128, 4, 3), WeightTile(128, 64, 4, 4)),
    experts_gated=WeightTile(128, 64, 8, 4),
    experts_down=WeightTile(256, 64, 8, 4),
    codes_packed=WeightTile(64, 128, 8, 3),
    fragments=(
        FragmentTile(128, 8, 4, 4, 4, sums=True),
        FragmentTile(64, 16, 4, 4, 4, sums=False, wide=True),
        FragmentTile(64, 32, 4, 4, 4, sums=False, wide=True),
        FragmentTile(128, 64, 4, 3, 2, sums=False, wide=True),
        FragmentTile(128, 128, 8, 3, 1, sums=False, wide=True),
    ),
    fragments_tokens=128,
    codes_bytes=WeightTile(64, 256, 4, 4),
    codes_whole=WeightTile(64, 128, 4, 4),
    codes_long=True,
)
PORTABLE = Tuning().fragments
"""For chips without Hopper's matrix instructions of four warps (wgmma): not measured."""
A100 = replace(
    H200,
    context_blocks=False,
    context=Tile(16, 64, 4, 3),
    context_crowd=(Tile(16, 64, 4, 3), Tile(32, 64, 4, 2)),
    context_many=None,
    context_coded_crowd=None,
    thin_many=None,
    thin_tall=None,
    thin_wide=None,
    thin_rows=4096,
    query_small=Tile(64, 32, 4, 4),
    query_large=Tile(128, 64, 8, 6),
    query_wide=Tile(64, 32, 8, 2),
    grouped=None,
    grouped_wide=None,
    experts_few=WeightTile(64, 128, 4, 4),
    experts_some=WeightTile(64, 128, 4, 3),
    experts_copied=None,
    experts_gated=None,
    experts_down=None,
    fragments=PORTABLE,
    fragments_tokens=64,
    codes_long=False,
)
"""For compute capability 8.0, whose registers spill sooner and whose programs have 160 KiB: not measured."""
SMALL = replace(
    A100,
    query_few=Tile(16, 64, 4, 3),
    query_small=Tile(64, 32, 4, 3),
    query_medium=Tile(128, 64, 8, 3),
    query_large=Tile(128, 64, 8, 3),
    query_coded_small=Tile(64, 32, 4, 3),
    query_coded=Tile(64, 32, 4, 3),
    copied_small=Tile(64, 64, 4, 2),
    copied=Tile(64, 64, 4, 2),
    copied_wide=Tile(64, 32, 4, 2),
    fragments=(PORTABLE[0], replace(PORTABLE[1], programs=3), replace(PORTABLE[2], stages=2)),
    experts_few=WeightTile(64, 64, 4, 4),
    experts_some=WeightTile(64, 64, 4, 4),
    experts_many=WeightTile(64, 64, 4, 3),
    codes_whole=WeightTile(64, 128, 8, 2),
    codes_grouped=(GroupTile(64, 128, 8, 2, 16),) * 3,
)
"""For chips whose programs have about 100 KiB: not measured."""
B200 = replace(
    H200,
    context_coded_crowd=None,
    thin_tall=None,
    thin_wide=None,
    thin_rows=4096,
    fragments=(replace(PORTABLE[0], stages=4), *PORTABLE[1:]),
    fragments_tokens=64,
    query_large=Tile(128, 64, 8, 6),
    query_coded=Tile(64, 64, 4, 4),
    copied_small=Tile(64, 64, 4, 2),
    copied=Tile(128, 64, 8, 2),
    grouped=None,
    grouped_wide=None,
    codes_bytes=WeightTile(64, 256, 8, 4),
    codes_whole=WeightTile(64, 128, 8, 4),
    codes_grouped=(GroupTile(64, 128, 8, 4, 16),) * 3,
    experts_down=WeightTile(128, 64, 8, 4),
    codes_long=False,
)
"""For compute capability 10.0, where larger tiles spill, and products of 8 bits do with 4 warps: not measured."""


def tuning_of(capability: tuple[int, int], shared_memory: int) -> Tuning:
    """Tiles for a chip whose programs may take so many bytes of shared memory each."""
    if shared_memory <= ROOMY:
        return SMALL
    if capability < OVERLAPS:
        return A100
    if capability >= (10, 0):
        return B200
    return H200 if has_gluon() else replace(H200, grouped=None, grouped_wide=None)


def chip_of(device: torch.device) -> Chip:
    """What launches depend on, of one GPU: asks CUDA for its properties."""
    properties = torch.cuda.get_device_properties(device)
    shared_memory: int = properties.shared_memory_per_block_optin  # type: ignore[attr-defined]  # the stub lacks it
    return describe((properties.major, properties.minor), properties.multi_processor_count, shared_memory)


def describe(capability: tuple[int, int], processors: int, shared_memory: int) -> Chip:
    """The chip of a compute capability; a program of it may take so many bytes of shared memory."""
    tuning, newer = tuning_of(capability, shared_memory), capability >= OVERLAPS
    fragments = capability >= FRAGMENTS and has_gluon()
    return Chip(processors, newer, tuning, fragments=fragments, descriptors=newer)


def formats_of(capability: tuple[int, int]) -> tuple[str, ...]:
    """Weight formats that are computed with as they are stored; others are dequantized."""
    return FORMATS if capability >= HAS_FP8 else tuple(name for name in FORMATS if name != "fp8")


def caches_of(capability: tuple[int, int]) -> tuple[str, ...]:
    """Types that a KV cache may have beside the model's own."""
    return ("int8", "fp8") if capability >= HAS_FP8 else ("int8",)
