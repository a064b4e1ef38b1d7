"""Sizes of the work of thin linear layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.triton.chip import Chip

MIN_TOKENS = 16
"""Columns of a tile of the matrix instruction that every chip has."""


@dataclass(frozen=True, slots=True)
class ThinShape:
    """Output rows, tokens and inputs of a tile, and among how many programs a tile's inputs are split."""

    rows: int
    tokens: int
    inputs: int
    split: int
    warps: int
    stages: int

    def tiles(self, rows: int) -> int:
        """How many tiles `rows` output rows make."""
        return -(-rows // self.rows)

    @property
    def launch(self) -> dict[str, int]:
        """Arguments of the launch."""
        sizes = {"SPLIT": self.split, "BLOCK_T": self.tokens, "BLOCK_N": self.rows, "BLOCK_K": self.inputs}
        return {**sizes, "num_warps": self.warps, "num_stages": self.stages}


def thin_shape(chip: Chip, tokens: int, rows: int, inputs: int, gated: bool, dtype: torch.dtype) -> ThinShape:
    """For a few tokens: split until there are two programs a processor, while a program keeps four tiles of input."""
    columns = max(MIN_TOKENS, 1 << (tokens - 1).bit_length())
    block = 32 if dtype.itemsize > 2 else 64
    depth = 128 if dtype.itemsize <= 2 and inputs >= 128 else 64
    tiles, steps, split = -(-rows // block), -(-inputs // depth), 1
    while tiles * split * 2 <= 2 * chip.processors and steps >= 8 * split:
        split *= 2
    split = -(-steps // -(-steps // split))  # none is left without input
    return ThinShape(block, columns, depth, split, 4, chip.stages(3 if gated else 4))


def vector_shape(inputs: int, gated: bool, normed: bool) -> dict[str, int]:
    """Arguments of the launch for one token: output rows and inputs of a program's tile, measured on an H200."""
    depth = min(1024, max(16, 1 << (inputs - 1).bit_length()))
    if gated or normed:
        return {"BLOCK_N": 2 if inputs <= 1024 and gated else 4, "BLOCK_K": depth, "num_warps": 4}
    if 1024 < inputs < 8192:
        return {"BLOCK_N": 2, "BLOCK_K": depth, "num_warps": 4}
    return {"BLOCK_N": 4, "BLOCK_K": min(512, depth), "num_warps": 2}


def code_shape(processors: int, tokens: int, rows: int, inputs: int, packed: bool) -> ThinShape:
    """For codes: a tile holds twice or four times the inputs of one of 16-bit numbers, so that as much is under way."""
    columns = 1 if tokens == 1 else max(MIN_TOKENS, 1 << (tokens - 1).bit_length())
    block = 4 if tokens == 1 else 64
    depth = 512 if tokens == 1 else 256 if not packed else 128
    tiles, split = -(-rows // block), 1
    while tiles * split * 2 <= 3 * processors and inputs // (depth * split * 2) >= 2:
        split *= 2
    return ThinShape(block, columns, depth, split, 8 if packed and tokens > 1 else 4, 4 if columns <= 32 else 3)
