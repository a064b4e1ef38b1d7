"""Launching sums over ranks that reach each other's memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.triton.chip import Chip
from anychip.triton.programs.peers import APART, REGION, add_over_ranks

BLOCK = 2048
"""Elements of a program, at most REGION bytes."""
MOST_BYTES = 256 * 1024
"""Of a message; behind it sending all of it to each rank takes longer than sharing the work."""
MOST_PROGRAMS = MOST_BYTES // 2 // BLOCK
"""They wait for each other, so all have to run at once."""


@dataclass(frozen=True, slots=True)
class PeerMemory:
    """What the ranks of one host share: addresses by rank, and what keeps them valid. See programs/peers.py."""

    rank: int
    inboxes: torch.Tensor
    """[ranks] int64."""
    flags: torch.Tensor
    """[ranks] int64."""
    rounds: torch.Tensor
    """[MOST_PROGRAMS] int32, this rank's own."""
    held: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, rank: int, inboxes: list[torch.Tensor], flags: list[torch.Tensor]) -> PeerMemory:
        """Of tensors that are each rank's own, or its peers' memory mapped here."""
        rounds = torch.zeros(MOST_PROGRAMS, dtype=torch.int32, device=flags[rank].device)
        return cls(rank, _addresses(inboxes, rank), _addresses(flags, rank), rounds, (*inboxes, *flags))

    @property
    def ranks(self) -> int:
        """How many."""
        return len(self.inboxes)


def _addresses(tensors: list[torch.Tensor], rank: int) -> torch.Tensor:
    return torch.tensor([each.data_ptr() for each in tensors], device=tensors[rank].device)


def new_inbox(ranks: int, device: torch.device) -> torch.Tensor:
    """Room for two messages of each rank."""
    return torch.empty(2 * ranks * MOST_PROGRAMS * REGION.value, dtype=torch.uint8, device=device)


def new_flags(ranks: int, device: torch.device) -> torch.Tensor:
    """Nobody has sent anything yet."""
    return torch.zeros(MOST_PROGRAMS, ranks, APART.value, dtype=torch.int32, device=device)


def fits(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be summed so."""
    floats = tensor.dtype in (torch.bfloat16, torch.float16, torch.float32)
    programs = -(-tensor.numel() // BLOCK)
    return floats and tensor.is_contiguous() and tensor.nbytes <= MOST_BYTES and programs <= MOST_PROGRAMS


def add_peers(tensor: torch.Tensor, memory: PeerMemory, chip: Chip) -> torch.Tensor:
    """Sum over ranks, in place; each rank calls it, for tensors of one shape that `fits`."""
    size = tensor.numel()
    if size:
        add_over_ranks[(-(-size // BLOCK),)](
            tensor, memory.inboxes, memory.flags, memory.rounds, memory.rank, size, RANKS=memory.ranks,
            PROGRAMS=MOST_PROGRAMS, BLOCK=BLOCK, num_warps=chip.tuning.warps(256), **chip.order,
        )  # fmt: skip
    return tensor
