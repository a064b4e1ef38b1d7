"""Sizes of the work of thin linear layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from anychip.triton.chip import Chip
from anychip.triton.tuning import Tuning

MIN_TOKENS = 16
"""Columns of a tile of the matrix instruction that every chip has."""
MANY = 32
"""Tokens from which their tiles take as much room as the codes."""


@dataclass(frozen=True, slots=True)
class ThinShape:
    """Output rows, tokens and inputs of a tile, and among how many programs a tile's inputs are split."""

    rows: int
    tokens: int
    inputs: int
    split: int
    options: Mapping[str, int | str]

    def tiles(self, rows: int) -> int:
        """How many tiles `rows` output rows make."""
        return -(-rows // self.rows)

    @property
    def launch(self) -> dict[str, int | str]:
        """Arguments of the launch."""
        sizes = {"SPLIT": self.split, "BLOCK_T": self.tokens, "BLOCK_N": self.rows, "BLOCK_K": self.inputs}
        return {**sizes, **self.options}


def thin_shape(chip: Chip, tokens: int, rows: int, inputs: int, gated: bool, dtype: torch.dtype) -> ThinShape:
    """For a few tokens: split until there are two programs a processor, while a program keeps four tiles of input."""
    columns = max(MIN_TOKENS, 1 << (tokens - 1).bit_length())
    tile = chip.tuning.thin_float32 if dtype.itemsize > 2 else chip.tuning.thin
    depth = tile.inputs if inputs >= tile.inputs else min(tile.inputs, 64)
    tiles, steps, split = -(-rows // tile.rows), -(-inputs // depth), 1
    while tiles * split * 2 <= 2 * chip.processors and steps >= 8 * split:
        split *= 2
    split = -(-steps // -(-steps // split))  # none is left without input
    return ThinShape(tile.rows, columns, depth, split, tile.launch(gated))


def vector_shape(tuning: Tuning, inputs: int, gated: bool, normed: bool) -> dict[str, int]:
    """Arguments of the launch for one token: output rows and inputs of a program's tile, measured on an H200."""
    depth = min(1024, max(16, 1 << (inputs - 1).bit_length()))
    few, many = (tuning.warps(threads * tuning.vector_threads) for threads in (64, 128))
    if gated or normed:
        return {"BLOCK_N": 2 if inputs <= 1024 and gated else 4, "BLOCK_K": depth, "num_warps": many}
    if 1024 < inputs < 8192:
        return {"BLOCK_N": 2, "BLOCK_K": depth, "num_warps": many}
    return {"BLOCK_N": 4, "BLOCK_K": min(512, depth), "num_warps": few}


def code_shape(chip: Chip, tokens: int, rows: int, inputs: int) -> ThinShape:
    """For codes of 8 bits: a tile holds twice the inputs of one of 16-bit numbers, so that as much is under way."""
    columns, tile = max(MIN_TOKENS, 1 << (tokens - 1).bit_length()), chip.tuning.codes_bytes
    tiles, split = -(-rows // tile.rows), 1
    while tiles * split * 2 <= 3 * chip.processors and inputs // (tile.inputs * split * 2) >= 2:
        split *= 2
    return ThinShape(tile.rows, columns, tile.inputs, split, tile.launch(columns > MANY))


def packed_shape(chip: Chip, tokens: int, rows: int, inputs: int) -> ThinShape:
    """For codes of 4 bits: split until there are three programs a processor, while one keeps two chunks of inputs."""
    columns = max(MIN_TOKENS, 1 << (tokens - 1).bit_length())
    tile = chip.tuning.codes_packed
    if columns == MIN_TOKENS:
        tile = chip.tuning.codes_packed_few or tile
    elif columns > MANY:
        tile = chip.tuning.codes_packed_many or tile
    tiles, chunks, split = -(-rows // tile.rows), -(-inputs // tile.inputs), 1
    while tiles * split * 2 <= 4 * chip.processors and chunks >= 4 * split:
        split *= 2
    split = -(-chunks // -(-chunks // split))  # none is left without input
    return ThinShape(tile.rows, columns, tile.inputs, split, tile.launch())
