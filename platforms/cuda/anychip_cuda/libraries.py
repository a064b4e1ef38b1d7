"""What the attention of a library (FlashAttention, cuDNN) has to say of itself to serve long prompts.

Shapes: t tokens of the prompts, P prompts, K keys, N query heads, M key heads, D head size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

import torch

from anychip.ops.op import OpSpec


@dataclass(frozen=True, slots=True)
class Prompts:
    """The last rows of a step, those that a library attends: each brings several tokens, the newest of its sequence.

    Tokens and keys are counted from the first prompt's first one.
    """

    first_token: int
    """Where the first prompt begins among all tokens of the step."""
    query_start: tuple[int, ...]
    """[P+1] where each prompt's new tokens begin, and the end of the last. Bounds only, if `captured`."""
    key_start: tuple[int, ...]
    """[P+1] likewise for its keys: the cached ones and those of its new tokens. Bounds only, if `captured`."""
    device_query_start: torch.Tensor
    """[P+1] int32, `query_start` on the device."""
    device_key_start: torch.Tensor
    """[P+1] int32, `key_start` on the device."""
    fresh: bool
    """Whether none of them has keys from an earlier step."""
    alike: bool
    """Whether all have equally many new tokens and equally many keys, so that they form a matrix. If not, a library has
    to read the two arrays on the device: in a captured step the host knows only (0, most tokens) and (0, most keys)."""

    @property
    def count(self) -> int:
        """P."""
        return len(self.query_start) - 1

    @property
    def lengths(self) -> tuple[int, ...]:
        """[P] new tokens of each."""
        return _differences(self.query_start)

    @property
    def key_lengths(self) -> tuple[int, ...]:
        """[P] keys of each."""
        return _differences(self.key_start)


def _differences(start: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(last - first for first, last in pairwise(start))


class Keys(ABC):
    """Keys and values of a step's prompts in one layer."""

    computed: tuple[torch.Tensor, torch.Tensor] | None = None
    """[t, M, D] each, as the layer computed them, if the prompts are fresh and alike and the library `takes_computed`;
    None: only `read` gives them. NaN and infinity are left in them, so the library must keep the prompts apart: a
    masked key multiplied by zero would carry them into other prompts."""

    @abstractmethod
    def read(self, first: int, last: int, room: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys `first` to `last` out of the cache, [room, M, D] each, zeros behind the last.

        Values are finite: where one is not, it is read as 0 and its key as NaN, so only rows that see it are spoilt.
        """


class Library(ABC):
    """Causal attention of rows that bring several tokens. Picklable: processes that compile ahead rehearse with it."""

    query_overread = 0
    """Rows of memory behind the queries that it may read, whatever they hold; they have to be allocated."""
    takes_computed = False
    """Whether it takes `Keys.computed`, which spares reading the cache."""
    capturable = False
    """Whether its launches can be captured in a graph: it then finds on the device where prompts begin."""
    min_tokens = 2
    """New tokens of a row from which it is worth its overhead."""
    max_keys_per_token = 1
    """A row is left to Triton if it has more keys than this for each new token; 1: only fresh prompts are taken."""

    @property
    def likely(self) -> bool:
        """Whether it is expected to be chosen for most models, so that kernels are compiled ahead for steps with it."""
        return True

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name and version, for people."""

    @abstractmethod
    def refuses(self, spec: OpSpec) -> list[str]:
        """Every reason why it cannot serve a model; empty if it can."""

    @abstractmethod
    def attend(
        self, q: torch.Tensor, keys: Keys, prompts: Prompts, scale: float, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Attend q [t, N, D] to the prompts' keys -> [t, N, D], written to `out` if it is given."""


def refusals(spec: OpSpec, dtypes: tuple[str, ...], largest: int) -> list[str]:
    """Reasons to refuse a model that all libraries share.

    They compute in `dtypes`, on heads whose size is a multiple of 8 up to `largest`, with neither soft cap nor sinks.
    """
    reasons = [] if spec.dtype in dtypes else [f"{spec.dtype} is not among {', '.join(dtypes)}"]
    if spec.head_dim > largest or spec.head_dim % 8:
        reasons.append(f"head size {spec.head_dim} is no multiple of 8 up to {largest}")
    unserved = {"a soft cap": spec.softcap, "sinks": spec.sinks}
    return reasons + [name for name, wanted in unserved.items() if wanted]
