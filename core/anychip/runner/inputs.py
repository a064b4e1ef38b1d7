"""What a forward pass reads and leaves on the device. A step's arrays are uploaded in one copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from anychip.engine.batch import POOL, SAMPLE, Batch, Int32
from anychip.ops.attention import AttentionInputs
from anychip.ops.ragged import Ragged
from anychip.sample.send import Send

Packed = TypeVar("Packed", torch.Tensor, np.ndarray)
ALIGNMENT = 4
"""Arrays begin at multiples of so many int32 in a packed one: 16 bytes."""


@dataclass(frozen=True, slots=True)
class DeviceBatch:
    """What a forward pass reads. T tokens, R rows; tensors are views into one int32 buffer on the device."""

    token_ids: torch.Tensor
    """[T]; PENDING where `pending` says so, until the runner fills them in."""
    positions: torch.Tensor
    """[T]."""
    rows: torch.Tensor
    """[R] stable rows."""
    newest: torch.Tensor
    """[R] index among the T tokens of each row's last one."""
    sampled_at: torch.Tensor
    """[S] indices of the tokens after which a row samples."""
    sampled_rows: torch.Tensor
    """[S] stable rows."""
    scored_at: torch.Tensor
    """[M] indices of the tokens after which a given token is scored."""
    targets: torch.Tensor
    """[M] the tokens to score."""
    pooled_at: torch.Tensor
    """[V] indices of the last tokens of prompts whose vector is wanted."""
    ragged: Ragged
    groups: tuple[AttentionInputs, ...]
    """One a KV group."""
    pending: bool
    """Whether the newest token of some row is still on the device."""
    greedy: bool
    """Whether every row that samples takes its highest logit, as it is."""
    states: bool = False
    """Whether the hidden states of all tokens are wanted, not only of those after which a row samples."""
    text_ids: torch.Tensor | None = None
    """[T] which text a token is of, where that was worked out before."""
    deferred: bool = False
    """Whether logits are not computed unless `greedy`: who wants them takes them from `Computed.selected`."""

    @property
    def wanted_at(self) -> torch.Tensor | None:
        """The tokens whose hidden states count; each row's last where none samples, None for all."""
        if self.states:
            return None
        if not len(self.sampled_at):
            return self.newest
        return None if len(self.sampled_at) == len(self.token_ids) else self.sampled_at


@dataclass(frozen=True, slots=True)
class Computed:
    """What a forward pass left on the device; the next one may overwrite it."""

    inputs: DeviceBatch
    hidden: torch.Tensor
    """[T, H] after the last norm, or fewer rows unless `DeviceBatch.states`."""
    logits: torch.Tensor | None = None
    """[S, V] of the rows that sample; None if none does, or if they are to be taken from `selected` when wanted."""
    chosen: torch.Tensor | None = None
    """[S] int64 tokens of the highest logits, already noted as the rows' newest; None unless `DeviceBatch.greedy`."""
    on_host: Int32 | None = None
    """[S] the same on the host, in place of `chosen`, for devices whose results are there at once."""
    again: Callable[[bool], Computed] | None = None
    """A quicker way to run the same batch again once its arrays have advanced; True asks for `logits`. None: none.

    It is called outside torch's inference mode, as entering that costs more than the call.
    """
    selected: torch.Tensor | None = None
    """[S, H] hidden states of the rows that sample."""


Forward = Callable[[DeviceBatch], Computed]
"""A step's forward pass, given its arrays on the device; it does not wait for the device."""
RunBatch = Callable[[Batch, bool], Computed]
"""Runs a batch from the host's arrays; True: every row that samples takes its highest logit, as it is."""


_NONE: Int32 = np.zeros(0, np.int32)
_PADS = [np.zeros(count, np.int32) for count in range(ALIGNMENT)]


@dataclass(frozen=True, slots=True)
class Wanted:
    """On the host, what a batch asks of its rows: to sample, to score prompt tokens, or to pool."""

    sampled_rows: Int32
    """[S] stable rows."""
    scored_rows: Int32
    """[M] stable rows."""
    scored_positions: Int32
    """[M] positions of the scored tokens in their requests."""
    pooled_rows: Int32
    """[V] stable rows."""
    token_start: Int32
    """[S+1] as in `StepResult`."""

    @property
    def nothing_else(self) -> bool:
        """Whether tokens are sampled, and that is all."""
        return not (len(self.scored_rows) or len(self.pooled_rows))

    @classmethod
    def of(cls, batch: Batch) -> Wanted:
        """Read a batch's `logits_at` and `targets`."""
        if batch.only_samples:
            return cls(batch.rows.copy(), _NONE, _NONE, _NONE, batch.query_start.copy())
        rows = batch.rows[np.searchsorted(batch.query_start, batch.logits_at, side="right") - 1]
        scored, pooled = batch.targets >= 0, batch.targets == POOL
        sampled = rows[batch.targets == SAMPLE]
        start = np.arange(len(sampled) + 1, dtype=np.int32)
        return cls(sampled, rows[scored], batch.positions[batch.logits_at[scored]] + 1, rows[pooled], start)


def uploading(step: Forward, send: Send) -> RunBatch:
    """Run each batch by `step`, on an upload of its own."""

    def run(batch: Batch, greedy: bool) -> Computed:
        return step(upload(batch, send, greedy))

    return run


def upload(batch: Batch, send: Send, greedy: bool, apart: bool = False) -> DeviceBatch:
    """Copy a batch to the device, in one copy or (`apart`) array by array; none of its own arrays is kept."""
    sent = _sent_apart if apart else _sent
    always = (batch.token_ids, batch.positions, batch.query_start, batch.seq_lens, batch.rows)
    if batch.only_samples:
        parts = sent((*always, batch.logits_at, _NONE, *batch.block_tables), send)
        token_ids, positions, query_start, seq_lens, rows, at, nothing, *tables = parts
        newest, at_rows, scored_at, targets, pooled_at = at, rows, nothing, nothing, nothing
    else:
        parts = sent((*always, *_places(batch), *batch.block_tables), send)
        token_ids, positions, query_start, seq_lens, rows, newest, at, at_rows, scored_at, targets, *rest = parts
        pooled_at, *tables = rest
    shared = _SharedInputs(batch, positions, query_start, seq_lens)
    return DeviceBatch(
        token_ids=token_ids,
        positions=positions,
        rows=rows,
        newest=newest,
        sampled_at=at,
        sampled_rows=at_rows,
        scored_at=scored_at,
        targets=targets,
        pooled_at=pooled_at,
        ragged=Ragged(query_start, shared.query_start, shared.max_query),
        groups=tuple(shared.group(table) for table in tables),
        pending=bool(np.count_nonzero(batch.token_ids < 0)),
        greedy=greedy,
        states=len(scored_at) > 0,
    )


def _places(batch: Batch) -> tuple[Int32, ...]:
    """Each row's last token; where rows sample, and which; where tokens are scored, and which; where prompts end."""
    scored = batch.targets >= 0
    sampled_at = batch.logits_at[batch.targets == SAMPLE]
    sampled_rows = batch.rows[np.searchsorted(batch.query_start, sampled_at, side="right") - 1]
    pooled_at = batch.logits_at[batch.targets == POOL]
    return (
        batch.query_start[1:] - 1,
        sampled_at,
        sampled_rows,
        batch.logits_at[scored],
        batch.targets[scored],
        pooled_at,
    )


def _sent(arrays: Sequence[Int32], send: Send) -> list[torch.Tensor]:
    """Arrays on the device, by one copy; each begins at a multiple of 16 bytes."""
    pads = [_PADS[-array.size % ALIGNMENT] for array in arrays]
    filled = [part for array, pad in zip(arrays, pads, strict=True) for part in (array.ravel(), pad)]
    packed, sizes = np.concatenate(filled, dtype=np.int32), [part.size for part in filled]
    parts = send(packed).split_with_sizes(sizes)[::2]
    return [part if array.ndim == 1 else part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]


def _sent_apart(arrays: Sequence[Int32], send: Send) -> list[torch.Tensor]:
    """Arrays on the device, each by a copy of its own."""
    return [send(array) for array in arrays]


class _SharedInputs:
    """Attention inputs but for the block table, which differs by group."""

    def __init__(
        self, batch: Batch, positions: torch.Tensor, query_start: torch.Tensor, seq_lens: torch.Tensor
    ) -> None:
        self.device_arrays = positions, query_start, seq_lens
        self.query_start, self.seq_lens = batch.query_start.copy(), batch.seq_lens.copy()
        self.num_single = batch.num_single
        all_single = batch.num_single == batch.num_rows
        self.max_query = min(1, batch.num_tokens) if all_single else int(np.diff(batch.query_start).max())
        self.max_seq = int(batch.seq_lens.max(initial=0))

    def group(self, table: torch.Tensor) -> AttentionInputs:
        """The inputs of one group."""
        positions, query_start, seq_lens = self.device_arrays
        return AttentionInputs(
            positions=positions,
            query_start=query_start,
            seq_lens=seq_lens,
            block_table=table,
            host_query_start=self.query_start,
            host_seq_lens=self.seq_lens,
            num_single=self.num_single,
            max_query=self.max_query,
            max_seq=self.max_seq,
        )


def aligned(count: int) -> int:
    """Elements of a packed int32 array with its padding: the next one begins at a multiple of 16 bytes.

    Compiled kernels come in a variant for pointers aligned so; it must not depend on the batch which one is needed.
    """
    return -(-count // ALIGNMENT) * ALIGNMENT


def views(packed: Packed, shapes: Sequence[tuple[int, ...]]) -> Iterator[Packed]:
    """The places of arrays of these shapes in a packed one."""
    start = 0
    for shape in shapes:
        size = math.prod(shape)
        yield packed[start : start + size].reshape(shape)
        start += aligned(size)
