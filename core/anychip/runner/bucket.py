"""One captured shape of a step: T tokens in R rows, in memory that never moves.

Each step brings its arrays in one copy: those of `anychip.runner.padding`, then

    table [R, width] | table of the next KV group ..

The tables are then spread to lines as long as the longest sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

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


class Bucket:
    """A captured step of up to `tokens` tokens in up to `rows` rows; one token a row where both are equal.

    Of a plan of attention, what it reads on the host may only say how large a launch is: the contents change.
    """

    def __init__(
        self, tokens: int, rows: int, step: Forward, plan: KVPlan, device: torch.device, send: Send, capture: Capture
    ) -> None:
        self.rows, self._send = rows, send
        self._padding = Padding(tokens, rows, plan.max_num_seqs)
        width, groups = -(-plan.max_model_len // plan.block_size), len(plan.groups)
        self._width = width
        self._buffer = torch.zeros(self._padding.size + groups * rows * width, dtype=torch.int32, device=device)
        self._tables = [torch.zeros(rows, width, dtype=torch.int32, device=device) for _ in range(groups)]
        self._inputs = self._padding.inputs(self._buffer, self._tables, plan.max_model_len)
        self._bring([np.zeros((0, 1), np.int32)] * groups)
        step(self._inputs)  # compiles and allocates what cannot be while capturing
        self._replay = capture(lambda: _kept(step(self._inputs)))

    def run(self, batch: Batch, greedy: bool) -> Computed:
        """Bring a batch that fits, and replay. Its rows sample, or bring tokens only; nothing else is wanted."""
        sampling = self._padding.fill(batch)
        self._bring(batch.block_tables)
        return self._selected(self._replay(), batch, sampling, greedy)

    def _bring(self, tables: Sequence[Int32]) -> None:
        """Send everything."""
        head = self._padding.size
        # Columns behind the longest sequence's are padding of the batch's own.
        width = min(tables[0].shape[1], self._width) if tables else 0
        packed = np.zeros(head + len(tables) * self.rows * width, np.int32)
        self._padding.pack(packed)
        spread = packed[head:].reshape(len(tables), self.rows, width)
        for target, table in zip(spread, tables, strict=True):
            target[: len(table)] = table[:, :width]
        sent = self._send(packed, self._buffer[: packed.size])[head:].view(spread.shape)
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


def _kept(computed: Computed) -> Computed:
    """Without the hidden states, whose memory other captured steps may then use."""
    return replace(computed, hidden=computed.hidden.new_empty(0, computed.hidden.shape[-1]))
