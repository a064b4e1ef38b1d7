"""Launching sums over ranks whose GPUs reach each other's memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.triton.chip import Chip
from anychip.triton.programs.peers import APART, REGION, add_over_ranks

BLOCK = 2048
"""Elements that a program adds up; they take at most REGION bytes."""
MOST_BYTES = 256 * 1024
"""Bytes of the largest message: sending more than that whole to each rank takes longer than sharing the work."""
MOST_PROGRAMS = MOST_BYTES // 2 // BLOCK
"""Programs of the largest launch. They wait for those of other ranks, so all have to run at once."""


@dataclass(frozen=True, slots=True)
class PeerMemory:
    """Memory that the ranks of one host share, see programs/peers.py: addresses by rank."""

    rank: int
    inboxes: torch.Tensor
    """[ranks] int64 addresses: where each rank receives messages."""
    flags: torch.Tensor
    """[ranks] int64 addresses: where each rank is told that they are there."""
    rounds: torch.Tensor
    """[MOST_PROGRAMS] int32: how many sums each program of this rank has made."""
    held: tuple[torch.Tensor, ...]
    """The tensors at these addresses, kept so that they stay valid."""

    @classmethod
    def of(cls, rank: int, inboxes: list[torch.Tensor], flags: list[torch.Tensor]) -> PeerMemory:
        """`inboxes` and `flags` by rank: this rank's own tensors, and those of the others as mapped here."""
        rounds = torch.zeros(MOST_PROGRAMS, dtype=torch.int32, device=flags[rank].device)
        return cls(rank, _addresses(inboxes, rank), _addresses(flags, rank), rounds, (*inboxes, *flags))

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self.inboxes)


def _addresses(tensors: list[torch.Tensor], rank: int) -> torch.Tensor:
    return torch.tensor([each.data_ptr() for each in tensors], device=tensors[rank].device)


def new_inbox(ranks: int, device: torch.device) -> torch.Tensor:
    """Memory for two messages of each rank."""
    return torch.empty(2 * ranks * MOST_PROGRAMS * REGION.value, dtype=torch.uint8, device=device)


def new_flags(ranks: int, device: torch.device) -> torch.Tensor:
    """Flags that say that nobody has sent anything yet."""
    return torch.zeros(MOST_PROGRAMS, ranks, APART.value, dtype=torch.int32, device=device)


def fits(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be summed by `add_peers`: contiguous, floating point, and small enough."""
    floats = tensor.dtype in (torch.bfloat16, torch.float16, torch.float32)
    programs = -(-tensor.numel() // BLOCK)
    return floats and tensor.is_contiguous() and tensor.nbytes <= MOST_BYTES and programs <= MOST_PROGRAMS


def add_peers(tensor: torch.Tensor, memory: PeerMemory, chip: Chip) -> torch.Tensor:
    """Sum over ranks, in place. Every rank calls it with a tensor of the same shape, for which `fits` is true."""
    size = tensor.numel()
    if size:
        add_over_ranks[(-(-size // BLOCK),)](
            tensor, memory.inboxes, memory.flags, memory.rounds, memory.rank, size, RANKS=memory.ranks,
            PROGRAMS=MOST_PROGRAMS, BLOCK=BLOCK, num_warps=chip.tuning.warps(256), **chip.order,
        )  # fmt: skip
    return tensor
