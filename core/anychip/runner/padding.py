"""The arrays of a step in fixed places: T tokens in R rows, however few a batch brings.

They lie packed in one int32 array, each at a multiple of 16 bytes:

    token_ids [T] | positions [T] | query_start [R+1] | seq_lens [R] | rows [R] | newest [R] | sampled_rows [R]

What a batch does not fill is padding: tokens at position 0 of the null block, in rows that are noted in the spare row
behind the last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from anychip.engine.batch import Batch, Int32
from anychip.ops.attention import AttentionInputs
from anychip.ops.ragged import Ragged
from anychip.runner.inputs import DeviceBatch, aligned, views


class Padding:
    """Up to `tokens` tokens in up to `rows` rows; one token a row where both are equal. `spare` is a row of nobody."""

    def __init__(self, tokens: int, rows: int, spare: int) -> None:
        self.tokens, self.rows, self._spare = tokens, rows, spare
        self._shapes: list[tuple[int, ...]] = [(tokens,), (tokens,), (rows + 1,), *((rows,) for _ in range(4))]
        self._arrays = [np.zeros(shape, np.int32) for shape in self._shapes]
        self.size = sum(aligned(array.size) for array in self._arrays)
        """Elements of the packed array."""
        nothing = np.zeros(0, np.int32)
        self._fill(nothing, nothing, np.zeros(1, np.int32), nothing)
        self._note(nothing, nothing)

    @property
    def single(self) -> bool:
        """Whether each row brings one token."""
        return self.tokens == self.rows

    def fill(self, batch: Batch) -> np.ndarray:
        """Take a batch that fits; the indices of its rows that sample."""
        sampling = np.searchsorted(batch.query_start, batch.logits_at, side="right") - 1
        self._fill(batch.token_ids, batch.positions, batch.query_start, batch.seq_lens)
        self._note(batch.rows, sampling)
        return sampling

    def pack(self, packed: np.ndarray) -> None:
        """Write what was taken last, or nothing but padding, to the beginning of an int32 array."""
        for place, array in zip(views(packed, self._shapes), self._arrays, strict=True):
            place[:] = array

    def _fill(self, token_ids: Int32, positions: Int32, query_start: Int32, seq_lens: Int32) -> None:
        """The arrays that do not name rows. Padding rows bring a token each, or the first of them all that are left."""
        tokens, rows = len(token_ids), len(seq_lens)
        ids, places, start, lengths, _, newest, _ = self._arrays
        ids[:tokens], ids[tokens:] = token_ids, 0
        places[:tokens], places[tokens:] = positions, 0
        start[: rows + 1] = query_start
        start[rows + 1 :] = np.arange(rows + 1, self.rows + 1) if self.single else self.tokens
        lengths[:rows], lengths[rows:] = seq_lens, 1
        np.subtract(start[1:], 1, out=newest)

    def _note(self, rows: Int32, sampling: np.ndarray) -> None:
        """Note the rows, those at the indices `sampling` as such."""
        stable, sampled = self._arrays[4], self._arrays[6]
        stable[: len(rows)], stable[len(rows) :] = rows, self._spare
        sampled[:] = self._spare
        sampled[sampling] = rows[sampling]

    def inputs(self, packed: torch.Tensor, tables: Sequence[torch.Tensor], longest: int) -> DeviceBatch:
        """What a forward pass reads of a packed array on the device; sequences are up to `longest` tokens."""
        token_ids, positions, start, seq_lens, rows, newest, sampled_rows = views(packed, self._shapes)
        host_start = np.arange(self.rows + 1, dtype=np.int32)
        groups = tuple(
            AttentionInputs(
                positions=positions,
                query_start=start,
                seq_lens=seq_lens,
                block_table=table,
                host_query_start=host_start,
                host_seq_lens=np.full(self.rows, longest, np.int32),
                num_single=self.rows if self.single else 0,
                max_query=1 if self.single else self.tokens,
                max_seq=longest,
            )
            for table in tables
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
            ragged=Ragged(start, host_start, 1 if self.single else self.tokens),
            groups=groups,
            pending=True,
            greedy=True,
        )
