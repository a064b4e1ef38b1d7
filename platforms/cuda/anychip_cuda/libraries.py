"""Attention of long prompts by a library: what one has to say of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

import torch

from anychip.ops.op import OpSpec


@dataclass(frozen=True, slots=True)
class Prompts:
    """The last rows of a step where each brings several tokens, the last ones of all that are then in its cache."""

    row: int
    """The first of them."""
    begin: int
    """Its first token."""
    start: tuple[int, ...]
    """[P+1] tokens at which each begins, counted from there, and the end of the last."""
    key_start: tuple[int, ...]
    """[P+1] the same of what is in their caches."""
    on_device: torch.Tensor
    """[P+1] int32, `start`."""
    keys_on_device: torch.Tensor
    """[P+1] int32, `key_start`."""
    fresh: bool
    """Whether nothing was cached before."""
    even: bool
    """Whether they are all alike; otherwise only what is on the device tells where they begin, and on the host how much
    they are at most."""

    @property
    def count(self) -> int:
        """How many."""
        return len(self.start) - 1

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each."""
        return _lengths(self.start)

    @property
    def key_lengths(self) -> tuple[int, ...]:
        """What is in the cache of each."""
        return _lengths(self.key_start)


def _lengths(start: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(last - first for first, last in pairwise(start))


class Keys(ABC):
    """Keys and values of a step's prompts in one layer."""

    beside: tuple[torch.Tensor, torch.Tensor] | None = None
    """[t, M, D] each, of fresh prompts that are alike, as they came. A value that is no number stays in them, and a
    library may spread it to rows that do not see it, unless it takes the prompts apart."""

    @abstractmethod
    def read(self, first: int, last: int, room: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Those from one to another, row after row, [room, M, D] each, with zeros behind the last.

        All values are numbers; the key of one that was not is none.
        """


class Library(ABC):
    """One that attends several tokens a row, each to its row up to itself. Picklable: others rehearse with it."""

    behind = 0
    """Lines of memory, whatever they hold, that it may read behind the queries."""
    keeps = False
    """Whether it takes keys and values that are beside the cache."""
    captures = False
    """Whether what it launches can be recorded, and then reads from the device where rows begin."""
    least = 2
    """Tokens of a row from which it is worth it."""
    most_keys = 1
    """What may be in the cache of a row for each of its tokens; 1: it takes fresh prompts alone."""

    @property
    def likely(self) -> bool:
        """Whether it may be chosen for most models, so that kernels are compiled ahead for it."""
        return True

    @property
    @abstractmethod
    def name(self) -> str:
        """With its version, for people."""

    @abstractmethod
    def refuses(self, spec: OpSpec) -> list[str]:
        """Every reason why it cannot serve a model."""

    @abstractmethod
    def attend(
        self, q: torch.Tensor, keys: Keys, prompts: Prompts, scale: float, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Attend q [t, N, D] to the prompts' keys. -> [t, N, D], `out` or new memory."""


def refusals(spec: OpSpec, dtypes: tuple[str, ...], largest: int) -> list[str]:
    """Reasons that all libraries share: heads are multiples of 8 up to `largest`, scores are plain."""
    reasons = [] if spec.dtype in dtypes else [f"{spec.dtype} is not among {', '.join(dtypes)}"]
    if spec.head_dim > largest or spec.head_dim % 8:
        reasons.append(f"head size {spec.head_dim} is no multiple of 8 up to {largest}")
    plain = {"a soft cap": spec.softcap, "sinks": spec.sinks}
    return reasons + [name for name, there in plain.items() if there]
