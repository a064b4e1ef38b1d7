"""Collectives among ranks, as the core knows them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any


class Communicator(ABC):
    """Collectives of one group of ranks. Tensors are the platform's own; all calls are ordered on its stream."""

    rank: int
    """This rank's number in the group."""
    size: int
    """Ranks of the group."""

    @abstractmethod
    def all_reduce(self, tensor: Any) -> Any:
        """Sum over ranks, [..] -> [..]."""

    @abstractmethod
    def all_gather(self, tensor: Any, axis: int) -> Any:
        """Concatenate the ranks' parts along `axis`."""

    @abstractmethod
    def reduce_scatter(self, tensor: Any, axis: int) -> Any:
        """Sum over ranks, then keep this rank's part along `axis`."""

    @abstractmethod
    def all_to_all(self, tensor: Any, send: Sequence[int], receive: Sequence[int]) -> Any:
        """Exchange parts of axis 0: `send[r]` rows go to rank r, `receive[r]` come from it."""

    @abstractmethod
    def broadcast(self, tensor: Any, root: int) -> Any:
        """Rank `root`'s value on every rank."""

    @abstractmethod
    def send(self, tensor: Any, to: int) -> None:
        """Hand a tensor to another rank."""

    @abstractmethod
    def receive(self, tensor: Any, source: int) -> Any:
        """Fill `tensor` with what `source` sent."""

    @abstractmethod
    def barrier(self) -> None:
        """Return once every rank has come here."""

    def close(self) -> None:  # noqa: B027  # most have nothing to let go of
        """Let go of what is shared with other ranks; every rank calls it, once, behind all other calls."""
