"""One rank of test_communicator: `python two_ranks.py RANK STORE`."""

import sys
from datetime import timedelta

import torch
import torch.distributed as distributed

from anychip.parallel.communicator import TorchCommunicator


def check_collectives(group: TorchCommunicator, rank: int) -> None:
    mine = torch.arange(6.0).view(2, 3) + 10 * rank
    first, second = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3) + 10
    assert (group.rank, group.size) == (rank, 2)
    assert torch.equal(group.all_reduce(mine.clone()), first + second)
    for axis in (0, 1):
        assert torch.equal(group.all_gather(mine, axis), torch.cat([first, second], axis))
    assert torch.equal(group.all_gather(mine.T, 0), torch.cat([first.T, second.T]))
    assert torch.equal(group.reduce_scatter(mine, 0), (first + second)[rank : rank + 1])
    wide = torch.cat([mine, mine + 1], dim=1)
    total = torch.cat([first + second, first + second + 2], dim=1)
    assert torch.equal(group.reduce_scatter(wide, 1), total.chunk(2, 1)[rank])
    assert torch.equal(group.broadcast(mine.clone(), 1), second)
    exchanged = group.all_to_all(mine, [2, 0] if rank == 0 else [1, 1], [2, 1] if rank == 0 else [0, 1])
    assert torch.equal(exchanged, torch.cat([first, second[:1]]) if rank == 0 else second[1:])
    if rank == 0:
        group.send(mine, 1)
    else:
        assert torch.equal(group.receive(torch.empty(2, 3), 0), first)
    assert torch.equal(group.all_reduce(torch.ones(3, dtype=torch.bfloat16)), torch.full((3,), 2.0).bfloat16())
    group.barrier()
    group.close()


def main() -> None:
    rank, store = int(sys.argv[1]), sys.argv[2]
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    check_collectives(TorchCommunicator([0, 1], "gloo"), rank)
    alone = [TorchCommunicator([member], "gloo") for member in (0, 1)]
    assert [group.rank for group in alone] == [0 if member == rank else -1 for member in (0, 1)]
    assert torch.equal(alone[rank].all_reduce(torch.ones(2)), torch.ones(2))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
