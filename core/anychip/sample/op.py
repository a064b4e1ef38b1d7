"""The ops of choosing a token, which a platform may bring kernels for."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Protocol

import torch

from anychip.ops.op import TOLERANCE, Case, Op, OpSpec
from anychip.ops.shapes import dtype_of, normal
from anychip.sample.choose import greedy, sample
from anychip.sample.take import take_drawn, take_highest

EXACT = MappingProxyType(dict.fromkeys(TOLERANCE, 0.0))
"""A token is the right one or it is not, in whatever type a platform computes."""


class Greedy(Protocol):
    """Signature of `greedy`."""

    def __call__(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See anychip.sample.choose.greedy."""


class Sample(Protocol):
    """Signature of `sample`."""

    def __call__(
        self,
        logits: torch.Tensor,
        temperature: torch.Tensor,
        top_k: torch.Tensor,
        top_p: torch.Tensor,
        min_p: torch.Tensor,
        numbers: torch.Tensor,
        candidates: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See anychip.sample.choose.sample."""


class TakeHighest(Protocol):
    """Signature of `take_highest`."""

    def __call__(self, logits: torch.Tensor, rows: torch.Tensor, newest: torch.Tensor) -> torch.Tensor:
        """See anychip.sample.take.take_highest."""


class TakeDrawn(Protocol):
    """Signature of `take_drawn`."""

    def __call__(
        self,
        logits: torch.Tensor,
        keys: torch.Tensor,
        positions: torch.Tensor,
        temperature: torch.Tensor,
        top_k: torch.Tensor,
        top_p: torch.Tensor,
        min_p: torch.Tensor,
        candidates: int,
        rows: torch.Tensor,
        newest: torch.Tensor,
    ) -> torch.Tensor:
        """See anychip.sample.take.take_drawn."""


class ChoiceOps(Protocol):
    """What taking a token is made of."""

    @property
    def greedy(self) -> Greedy:
        """The bound `greedy`."""

    @property
    def sample(self) -> Sample:
        """The bound `sample`."""


class SampleOps(Protocol):
    """What the sampler calls; the bound `Ops` have it."""

    @property
    def take_highest(self) -> TakeHighest:
        """The bound `take_highest`."""

    @property
    def take_drawn(self) -> TakeDrawn:
        """The bound `take_drawn`."""


def _greedy_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    for rows in (1, 5):
        logits = normal(generator, rows, spec.vocab_size, dtype=spec.dtype, scale=4.0)
        yield Case(f"{rows} rows", (logits,))
        yield Case(f"{rows} rows, ties", (logits.round(),))
        yield Case(f"{rows} rows, all equal", (torch.zeros_like(logits),))
        yield Case(f"{rows} rows, one token left", (_all_but_last_masked(logits),))


def _sample_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    rows = 6
    logits = normal(generator, rows, spec.vocab_size, dtype="float32", scale=4.0)
    numbers = torch.rand(rows, 2, generator=generator)
    temperature = torch.tensor([0.01, 0.5, 0.8, 1.0, 1.3, 2.0])
    no_k, some_k = torch.zeros(rows, dtype=torch.int32), torch.tensor([1, 2, 5, 20, 50, 50], dtype=torch.int32)
    all_p, some_p = torch.ones(rows), torch.tensor([0.1, 0.5, 0.9, 0.95, 0.99, 1.0])
    no_min, some_min = torch.zeros(rows), torch.tensor([0.0, 0.01, 0.05, 0.1, 0.5, 1.0])
    vocabulary = spec.vocab_size
    yield Case("temperature", (logits.clone(), temperature, no_k, all_p, no_min, numbers, 0))
    yield Case("min_p", (logits.clone(), temperature, no_k, all_p, some_min, numbers, 0))
    yield Case("top_k", (logits.clone(), temperature, some_k, all_p, no_min, numbers, 50))
    yield Case("top_p", (logits.clone(), temperature, no_k, some_p, no_min, numbers, vocabulary))
    yield Case("all", (logits.clone(), temperature, some_k, some_p, some_min, numbers, 50))
    yield Case("mixed", (logits.clone(), temperature, some_k * (some_k > 5), some_p, some_min, numbers, vocabulary))
    masked = _all_but_last_masked(logits)
    yield Case("one token left", (masked, temperature, no_k, some_p, no_min, numbers, vocabulary))


def _take_highest_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    for case in _greedy_cases(generator, spec):
        yield Case(case.label, (*case.arguments, *_places(generator, len(case.arguments[0]))), writes=(2,))
    logits = normal(generator, 3, spec.vocab_size, dtype=spec.dtype)
    logits[0, 1], logits[1] = float("nan"), float("-inf")
    yield Case("a row without numbers, a row without tokens", (logits, *_places(generator, 3)), writes=(2,))


def _take_drawn_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    for case in _sample_cases(generator, spec):
        logits, temperature, top_k, top_p, min_p, _, candidates = case.arguments
        keys = torch.randint(-(2**63), 2**63 - 1, (len(logits),), generator=generator)
        positions = torch.randint(1 << 20, (len(logits),), generator=generator, dtype=torch.int32)
        parameters = temperature, top_k, top_p, min_p, candidates
        logits = logits.to(dtype_of(spec.dtype))
        yield Case(case.label, (logits, keys, positions, *parameters, *_places(generator, len(logits))), writes=(9,))


def _places(generator: torch.Generator, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows, and what was noted before for a few more of them."""
    rows = torch.randperm(count + 3, generator=generator)[:count].int()
    return rows, torch.arange(count + 3, dtype=torch.int32)


def _all_but_last_masked(logits: torch.Tensor) -> torch.Tensor:
    masked = torch.full_like(logits, float("-inf"))
    masked[:, -1] = logits[:, -1]
    return masked


SAMPLE_OPS = (
    Op("greedy", greedy, _greedy_cases, tolerance=EXACT),
    Op("sample", sample, _sample_cases, tolerance=EXACT),
    Op("take_highest", take_highest, _take_highest_cases, composite=True, tolerance=EXACT),
    Op("take_drawn", take_drawn, _take_drawn_cases, composite=True, tolerance=EXACT),
)
