"""Launching sums over ranks that reach each other's memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.triton.chip import Chip
from anychip.triton.programs.peers import add_over_ranks

BLOCK = 2048
"""Elements of a program."""
MOST_BYTES = 256 * 1024
"""Of a message; behind it reading all of it on each rank takes longer than sharing the work."""
MOST_PROGRAMS = MOST_BYTES // 2 // BLOCK
"""They wait for each other, so all have to run at once."""


@dataclass(frozen=True, slots=True)
class PeerMemory:
    """Addresses, by rank, of buffers of MOST_BYTES and of flags, zeros to begin with; `held` keeps them there."""

    rank: int
    buffers: torch.Tensor
    """[ranks] int64."""
    flags: torch.Tensor
    held: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, rank: int, buffers: list[torch.Tensor], flags: list[torch.Tensor]) -> PeerMemory:
        """Of tensors that are each rank's own, or its peers' memory mapped here."""
        return cls(rank, _addresses(buffers, rank), _addresses(flags, rank), (*buffers, *flags))

    @property
    def ranks(self) -> int:
        """How many."""
        return len(self.buffers)


def _addresses(tensors: list[torch.Tensor], rank: int) -> torch.Tensor:
    return torch.tensor([each.data_ptr() for each in tensors], device=tensors[rank].device)


def new_buffer(device: torch.device) -> torch.Tensor:
    """Room for a message."""
    return torch.empty(MOST_BYTES, dtype=torch.uint8, device=device)


def new_flags(ranks: int, device: torch.device) -> torch.Tensor:
    """Nobody has come yet."""
    return torch.zeros(MOST_PROGRAMS, ranks, dtype=torch.int32, device=device)


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
            tensor, memory.buffers, memory.flags, memory.rank, size, RANKS=memory.ranks, BLOCK=BLOCK,
            num_warps=chip.tuning.warps(256), **chip.order,
        )  # fmt: skip
    return tensor
