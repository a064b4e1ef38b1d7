"""Collectives between NVIDIA GPUs: NCCL's, and sums of small messages over peer memory where those are faster here.

Peer memory is what CUDA lets one process map of another's; NVLink's multicast is not used.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch
import torch.distributed as distributed
from torch.multiprocessing.reductions import reduce_tensor

from anychip.parallel.communicator import TorchCommunicator
from anychip.triton.chip import Chip
from anychip.triton.peers import PeerMemory, add_peers, fits, new_flags, new_inbox

SIZES = (8 << 10, 64 << 10, 256 << 10)
"""Bytes of the messages that are timed, ascending."""
CALLS, TIMED = 20, 7
"""Sums in a timed graph, and replays of it."""
STORAGE_DEVICE = 6
"""Index of the device among the arguments that torch's `reduce_tensor` returns."""


class CudaCommunicator(TorchCommunicator):
    """Collectives of one group of ranks; which sums go over peer memory is measured when it is made."""

    def __init__(self, group: Sequence[int], device: torch.device, chip: Chip) -> None:
        super().__init__(group, "nccl")
        self._chip = chip
        self._memory = self._peer_memory(device) if self.size > 1 and self._reachable(device) else None
        self.most_bytes = 0 if self._memory is None else self._measured(device)
        """Bytes of the largest message that is summed over peer memory; 0: none is."""

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """See `Communicator.all_reduce`; in place."""
        if self._memory is not None and tensor.nbytes <= self.most_bytes and fits(tensor):
            return self.over_peers(tensor)
        return super().all_reduce(tensor)

    def over_peers(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum a small message over peer memory, in place; see `anychip.triton.peers.add_peers`."""
        assert self._memory is not None, "these ranks do not reach each other's memory"
        return add_peers(tensor, self._memory, self._chip)

    def close(self) -> None:
        """See `Communicator.close`. Memory is freed between two barriers, so that none goes while a peer maps it."""
        if self._memory is None:
            return
        torch.cuda.synchronize(self._memory.rounds.device)
        self.barrier()
        self._memory, self.most_bytes = None, 0
        torch.cuda.ipc_collect()
        self.barrier()

    def _reachable(self, device: torch.device) -> bool:
        """Whether all ranks are on GPUs of one host that reach each other; all ranks come to the same answer."""
        found: list[str | None] = [None] * self.size
        properties = torch.cuda.get_device_properties(device)
        distributed.all_gather_object(found, f"{_host()} {device.index} {properties.uuid}", group=self._group)
        places = [place.split() for place in found if place is not None]
        own = places[self.rank][0]
        reached = [
            host == own and (int(index) == device.index or torch.cuda.can_device_access_peer(device, int(index)))
            for host, index, _ in places
        ]
        distinct = len({uuid for _, _, uuid in places}) == self.size
        return self._all(distinct and all(reached), device)

    def _peer_memory(self, device: torch.device) -> PeerMemory:
        """Allocate this rank's inbox and flags, and map those of all others. Every rank calls it."""
        own = new_inbox(self.size, device), new_flags(self.size, device)
        torch.cuda.synchronize(device)
        handed: list[object] = [None] * self.size
        distributed.all_gather_object(handed, [reduce_tensor(tensor) for tensor in own], group=self._group)
        inboxes, flags = [], []
        for rank, parts in enumerate(handed):
            assert isinstance(parts, list), "each rank hands over a list"
            inbox, flag = own if rank == self.rank else [_mapped(rebuild, given, device) for rebuild, given in parts]
            inboxes.append(inbox)
            flags.append(flag)
        self.barrier()
        return PeerMemory.of(self.rank, inboxes, flags)

    def _measured(self, device: torch.device) -> int:
        """The largest of SIZES up to which peer memory is right, and faster than NCCL, on all ranks."""
        largest = 0
        sample = torch.arange(1000, dtype=torch.float32, device=device) + self.rank
        right = torch.equal(self.over_peers(sample.clone()), super().all_reduce(sample.clone()))
        if not self._all(right, device):
            return 0
        for size in SIZES:
            message = torch.zeros(size // 2, dtype=torch.bfloat16, device=device)
            ours, theirs = (
                microseconds(lambda run=run, message=message: run(message), device)  # type: ignore[misc]
                for run in (self.over_peers, super().all_reduce)
            )
            if not self._all(ours < theirs, device):
                break
            largest = size
        return largest

    def _all(self, holds: bool, device: torch.device) -> bool:
        """Whether `holds` is true on all ranks. Every rank calls it."""
        count = torch.tensor([float(holds)], device=device)
        return float(super().all_reduce(count)) == self.size


def microseconds(run: Callable[[], object], device: torch.device) -> float:
    """Median microseconds of one call in a CUDA graph, as steps make their sums in graphs."""
    stream, graph, times = torch.cuda.Stream(device), torch.cuda.CUDAGraph(), []
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize(device)
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(CALLS):
            run()
    for _ in range(TIMED):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize(device)
        times.append(float(begin.elapsed_time(end)) * 1e3 / CALLS)
    return statistics.median(times)


def _mapped(rebuild: Callable[..., torch.Tensor], arguments: tuple[object, ...], device: torch.device) -> torch.Tensor:
    """Another process's tensor, mapped for this one's GPU."""
    changed = list(arguments)
    changed[STORAGE_DEVICE] = device.index
    return rebuild(*changed)


def _host() -> str:
    """A name of this machine that no other has."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
