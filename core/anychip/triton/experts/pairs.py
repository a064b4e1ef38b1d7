"""Pairs of a token and one of its experts, sorted by expert on the device. Each expert has whole blocks of pairs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.triton.chip import Chip
from anychip.triton.powers import power_of_two
from anychip.triton.programs.pairs import count_pairs, place_chunks, scatter_pairs, sort_pairs

CHUNK = 2048
"""Most pairs that are sorted by one launch, in which each program reads all of them."""
SHARED = 1024, 4096
"""Fewest and most pairs of a program where more pairs are shared among programs."""
PROGRAMS = 32
"""Programs that share them, unless each would then have more than the most."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs sorted by expert, in B blocks of `width`; see programs/pairs.py. Pair p is of token p // k."""

    shares: torch.Tensor
    """[T, k] float32 by which each expert's output is scaled."""
    order: torch.Tensor
    """[B * width] int32 numbers of pairs, -1 where a block is not full."""
    owners: torch.Tensor
    """[B] int32 each block's expert, -1 behind the last block."""
    done: torch.Tensor
    """[B] int32 zeros: programs count here which of a block's gated products are done."""
    used: torch.Tensor
    """[1] int32 how many blocks have an expert."""
    width: int

    @property
    def each(self) -> int:
        """k, experts of a token."""
        return self.shares.shape[1]


def sorted_pairs(chip: Chip, shares: torch.Tensor, chosen: torch.Tensor, experts: int, width: int) -> Pairs:
    """Sort the pairs of `chosen` [T, k] int32 into blocks of `width`, by one launch if they are few, else by three.

    The number of blocks is an upper bound, as only the device knows how the pairs are spread over `experts` experts.
    """
    pairs, device = chosen.numel(), chosen.device
    blocks = most_blocks(pairs, experts, width)
    order = torch.empty(blocks * width, dtype=torch.int32, device=device)
    owners = torch.empty(blocks, dtype=torch.int32, device=device)
    done = torch.empty(blocks, dtype=torch.int32, device=device)
    used = torch.empty(1, dtype=torch.int32, device=device)
    chunk = (
        power_of_two(pairs) if pairs <= CHUNK else min(SHARED[1], max(SHARED[0], power_of_two(-(-pairs // PROGRAMS))))
    )
    sizes = {"E": experts, "BLOCK_E": power_of_two(experts + 1), **chip.order}
    if pairs <= CHUNK:
        sort_pairs[(experts,)](chosen, order, owners, done, used, pairs, blocks, BLOCK_P=chunk, BLOCK_T=width, **sizes)
        return Pairs(shares, order, owners, done, used, width)
    chunks = -(-pairs // chunk)
    counts = torch.empty(chunks + 2, sizes["BLOCK_E"], dtype=torch.int32, device=device)
    count_pairs[(chunks,)](chosen, counts, pairs, BLOCK_P=chunk, **sizes)
    warps = chip.tuning.warps(512)
    place_chunks[(1,)](counts, CHUNKS=chunks, BLOCK_C=power_of_two(chunks), BLOCK_T=width, num_warps=warps, **sizes)
    scatter_pairs[(chunks + experts,)](
        chosen, counts, order, owners, done, used, pairs, blocks, CHUNKS=chunks, BLOCK_P=chunk, BLOCK_T=width, **sizes
    )
    return Pairs(shares, order, owners, done, used, width)


def most_blocks(pairs: int, experts: int, width: int) -> int:
    """Most blocks of `width` that so many pairs take, however they are spread over the experts."""
    return min(pairs, experts + pairs // width)
