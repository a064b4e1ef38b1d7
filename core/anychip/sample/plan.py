"""What sampling has to do for the rows of a step, worked out once and kept while the same rows sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from anychip.engine.batch import Int32
from anychip.sample.bad_words import BadWords
from anychip.sample.masks import Entries
from anychip.sample.send import Send
from anychip.sample.state import NUMBERS, Feature, SamplerState

_Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Draws:
    """The D rows that draw at random, and their parameters, all [D]; see `anychip.sample.take.take_drawn`."""

    index: torch.Tensor | None
    """Their indices among the rows that sample; None if all of these draw."""
    rows: torch.Tensor
    """Stable rows."""
    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    keys: torch.Tensor
    """Streams of random numbers."""
    candidates: int
    """How many of the largest logits decide top_k and top_p, see `anychip.sample.choose.sample`."""


@dataclass(frozen=True, slots=True)
class Penalized:
    """The P rows with a penalty, and their penalties, all [P]."""

    index: torch.Tensor
    """Their indices among the rows that sample."""
    slots: torch.Tensor
    """Their slots in `TokenCounts`."""
    presence: torch.Tensor
    frequency: torch.Tensor
    repetition: torch.Tensor


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """For the S rows that sample, in batch order; a part is None where no row needs it."""

    host_rows: Int32
    """[S] stable rows, on the host."""
    version: int
    """`SamplerState.version` when it was made."""
    rows: torch.Tensor
    """[S] stable rows, on the device."""
    prompt_length: torch.Tensor
    """[S] int32."""
    min_tokens: torch.Tensor
    """[S] int32 tokens before which ends of sequence are masked."""
    greedy: torch.Tensor | None
    """Indices of the rows that take the highest logit; None when no row draws, so that all do."""
    greedy_rows: torch.Tensor | None
    """Their stable rows."""
    draws: Draws | None
    penalized: Penalized | None
    bias: Entries | None
    allowed: Entries | None
    restricted: torch.Tensor | None
    """Indices of the rows with allowed_token_ids."""
    stop: Entries | None
    bad_words: BadWords | None
    num_logprobs: int | None
    """Alternatives to report with each token; None when no row asks for log-probabilities."""

    @property
    def edits_tokens(self) -> bool:
        """Whether the logits of single tokens change before the choice."""
        return any(part is not None for part in (self.bias, self.allowed, self.stop, self.bad_words))

    @property
    def takes_highest(self) -> bool:
        """Whether every row takes the highest of the model's own logits, and wants to know no more."""
        plain = self.draws is None and self.penalized is None and self.num_logprobs is None
        return plain and not self.edits_tokens

    def serves(self, rows: Int32, version: int) -> bool:
        """Whether this plan is still the right one for `rows`."""
        return version == self.version and rows.tobytes() == self.host_rows.tobytes()


def make_plan(state: SamplerState, rows: Int32) -> SamplePlan:
    """Work out the plan of a step in which `rows` [S] sample."""
    features = state.features[rows]
    index_of_row = np.full(state.max_rows, -1, np.int64)
    index_of_row[rows] = np.arange(len(rows))
    used = Feature(int(np.bitwise_or.reduce(features, initial=0)))
    device_rows = _upload(rows, state.send)
    random = _where(features, Feature.RANDOM)
    greedy = np.flatnonzero((features & Feature.RANDOM) == 0)
    allowed = Feature.ALLOWED in used
    return SamplePlan(
        host_rows=rows.copy(),
        version=state.version,
        rows=device_rows,
        prompt_length=state.integers[device_rows, 1],
        min_tokens=state.integers[device_rows, 2],
        greedy=_upload(greedy, state.send) if len(random) else None,
        greedy_rows=_upload(rows[greedy], state.send) if len(random) else None,
        draws=_draws(state, rows, random) if len(random) else None,
        penalized=_penalized(state, rows, _where(features, Feature.PENALTY)) if Feature.PENALTY in used else None,
        bias=state.bias.select(index_of_row) if Feature.BIAS in used else None,
        allowed=state.allowed.select(index_of_row) if allowed else None,
        restricted=_upload(_where(features, Feature.ALLOWED), state.send) if allowed else None,
        stop=state.stop.select(index_of_row) if Feature.MIN_TOKENS in used else None,
        bad_words=state.bad_words.select(index_of_row) if Feature.BAD_WORDS in used else None,
        num_logprobs=int(state.logprobs[rows].max()) if Feature.LOGPROBS in used else None,
    )


def _draws(state: SamplerState, rows: Int32, random: _Indices) -> Draws:
    drawn = rows[random]
    device_rows = _upload(drawn, state.send)
    numbers = state.numbers[device_rows]
    return Draws(
        index=None if len(random) == len(rows) else _upload(random, state.send),
        rows=device_rows,
        temperature=numbers[:, NUMBERS.index("temperature")].contiguous(),
        top_k=state.integers[device_rows, 0],
        top_p=numbers[:, NUMBERS.index("top_p")].contiguous(),
        min_p=numbers[:, NUMBERS.index("min_p")].contiguous(),
        keys=state.keys[device_rows],
        candidates=_candidates(state, drawn),
    )


def _candidates(state: SamplerState, rows: Int32) -> int:
    """How many of the largest logits decide: the largest top_k, or all of them if a row has top_p alone."""
    truncation = state.features[rows] & (Feature.TOP_K | Feature.TOP_P)
    if np.any(truncation == Feature.TOP_P):
        return state.vocab_size
    return int(np.where(truncation != 0, state.top_k[rows], 0).max())


def _penalized(state: SamplerState, rows: Int32, index: _Indices) -> Penalized:
    penalized = rows[index]
    numbers = state.numbers[_upload(penalized, state.send)]
    slots = np.array([state.counts.slots[int(row)] for row in penalized], np.int64)
    return Penalized(
        index=_upload(index, state.send),
        slots=_upload(slots, state.send),
        presence=numbers[:, NUMBERS.index("presence_penalty")].contiguous(),
        frequency=numbers[:, NUMBERS.index("frequency_penalty")].contiguous(),
        repetition=numbers[:, NUMBERS.index("repetition_penalty")].contiguous(),
    )


def _where(features: Int32, feature: Feature) -> _Indices:
    return np.flatnonzero(features & feature)


def _upload(array: _Indices | Int32, send: Send) -> torch.Tensor:
    return send(np.ascontiguousarray(array, np.int64))
