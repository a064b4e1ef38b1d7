"""A step captured at one shape: T tokens in R rows, in memory that never moves.

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
"""Runs a step on the arrays that are in its memory now."""
Capture = Callable[[Replay], Replay]
"""Records what a function launches on the device; the result launches the same again, on the same memory."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a batch is padded to: tokens and rows, of which the first `single` bring one token each."""

    tokens: int
    rows: int
    single: int
    greedy: bool
    """Whether each row's highest logit is taken at once; else logits are left to whoever wants them."""


class Room:
    """Memory that all buckets share, as large as the largest needs: what steps read, and hidden states they leave."""

    def __init__(self, tokens: int, rows: int, plan: KVPlan, device: torch.device) -> None:
        self.width, groups = -(-plan.max_model_len // plan.block_size), len(plan.groups)
        size = Padding(tokens, rows, plan.max_num_seqs).size + groups * rows * self.width
        self.packed = torch.zeros(size, dtype=torch.int32, device=device)
        self.tables = [torch.zeros(rows, self.width, dtype=torch.int32, device=device) for _ in range(groups)]
        self._rows = rows
        self._states: torch.Tensor | None = None

    def states(self, like: torch.Tensor) -> torch.Tensor:
        """Where states like these, [R, H], are left; allocated by the first call."""
        if self._states is None:
            self._states = like.new_empty(self._rows, like.shape[1])
        return self._states[: len(like)]


class Bucket:
    """A captured step. It leaves hidden states or chosen tokens, never logits, which would take memory in each graph.

    What attention's plan reads on the host while capturing may only decide how large launches are: when the step is
    replayed, lengths and positions are others.
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
        """Copy a batch that fits to the device, and replay. Its rows may sample; nothing else may be asked of them."""
        if 0 < self._shape.single < self._shape.rows:
            batch = widened(batch, self._shape.single, self._spare)
        sampling = self._padding.fill(batch)
        self._bring(batch.block_tables)
        return self._selected(self._replay(), batch, sampling)

    def _bring(self, tables: Sequence[Int32]) -> None:
        """Copy the padded arrays and the block tables to the device, in one go."""
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
        """Copy the states of rows that sample to shared memory: what else a step used, others may overwrite."""
        assert computed.selected is not None, "a captured step samples"
        states = self._room.states(computed.selected)
        states.copy_(computed.selected)
        return replace(computed, hidden=states, selected=states, logits=None)

    def _selected(self, computed: Computed, batch: Batch, sampling: np.ndarray) -> Computed:
        """What was computed, less padding and rows that do not sample."""
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
    """`batch` with padding rows behind its rows of one token, so that there are `single` of these.

    A padding row brings a token at position 0 of the null block, and stands for the stable row `spare`.
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
