"""The default communicator: torch.distributed, with whatever backend the platform declares."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as distributed

from anychip.plugin.communicator import Communicator


class TorchCommunicator(Communicator):
    """Collectives of one group of ranks.

    Whoever started the ranks has called `torch.distributed.init_process_group`; every rank of the world creates every
    group, in the same order.
    """

    def __init__(self, group: Sequence[int], backend: str) -> None:
        assert distributed.is_initialized(), "the ranks were not introduced to each other"
        self._ranks = list(group)
        self._group = distributed.new_group(self._ranks, backend=backend)
        self.size = len(self._ranks)
        self.rank = self._ranks.index(distributed.get_rank()) if distributed.get_rank() in self._ranks else -1

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """See `Communicator.all_reduce`; in place."""
        distributed.all_reduce(tensor, group=self._group)
        return tensor

    def all_gather(self, tensor: torch.Tensor, axis: int) -> torch.Tensor:
        """See `Communicator.all_gather`."""
        parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(self.size)]
        distributed.all_gather(parts, tensor.contiguous(), group=self._group)
        return torch.cat(parts, dim=axis)

    def reduce_scatter(self, tensor: torch.Tensor, axis: int) -> torch.Tensor:
        """See `Communicator.reduce_scatter`; the axis is a multiple of the group's size."""
        assert tensor.shape[axis] % self.size == 0, "the parts must be equal"
        parts = torch.cat([part.unsqueeze(0) for part in tensor.chunk(self.size, dim=axis)])
        result = torch.empty_like(parts[0])
        distributed.reduce_scatter_tensor(result, parts.flatten(0, 1), group=self._group)
        return result

    def all_to_all(self, tensor: torch.Tensor, send: Sequence[int], receive: Sequence[int]) -> torch.Tensor:
        """See `Communicator.all_to_all`."""
        result = tensor.new_empty(sum(receive), *tensor.shape[1:])
        distributed.all_to_all_single(result, tensor.contiguous(), list(receive), list(send), group=self._group)
        return result

    def broadcast(self, tensor: torch.Tensor, root: int) -> torch.Tensor:
        """See `Communicator.broadcast`; in place. `root` counts within the group."""
        distributed.broadcast(tensor, self._ranks[root], group=self._group)
        return tensor

    def send(self, tensor: torch.Tensor, to: int) -> None:
        """See `Communicator.send`."""
        distributed.send(tensor.contiguous(), self._ranks[to], group=self._group)

    def receive(self, tensor: torch.Tensor, source: int) -> torch.Tensor:
        """See `Communicator.receive`."""
        distributed.recv(tensor, self._ranks[source], group=self._group)
        return tensor

    def barrier(self) -> None:
        """See `Communicator.barrier`."""
        distributed.barrier(group=self._group)
