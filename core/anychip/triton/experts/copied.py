"""Products of experts on chips that copy tiles of matrices by themselves (`Chip.descriptors`)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.triton.chip import Chip
from anychip.triton.descriptors import tiles_of
from anychip.triton.experts.matrices import Matrices
from anychip.triton.experts.pairs import Pairs
from anychip.triton.experts.shapes import WIDTH, ExpertShape
from anychip.triton.programs.expert_blocks import gate_blocks, multiply_blocks
from anychip.triton.programs.expert_tiles import gate_tiles, multiply_tiles


@dataclass(frozen=True, slots=True)
class CopiedExperts:
    """One layer's experts, and how both of their products are cut."""

    chip: Chip
    inner: Matrices
    """Gate and up projections, one behind the other: 2 N rows of H inputs."""
    outer: Matrices
    """Down projections: H rows of N inputs."""
    shapes: tuple[ExpertShape, ExpertShape]
    """Of the gated product, and of the one after it."""

    def products(self, x: torch.Tensor, pairs: Pairs, activation: str) -> torch.Tensor:
        """x [T, H] -> [pairs, H], each pair's output scaled by its share."""
        out = torch.empty(pairs.shares.numel(), self.outer.rows, dtype=x.dtype, device=x.device)
        (self._blocks if pairs.width == WIDTH else self._tiles)(x, pairs, activation, out)
        return out

    def _tiles(self, x: torch.Tensor, pairs: Pairs, activation: str, out: torch.Tensor) -> None:
        """Blocks of up to 64 pairs; see programs/expert_tiles.py."""
        (shape, other), size, blocks = self.shapes, self.outer.columns, len(pairs.owners)
        hidden = torch.empty(len(out), size, dtype=x.dtype, device=x.device)
        parts = -(-size // shape.rows)
        gate_tiles[(parts, blocks)](
            x, self.inner.tiles(2, shape.rows, shape.inputs), hidden, pairs.order, pairs.owners, pairs.done,
            x.stride(0), N=size, K=self.inner.columns, COUNT=pairs.each, ACTIVATION=activation, BLOCK_T=pairs.width,
            BLOCK_N=shape.rows, BLOCK_K=shape.inputs, **shape.options, **self.chip.order,
        )  # fmt: skip
        multiply_tiles[(-(-self.outer.rows // other.rows), blocks)](
            hidden, self.outer.tiles(1, other.rows, other.inputs), out, pairs.order, pairs.owners, pairs.done,
            pairs.shares, N=self.outer.rows, K=size, PARTS=parts, BLOCK_T=pairs.width, BLOCK_N=other.rows,
            BLOCK_K=other.inputs, **other.options, **self.chip.order,
        )  # fmt: skip

    def _blocks(self, x: torch.Tensor, pairs: Pairs, activation: str, out: torch.Tensor) -> None:
        """Blocks of 128 pairs; see programs/expert_blocks.py."""
        (shape, other), size, blocks = self.shapes, self.outer.columns, len(pairs.owners)
        hidden = torch.empty(len(pairs.order), size, dtype=x.dtype, device=x.device)
        gate_blocks[(-(-size // shape.rows), blocks)](
            x, self.inner.tiles(2, shape.rows, shape.inputs), hidden, pairs.order, pairs.owners, x.stride(0), N=size,
            K=self.inner.columns, COUNT=pairs.each, ACTIVATION=activation, BLOCK_T=WIDTH, BLOCK_N=shape.rows,
            BLOCK_K=shape.inputs, **shape.options, **self.chip.order,
        )  # fmt: skip
        multiply_blocks[(self.chip.processors,)](
            tiles_of(hidden, WIDTH, other.inputs), self.outer.tiles(1, other.rows, other.inputs), out, pairs.order,
            pairs.owners, pairs.used, pairs.shares, N=self.outer.rows, K=size, PROGRAMS=self.chip.processors,
            BLOCK_T=WIDTH, BLOCK_N=other.rows, BLOCK_K=other.inputs, **other.options, **self.chip.order,
        )  # fmt: skip
