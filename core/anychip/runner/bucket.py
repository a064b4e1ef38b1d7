"""One captured shape of a step: T tokens in R rows, in memory that never moves.

Each step brings its arrays in one copy, each at a multiple of 16 bytes:

    token_ids [T] | positions [T] | query_start [R+1] | seq_lens [R] | rows [R] | newest [R] | sampled_rows [R]
    | table [R, width] | table of the next KV group ..

The tables are then spread to lines as long as the longest sequence. What a batch does not fill is padding: tokens at
position 0 of the null block, in rows that are noted in the spare row behind the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from anychip.engine.batch import Batch, Int32
from anychip.ops.attention import AttentionInputs
from anychip.ops.ragged import Ragged
from anychip.plugin.contract import KVPlan
from anychip.runner.inputs import Computed, DeviceBatch, Forward, aligned, views
from anychip.sample.send import Send

Replay = Callable[[], Computed]
Capture = Callable[[Replay], Replay]
"""Records what a function does on the device; the result does the same again, with the same memory."""


class Bucket:
    """A captured step of up to `tokens` tokens in up to `rows` rows; one token a row where both are equal.

    Of a plan of attention, what it reads on the host may only say how large a launch is: the contents change.
    """

    def __init__(
        self, tokens: int, rows: int, step: Forward, plan: KVPlan, device: torch.device, send: Send, capture: Capture
    ) -> None:
        self.tokens, self.rows = tokens, rows
        self._send, self._spare = send, plan.max_num_seqs
        width, groups = -(-plan.max_model_len // plan.block_size), len(plan.groups)
        self._width = width
        shapes = [(tokens,), (tokens,), (rows + 1,), *((rows,) for _ in range(4))]
        self._arrays = [np.zeros(shape, np.int32) for shape in shapes]
        self._head = sum(aligned(array.size) for array in self._arrays)
        self._buffer = torch.zeros(self._head + groups * rows * width, dtype=torch.int32, device=device)
        self._tables = [torch.zeros(rows, width, dtype=torch.int32, device=device) for _ in range(groups)]
        self._inputs = self._static_inputs(plan.max_model_len)
        self._fill(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(1, np.int32), np.zeros(0, np.int32))
        self._bring(np.zeros(0, np.int32), np.zeros(0, np.int32), [np.zeros((0, 1), np.int32)] * groups)
        step(self._inputs)  # compiles and allocates what cannot be while capturing
        self._replay = capture(lambda: _kept(step(self._inputs)))

    def run(self, batch: Batch, greedy: bool) -> Computed:
        """Bring a batch that fits, and replay. Its rows sample, or bring tokens only; nothing else is wanted."""
        sampling = np.searchsorted(batch.query_start, batch.logits_at, side="right") - 1
        self._fill(batch.token_ids, batch.positions, batch.query_start, batch.seq_lens)
        self._bring(batch.rows, sampling, batch.block_tables)
        return self._selected(self._replay(), batch, sampling, greedy)

    def _fill(self, token_ids: Int32, positions: Int32, query_start: Int32, seq_lens: Int32) -> None:
        """The arrays that do not name rows. Padding rows bring a token each, or the first of them all that are left."""
        tokens, rows = len(token_ids), len(seq_lens)
        ids, places, start, lengths, _, newest, _ = self._arrays
        ids[:tokens], ids[tokens:] = token_ids, 0
        places[:tokens], places[tokens:] = positions, 0
        start[: rows + 1] = query_start
        start[rows + 1 :] = np.arange(rows + 1, self.rows + 1) if self.tokens == self.rows else self.tokens
        lengths[:rows], lengths[rows:] = seq_lens, 1
        np.subtract(start[1:], 1, out=newest)

    def _bring(self, rows: Int32, sampling: np.ndarray, tables: Sequence[Int32]) -> None:
        """Note the rows, those at the indices `sampling` as such, and send everything."""
        stable, sampled = self._arrays[4], self._arrays[6]
        stable[: len(rows)], stable[len(rows) :] = rows, self._spare
        sampled[:] = self._spare
        sampled[sampling] = rows[sampling]
        # Columns behind the longest sequence's are padding of the batch's own.
        width = min(tables[0].shape[1], self._width) if tables else 0
        packed = np.zeros(self._head + len(tables) * self.rows * width, np.int32)
        for place, array in zip(views(packed, self._arrays), self._arrays, strict=True):
            place[:] = array
        spread = packed[self._head :].reshape(len(tables), self.rows, width)
        for target, table in zip(spread, tables, strict=True):
            target[: len(rows)] = table[:, :width]
        sent = self._send(packed, self._buffer[: packed.size])[self._head :].view(spread.shape)
        for static, part in zip(self._tables, sent, strict=True):
            static[:, :width] = part

    def _selected(self, computed: Computed, batch: Batch, sampling: np.ndarray, greedy: bool) -> Computed:
        """What was computed for the rows that sample."""
        assert computed.logits is not None and computed.chosen is not None, "a captured step samples"
        inputs, count = computed.inputs, len(sampling)
        if count == batch.num_rows:
            at = inputs.sampled_at[:count]
            logits, chosen = computed.logits[:count], computed.chosen[:count]
        else:
            index = self._send(sampling.astype(np.int64))
            at, logits, chosen = inputs.sampled_at[index], computed.logits[index], computed.chosen[index]
        return replace(
            computed,
            inputs=replace(inputs, sampled_at=at, greedy=greedy),
            logits=logits if count else None,
            chosen=chosen if greedy and count else None,
        )

    def _static_inputs(self, longest: int) -> DeviceBatch:
        token_ids, positions, start, seq_lens, rows, newest, sampled_rows = views(self._buffer, self._arrays)
        single = self.tokens == self.rows
        host_start = np.arange(self.rows + 1, dtype=np.int32)
        groups = tuple(
            AttentionInputs(
                positions=positions,
                query_start=start,
                seq_lens=seq_lens,
                block_table=table,
                host_query_start=host_start,
                host_seq_lens=np.full(self.rows, longest, np.int32),
                num_single=self.rows if single else 0,
                max_query=1 if single else self.tokens,
                max_seq=longest,
            )
            for table in self._tables
        )
        nothing = newest[:0]
        return DeviceBatch(
            token_ids=token_ids,
            positions=positions,
            rows=rows,
            newest=newest,
            sampled_at=newest,
            sampled_rows=sampled_rows,
            scored_at=nothing,
            targets=nothing,
            pooled_at=nothing,
            ragged=Ragged(start, host_start, 1 if single else self.tokens),
            groups=groups,
            pending=True,
            greedy=True,
        )


def _kept(computed: Computed) -> Computed:
    """Without the hidden states, whose memory other captured steps may then use."""
    return replace(computed, hidden=computed.hidden.new_empty(0, computed.hidden.shape[-1]))
