"""Collectives between the GPUs of one machine, a process each: right or wrong, then sums by NCCL and over peer memory.

`python benchmarks/two_gpus.py [RANKS]` prints what each rank found wrong, and microseconds a sum inside a CUDA graph.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing

from anychip.parallel.communicator import TorchCommunicator
from anychip.plugin import Communicator
from anychip.triton.peers import MOST_BYTES
from anychip_cuda.communicator import CudaCommunicator, microseconds
from anychip_cuda.platform import CudaPlatform

MESSAGES = (8 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 8 << 20)
"""Bytes."""


def expected(ranks: int, make: Callable[[int], torch.Tensor]) -> list[torch.Tensor]:
    """What every rank brings."""
    return [make(rank) for rank in range(ranks)]


def check(group: Communicator, device: torch.device) -> list[str]:
    """Names of the collectives that are wrong."""
    ranks, rank, wrong = group.size, group.rank, []

    def matrix(number: int) -> torch.Tensor:
        return torch.arange(4.0 * ranks, device=device).view(ranks, 4) + 10 * number

    parts = expected(ranks, matrix)
    total, mine = torch.stack(parts).sum(0), parts[rank]
    results = {
        "all_reduce": (group.all_reduce(mine.clone()), total),
        "all_gather 0": (group.all_gather(mine, 0), torch.cat(parts)),
        "all_gather 1": (group.all_gather(mine, 1), torch.cat(parts, 1)),
        "all_gather, not contiguous": (group.all_gather(mine.T, 0), torch.cat([part.T for part in parts])),
        "reduce_scatter": (group.reduce_scatter(mine, 0), total[rank : rank + 1]),
        "broadcast": (group.broadcast(mine.clone(), ranks - 1), parts[-1]),
        "all_to_all": (
            group.all_to_all(mine, [1] * ranks, [1] * ranks), torch.cat([part[rank : rank + 1] for part in parts]),
        ),
    }  # fmt: skip
    if rank == 0:
        group.send(mine, 1)
    elif rank == 1:
        results["send"] = group.receive(torch.empty_like(mine), 0), parts[0]
    group.barrier()
    wrong += [name for name, (found, right) in results.items() if not torch.equal(found, right)]
    return wrong


def check_sums(group: CudaCommunicator, device: torch.device) -> list[str]:
    """Sums over peer memory that are wrong, of many sizes and types, each several times."""
    wrong = []
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for size in (1, 7, 2048, 2049, 40000, MOST_BYTES // 4):
            for turn in range(5):
                parts = [
                    torch.randn(size, generator=torch.Generator().manual_seed(97 * rank + turn)).to(dtype).to(device)
                    for rank in range(group.size)
                ]
                right = torch.stack([part.float() for part in parts]).sum(0).to(dtype)
                if not torch.equal(group.over_peers(parts[group.rank].clone()), right):
                    wrong.append(f"{size} {dtype}, turn {turn}")
    return wrong


def work(rank: int, ranks: int, store: str) -> None:
    """One rank."""
    platform = CudaPlatform(rank)
    distributed.init_process_group(
        "nccl", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
    )
    group = [*range(ranks)]
    nccl, ours = TorchCommunicator(group, "nccl"), platform.communicator(group)
    assert isinstance(ours, CudaCommunicator)
    print(f"rank {rank}: NCCL wrong: {check(nccl, platform.device)}; ours: {check(ours, platform.device)}", flush=True)
    print(f"rank {rank}: peer memory up to {ours.most_bytes} bytes", flush=True)
    print(f"rank {rank}: sums wrong: {check_sums(ours, platform.device)}", flush=True)
    for size in MESSAGES:
        message = torch.zeros(size // 2, dtype=torch.bfloat16, device=platform.device)
        line = f"{size >> 10} KiB: NCCL {microseconds(partial(nccl.all_reduce, message), platform.device):.1f} us"
        if size <= MOST_BYTES:
            line += f", over peer memory {microseconds(partial(ours.over_peers, message), platform.device):.1f} us"
        if rank == 0:
            print(line, flush=True)
    ours.close()
    nccl.close()
    distributed.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(work, (count, os.fspath(Path(folder, "store"))), nprocs=count, join=True)
