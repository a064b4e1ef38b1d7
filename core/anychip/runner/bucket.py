"""One captured shape of a step: T tokens in R rows, in memory that never moves.

Each step brings its arrays in one copy: those of `anychip.runner.padding`, then

    table [R, width] | table of the next KV group ..

The tables are then spread to lines as long as the longest sequence. Steps never run at the same time, so that all
buckets share this memory, and where hidden states are left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from anychip.engine.batch import Batch, Int32
from anychip.plugin.contract import KVPlan
from anychip.runner.inputs import Computed, Forward
from anychip.runner.padding import Padding
from anychip.sample.send import Send

Replay = Callable[[], Computed]
Capture = Callable[[Replay], Replay]
"""Records what a function does on the device; the result does the same again, with the same memory."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a captured step is padded to: tokens and rows, of which the first `single` bring one token each."""

    tokens: int
    rows: int
    single: int
    greedy: bool
    """Whether each row's highest logit is taken at once; else logits are left to whoever wants them."""


class Room:
    """What the steps of all buckets read, and where they leave hidden states: as large as the largest needs."""

    def __init__(self, tokens: int, rows: int, plan: KVPlan, device: torch.device) -> None:
        self.width, groups = -(-plan.max_model_len // plan.block_size), len(plan.groups)
        size = Padding(tokens, rows, plan.max_num_seqs).size + groups * rows * self.width
        self.packed = torch.zeros(size, dtype=torch.int32, device=device)
        self.tables = [torch.zeros(rows, self.width, dtype=torch.int32, device=device) for _ in range(groups)]
        self._rows = rows
        self._states: torch.Tensor | None = None

    def states(self, like: torch.Tensor) -> torch.Tensor:
        """The place of states like these, [R, H]; there is none before the first call."""
        if self._states is None:
            self._states = like.new_empty(self._rows, like.shape[1])
        return self._states[: len(like)]


class Bucket:
    """A captured step. No graph keeps logits: what it holds for itself is a token a row.

    Of a plan of attention, what it reads on the host may only say how large a launch is: the contents change.
    """

    def __init__(self, shape: Shape, step: Forward, plan: KVPlan, room: Room, send: Send, capture: Capture) -> None:
        self._shape, self._send, self._room, self._spare = shape, send, room, plan.max_num_seqs
        self._padding = Padding(shape.tokens, shape.rows, self._spare)
        self._tables = [table[: shape.rows] for table in room.tables]
        inputs = self._padding.inputs(room.packed, self._tables, plan.max_model_len)
        if shape.single < shape.rows:
            longest = shape.tokens - shape.single
            groups = (replace(group, num_single=shape.single, max_query=longest) for group in inputs.groups)
            inputs = replace(inputs, groups=tuple(groups))
        inputs = replace(inputs, greedy=shape.greedy, deferred=True)
        self._bring([np.zeros((0, 1), np.int32)] * len(plan.groups))
        self._keep(step(inputs))  # compiles and allocates what cannot be while capturing
        self._replay = capture(lambda: self._keep(step(inputs)))

    def run(self, batch: Batch) -> Computed:
        """Bring a batch that fits, and replay. Its rows sample, or bring tokens only; nothing else is wanted."""
        if 0 < self._shape.single < self._shape.rows:
            batch = widened(batch, self._shape.single, self._spare)
        sampling = self._padding.fill(batch)
        self._bring(batch.block_tables)
        return self._selected(self._replay(), batch, sampling)

    def _bring(self, tables: Sequence[Int32]) -> None:
        """Send everything."""
        head = self._padding.size
        # Columns behind the longest sequence's are padding of the batch's own.
        width = min(tables[0].shape[1], self._room.width) if tables else 0
        packed = np.zeros(head + len(tables) * self._shape.rows * width, np.int32)
        self._padding.pack(packed)
        spread = packed[head:].reshape(len(tables), self._shape.rows, width)
        for target, table in zip(spread, tables, strict=True):
            target[: len(table)] = table[:, :width]
        sent = self._send(packed, self._room.packed[: packed.size])[head:].view(spread.shape)
        for static, part in zip(self._tables, sent, strict=True):
            static[:, :width] = part

    def _keep(self, computed: Computed) -> Computed:
        """The states of rows that sample where all buckets leave theirs; all else other captured steps may use."""
        assert computed.selected is not None, "a captured step samples"
        states = self._room.states(computed.selected)
        states.copy_(computed.selected)
        return replace(computed, hidden=states, selected=states, logits=None)

    def _selected(self, computed: Computed, batch: Batch, sampling: np.ndarray) -> Computed:
        """What was computed for the rows that sample."""
        inputs, states, chosen, count = computed.inputs, computed.hidden, computed.chosen, len(sampling)
        if count == batch.num_rows:
            at, states = inputs.sampled_at[:count], states[:count]
            chosen = None if chosen is None else chosen[:count]
        else:
            index = self._send(sampling.astype(np.int64))
            at, states = inputs.sampled_at[index], states[index]
            chosen = None if chosen is None else chosen[index]
        return replace(computed, inputs=replace(inputs, sampled_at=at), hidden=states, selected=states, chosen=chosen)


def widened(batch: Batch, single: int, spare: int) -> Batch:
    """A batch with padding behind its rows of one token, so that there are `single` of them.

    Each brings a token at position 0 of the null block, and is noted in the row `spare`.
    """
    at, more = batch.num_single, single - batch.num_single
    start = batch.query_start

    def longer(array: Int32, value: int) -> Int32:
        return np.concatenate([array[:at], np.full((more, *array.shape[1:]), value, np.int32), array[at:]])

    return replace(
        batch,
        token_ids=longer(batch.token_ids, 0),
        positions=longer(batch.positions, 0),
        query_start=np.concatenate([start[:at], np.arange(at, single, dtype=np.int32), start[at:] + np.int32(more)]),
        seq_lens=longer(batch.seq_lens, 1),
        block_tables=tuple(longer(table, 0) for table in batch.block_tables),
        rows=longer(batch.rows, spare),
        logits_at=np.where(batch.logits_at < at, batch.logits_at, batch.logits_at + np.int32(more)),
        num_single=single,
    )
