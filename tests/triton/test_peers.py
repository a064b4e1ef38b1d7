"""Sums over ranks in Triton's interpreter: each rank a process, their buffers in memory that they share."""

from __future__ import annotations

import pytest
import torch
import torch.multiprocessing as multiprocessing
from tests.triton.mode import require_triton

require_triton(interpreted=True)

from anychip.triton.chip import Chip
from anychip.triton.peers import BLOCK, PeerMemory, add_peers, fits, new_flags, new_inbox

CPU = torch.device("cpu")
SIZES = (1, 2048, 5000)
ROUNDS = 3
"""Of each size and type: places of the inbox are written again."""


def message(rank: int, size: int, round_number: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(100 * rank + round_number)).to(dtype)


def work(rank: int, inboxes: list[torch.Tensor], flags: list[torch.Tensor], results: dict[str, torch.Tensor]) -> None:
    torch.set_num_threads(1)
    memory = PeerMemory.of(rank, inboxes, flags)
    for out in results.values():
        size, dtype = out.shape[2], out.dtype
        for round_number in range(ROUNDS):
            out[rank, round_number] = add_peers(message(rank, size, round_number, dtype), memory, Chip(6))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_rank_gets_the_sum_again_and_again(ranks: int) -> None:
    inboxes = [new_inbox(ranks, CPU).share_memory_() for _ in range(ranks)]
    flags = [new_flags(ranks, CPU).share_memory_() for _ in range(ranks)]
    kinds = [(size, dtype) for size in SIZES for dtype in (torch.float32, torch.float16)]
    results = {
        f"{size} {dtype}": torch.zeros(ranks, ROUNDS, size, dtype=dtype).share_memory_() for size, dtype in kinds
    }
    multiprocessing.spawn(work, (inboxes, flags, results), nprocs=ranks, join=True)
    for (size, dtype), out in zip(kinds, results.values(), strict=True):
        for round_number in range(ROUNDS):
            parts = [message(rank, size, round_number, dtype).float() for rank in range(ranks)]
            right = torch.stack(parts).sum(0)
            torch.testing.assert_close(out[0, round_number].float(), right, rtol=2e-3, atol=2e-3)
            assert all(torch.equal(out[0, round_number], out[rank, round_number]) for rank in range(ranks))
    rounds = [ROUNDS * sum(-(-size // BLOCK) > program for size, _ in kinds) for program in range(4)]
    assert all(torch.equal(flag[:4, :, 0], torch.tensor(rounds).int()[:, None].expand(-1, ranks)) for flag in flags)


def test_what_does_not_fit_is_known() -> None:
    assert fits(torch.zeros(64 * BLOCK, dtype=torch.bfloat16))
    assert not fits(torch.zeros(64 * BLOCK + 1, dtype=torch.bfloat16))
    assert not fits(torch.zeros(64 * BLOCK, dtype=torch.float32))
    assert not fits(torch.zeros(8, 8).t()[:4])
    assert not fits(torch.zeros(8, dtype=torch.int32))
