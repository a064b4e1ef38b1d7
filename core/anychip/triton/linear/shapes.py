"""How products of a few tokens are cut into tiles, and tiles among programs.

Y [T, N] = X [T, K] W^T with W [N, K]: a tile is some of W's rows by all tokens; where tiles are fewer than processors,
several programs split a tile's inputs and add up their partial sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from anychip.triton.chip import Chip
from anychip.triton.coding import GROUP, Coding
from anychip.triton.powers import padded
from anychip.triton.tuning import FragmentTile, GroupTile, Tuning

LEAST = 4
"""Fewest chunks of 128 inputs that are worth a program."""
FEW_TOKENS = 32
"""Most tokens whose tiles take less shared memory than those of weights."""
LEAST_AHEAD = 128
"""Fewest inputs of a row that are worth prefetching."""
TALL = 128
"""Rows of a tall tile."""


@dataclass(frozen=True, slots=True)
class ThinShape:
    """A tile of a product, and how it is computed."""

    rows: int
    """Rows of W."""
    tokens: int
    inputs: int
    """Inputs that are read at a time."""
    split: int
    """Programs among which a tile's inputs are split."""
    options: Mapping[str, int | str]
    """Options of the launch: warps and stages."""
    tiled: bool = False
    """Whether X and W are copied in tiles by the chip, through descriptors."""
    ahead: int = 0
    """Inputs of each row that are prefetched before the tokens are computed; 0: none."""

    def tiles(self, rows: int) -> int:
        """Tiles of a matrix of so many rows."""
        return -(-rows // self.rows)

    @property
    def parts(self) -> int:
        """Parts in which each row's first inputs are prefetched."""
        return max(1, min(4, 128 // self.rows))

    @property
    def launch(self) -> dict[str, int | str]:
        """Arguments of the launch."""
        sizes = {"SPLIT": self.split, "BLOCK_T": self.tokens, "BLOCK_N": self.rows, "BLOCK_K": self.inputs}
        return {**sizes, **self.options}


def thin_shape(
    chip: Chip, tokens: int, rows: int, inputs: int, gated: bool, dtype: torch.dtype, copied: bool = False
) -> ThinShape:
    """For a plain matrix of `rows` by `inputs`, times up to 128 tokens.

    `gated`: two such matrices are multiplied at once, the first of which gates the second. `copied`: the chip can copy
    tiles of X and W by itself.
    """
    tuning, columns, narrow = chip.tuning, padded(tokens), dtype.itemsize <= 2
    tall = tuning.thin_tall if tokens <= FEW_TOKENS else tuning.thin_wide
    if tall is not None and gated and copied and narrow and fills_chip(chip, rows):
        return ThinShape(tall.rows, columns, tall.inputs, 1, tall.launch(), tiled=True)
    tile = tuning.thin if narrow else tuning.thin_float32
    depth = tile.inputs if inputs >= tile.inputs else min(tile.inputs, 64)
    tiles, steps = -(-rows // tile.rows), -(-inputs // depth)
    each = -(-steps // _split(chip, tokens, tiles, steps))
    split = -(-steps // each)  # none is left without input
    shared = narrow and not gated and tiles * split > chip.processors
    options = tuning.thin_many.launch() if shared and tuning.thin_many is not None else tile.launch(gated)
    tiled = copied and narrow and (gated or tokens > FEW_TOKENS or tiles > 2 * chip.processors)
    return ThinShape(
        tile.rows, columns, depth, split, options, tiled,
        _ahead(chip, tiles * split * tile.rows * (2 if gated else 1), each * depth, dtype) if copied else 0,
    )  # fmt: skip


def fills_chip(chip: Chip, rows: int) -> bool:
    """Whether so many rows of gated products make tiles of TALL for three processors of four."""
    return 4 * rows >= 3 * TALL * chip.processors


def _split(chip: Chip, tokens: int, tiles: int, steps: int) -> int:
    """Programs a tile, doubled up to two for each processor, or one for each where there are many tokens.

    Each keeps at least 8 of the `steps` through a tile's inputs, or 4 while less than half of the processors are busy.
    """
    split, most = 1, chip.processors * (2 if tokens <= FEW_TOKENS else 1)
    while tiles * split * 2 <= most and steps >= (8 if tiles * split * 4 <= chip.processors else 16) * split:
        split *= 2
    return split


def _ahead(chip: Chip, lines: int, most: int, dtype: torch.dtype) -> int:
    """Inputs to prefetch of each of the `lines` rows that all programs read, at most `most` of a program; 0: none."""
    fit = chip.tuning.thin_ahead // (lines * dtype.itemsize) if chip.overlap else 0
    return min(most, 1 << (fit.bit_length() - 1)) if fit >= LEAST_AHEAD else 0


def vector_shape(tuning: Tuning, inputs: int, gated: bool, normed: bool) -> dict[str, int]:
    """Arguments of the launch for one token: rows and inputs of a program's tile, as measured on an H200."""
    depth = min(1024, padded(inputs))
    few, many = (tuning.warps(threads * tuning.vector_threads) for threads in (64, 128))
    if gated or normed:
        return {"BLOCK_N": 2 if inputs <= 1024 and gated else 4, "BLOCK_K": depth, "num_warps": many}
    if 1024 < inputs < 8192:
        return {"BLOCK_N": 2, "BLOCK_K": depth, "num_warps": many}
    return {"BLOCK_N": 4, "BLOCK_K": min(512, depth), "num_warps": few}


def code_shape(chip: Chip, tokens: int, rows: int, inputs: int, whole: bool) -> ThinShape:
    """For weights and tokens of 8 bits, integers (`whole`) or floats.

    A tile of floats holds twice the inputs of one in 16 bits, so as many bytes.
    """
    columns, tile = padded(tokens), chip.tuning.codes_bytes
    if whole:
        tile = chip.tuning.codes_whole or replace(tile, inputs=min(tile.inputs, GROUP))
    tiles, split = -(-rows // tile.rows), 1
    while tiles * split * 2 <= 3 * chip.processors and inputs // (tile.inputs * split * 2) >= 2:
        split *= 2
    return ThinShape(tile.rows, columns, tile.inputs, split, tile.launch(tokens > FEW_TOKENS and not whole))


def whole_tile(chip: Chip, tokens: int, rows: int, coding: Coding) -> GroupTile:
    """For integers and many tokens.

    Small tiles of grouped inputs where there are enough to hide how sums are scaled, wide ones of others where all
    processors have one.
    """
    small, large, wide = chip.tuning.codes_grouped
    if coding.group:
        return small if 2 * _count(small, tokens, rows) > 5 * chip.processors else large
    return wide if coding.terms == 1 and _count(wide, tokens, rows) >= chip.processors else large


def _count(tile: GroupTile, tokens: int, rows: int) -> int:
    return -(-tokens // tile.tokens) * -(-rows // tile.rows)


def packed_shape(chip: Chip, tokens: int, rows: int, inputs: int) -> ThinShape:
    """For weights of 4 bits in words: tiles are split while that makes up to four programs for each processor.

    Each program keeps at least two chunks of inputs.
    """
    columns = padded(tokens)
    tile = chip.tuning.codes_packed
    tiles, chunks, split = -(-rows // tile.rows), -(-inputs // tile.inputs), 1
    while tiles * split * 2 <= 4 * chip.processors and chunks >= 4 * split:
        split *= 2
    split = -(-chunks // -(-chunks // split))  # none is left without input
    return ThinShape(tile.rows, columns, tile.inputs, split, tile.launch())


@dataclass(frozen=True, slots=True)
class FragmentShape:
    """How tiles of fragments are shared among programs, in chunks of 128 inputs."""

    tile: FragmentTile
    tiles: int
    """Tiles of the matrix."""
    share: int
    """Chunks of each program."""
    split: int
    """Programs of each tile."""

    @property
    def partial(self) -> int:
        """Elements of the partial sums that programs leave for each other; 0 where each has a tile of its own."""
        return 0 if self.split == 1 else self.tiles * self.split * self.tile.rows * self.tile.tokens

    @property
    def launch(self) -> dict[str, int | bool]:
        """Arguments of the launch."""
        return {"SHARE": self.share, **self.tile.launch}


def fragment_shape(chip: Chip, tokens: int, rows: int, inputs: int) -> FragmentShape:
    """For weights in fragments: as many programs as run at once; tiles are not split if tokens take more than one."""
    found = chip.tuning.fragments
    tile = next((each for each in found if tokens <= each.tokens), found[-1])
    tiles, chunks = -(-rows // tile.rows), inputs // 128
    split = max(1, tile.programs * chip.processors // tiles)
    share = chunks if tokens > tile.tokens else min(chunks, max(LEAST, -(-chunks // split)))
    return FragmentShape(tile, tiles, share, -(-chunks // share))
