"""Steps of one token a row at a few fixed sizes, captured once each and replayed.

A bucket of B rows reads its arrays from memory that never moves. Each step brings them in one copy, each array in a
line of its own:

    token_ids [B] | positions [B] | seq_lens [B] | rows [B] | table [B, width] | table of the next group ..

The tables are then spread to lines as long as the longest sequence. Rows beyond the batch's own are padding: one token
at position 0 of the null block, noted in the spare row behind the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from anychip.engine.batch import SAMPLE, Batch
from anychip.ops.attention import AttentionInputs
from anychip.ops.ragged import Ragged
from anychip.plugin.contract import KVPlan
from anychip.runner.inputs import Computed, DeviceBatch, Forward, RunBatch, aligned
from anychip.sample.send import Send

Replay = Callable[[], Computed]
Capture = Callable[[Replay], Replay]
"""Records what a function does on the device; the result does the same again, with the same memory."""

_HEADER = 4


@dataclass(frozen=True, slots=True)
class CapturedSteps:
    """Runs a batch by a captured step where all rows bring one token and sample, else by `otherwise`."""

    step: Forward
    plan: KVPlan
    device: torch.device
    send: Send
    capture: Capture
    otherwise: RunBatch
    sizes: tuple[int, ...]
    """Rows of each bucket, ascending; a larger batch is not captured."""
    buckets: dict[int, Bucket] = field(default_factory=dict)
    """Those captured so far, each when it is first needed."""

    def __call__(self, batch: Batch, greedy: bool) -> Computed:
        """See `RunBatch`."""
        rows = batch.num_rows
        plain = batch.num_single == rows == len(batch.targets) and bool((batch.targets == SAMPLE).all())
        size = next((size for size in self.sizes if size >= rows), None) if plain else None
        if size is None:
            return self.otherwise(batch, greedy)
        if size not in self.buckets:
            self.buckets[size] = Bucket(size, self)
        return self.buckets[size].run(batch, greedy)


class Bucket:
    """One captured size."""

    def __init__(self, size: int, owner: CapturedSteps) -> None:
        self.size, self._line = size, aligned(size)
        self._send, self._spare = owner.send, owner.plan.max_num_seqs
        width, groups = -(-owner.plan.max_model_len // owner.plan.block_size), len(owner.plan.groups)
        self._buffer = torch.zeros(self._line * _HEADER + size * groups * width, dtype=torch.int32, device=owner.device)
        self._tables = [torch.zeros(size, width, dtype=torch.int32, device=owner.device) for _ in range(groups)]
        self._inputs = self._static_inputs(owner)
        self._fill(np.zeros((_HEADER, 0), np.int32), [np.zeros((0, 1), np.int32)] * groups)
        owner.step(self._inputs)  # compiles and allocates what cannot be while capturing
        self._replay = owner.capture(lambda: owner.step(self._inputs))

    def run(self, batch: Batch, greedy: bool) -> Computed:
        """Bring a batch of at most `size` rows, and replay."""
        header = np.stack([batch.token_ids, batch.positions, batch.seq_lens, batch.rows])
        self._fill(header, batch.block_tables)
        return _first(self._replay(), batch.num_rows, greedy)

    def _fill(self, header: np.ndarray, tables: Sequence[np.ndarray]) -> None:
        rows, width = header.shape[1], tables[0].shape[1] if tables else 0
        packed = np.zeros(self._line * _HEADER + self.size * len(tables) * width, np.int32)
        lines = packed[: self._line * _HEADER].reshape(_HEADER, self._line)
        lines[:, rows:] = np.array([[0], [0], [1], [self._spare]], np.int32)
        lines[:, :rows] = header
        spread = packed[lines.size :].reshape(len(tables), self.size, width)
        for target, table in zip(spread, tables, strict=True):
            target[:rows] = table
        sent = self._send(packed, self._buffer[: packed.size])[lines.size :].view(spread.shape)
        for static, part in zip(self._tables, sent, strict=True):
            static[:, :width] = part

    def _static_inputs(self, owner: CapturedSteps) -> DeviceBatch:
        size, longest = self.size, owner.plan.max_model_len
        lines = self._buffer[: self._line * _HEADER].view(_HEADER, self._line)[:, :size]
        token_ids, positions, seq_lens, rows = lines.unbind()
        ramp = torch.arange(size + 1, dtype=torch.int32, device=owner.device)
        groups = tuple(
            AttentionInputs(
                positions=positions,
                query_start=ramp,
                seq_lens=seq_lens,
                block_table=table,
                host_query_start=np.arange(size + 1, dtype=np.int32),
                host_seq_lens=np.full(size, longest, np.int32),
                num_single=size,
                max_query=1,
                max_seq=longest,
            )
            for table in self._tables
        )
        nothing = ramp[:0]
        return DeviceBatch(
            token_ids=token_ids,
            positions=positions,
            rows=rows,
            newest=ramp[:size],
            sampled_at=ramp[:size],
            sampled_rows=rows,
            scored_at=nothing,
            targets=nothing,
            pooled_at=nothing,
            ragged=Ragged(ramp, np.arange(size + 1, dtype=np.int32), 1),
            groups=groups,
            pending=True,
            greedy=True,
        )


def bucket_sizes(limit: int) -> tuple[int, ...]:
    """Sizes up to `limit` that leave little to padding: powers of two to 8, then an eighth apart."""
    sizes = [1, 2, 4]
    size = 8
    while size < limit:
        sizes.append(size)
        size += max(8, 1 << (size.bit_length() - 4))
    return (*(size for size in sizes if size < limit), limit)


def _first(computed: Computed, rows: int, greedy: bool) -> Computed:
    """What was computed for the first `rows` rows."""
    assert computed.logits is not None and computed.chosen is not None, "a captured step samples"
    inputs = replace(
        computed.inputs,
        token_ids=computed.inputs.token_ids[:rows],
        positions=computed.inputs.positions[:rows],
        sampled_at=computed.inputs.sampled_at[:rows],
        greedy=greedy,
    )
    return Computed(inputs, computed.hidden[:rows], computed.logits[:rows], computed.chosen[:rows] if greedy else None)
