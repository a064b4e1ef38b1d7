"""Steady decoding: while the same rows each gain a token, step after step, one batch is advanced in place.

Building a batch takes work for each row; in a run of equal steps only positions, lengths and, now and then, a block
change. The run ends when a request comes or goes, or a row may end.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anychip.cache.manager import CacheManager
from anychip.engine.assemble import StepRecord, table_lines
from anychip.engine.batch import PENDING, Batch, Int32, StepResult
from anychip.engine.request import Rows


def may_repeat(batch: Batch, state: Rows, cache: CacheManager) -> bool:
    """Whether the step after `batch`, in which all active rows run, may be the same with one token more in each row."""
    if state.followed or not cache.groups or not batch.only_samples:
        return False
    return np.count_nonzero(batch.token_ids == PENDING) in (0, batch.num_rows)


class Steady:
    """A run of steps after one in which every row brought one token and samples the next.

    They share one `Batch`, whose arrays advance in place. Meanwhile counters in `Rows` are not kept up to date, and
    tokens only from time to time; `settle` catches up.
    """

    def __init__(self, state: Rows, cache: CacheManager, batch: Batch, record: StepRecord) -> None:
        self.first = record
        self.known = bool(batch.token_ids[0] != PENDING)
        """Whether tokens are known to the host before the next step begins; else they are PENDING in each batch."""
        self.newest = batch.token_ids
        """[R] tokens that the latest committed step sampled."""
        self.handles = state.handles[batch.rows].tobytes()
        self.token_start = batch.query_start.tobytes()
        self._state, self._cache = state, cache
        self._places = np.stack([batch.positions, batch.seq_lens])
        self._one = np.ones_like(self._places)
        positions, seq_lens = self._places
        token_ids = batch.token_ids.copy()
        self.batch = replace(batch, step=record.step + 1, token_ids=token_ids, positions=positions, seq_lens=seq_lens)
        self._taken = 0
        self._last = int((state.limit[batch.rows] - 1 - batch.seq_lens).min())
        """Steps until a row reaches its limit."""
        self._room = cache.groups[0].counts[batch.rows] * cache.block_size - batch.seq_lens
        """[R] steps until the row needs another block."""
        self._grows_at = int(self._room.min()) + 1
        self._fills_at = 0
        self._unwritten: list[Int32] = []
        """Tokens of the latest committed steps that are not written to `Rows` yet."""
        self._written = 0
        self._ends = {*state.stop_ids[batch.rows].ravel().tolist()}

    def advance(self) -> bool:
        """Advance the batch by one step. False, and nothing changed, if a row is at its limit or lacks a block."""
        taken = self._taken + 1
        if taken > self._last or (taken >= self._grows_at and not self._grow(taken)):
            return False
        self._taken = taken
        np.add(self._places, self._one, self._places)
        if self.known:
            self.batch.token_ids[:] = self.newest
        return True

    def record(self, step: int) -> StepRecord:
        """The record of the step just taken, whose number is `step`."""
        first = self.first
        return StepRecord(step, first.rows, first.sampled, first.first_ends, first.first_positions, self._taken)

    def note(self, record: StepRecord, result: StepResult) -> bool:
        """Take in a step's tokens. False if there is more to do: a row may have ended, or brought more than a token.

        In that case all tokens up to the step before are in `Rows`, and the caller commits this one in full.
        """
        tokens = result.token_ids.astype(np.int32)  # a copy: the runner may use its array again
        full = len(tokens) == len(self.newest)
        if full:
            self.newest = tokens
        more = result.logprobs or result.prompt_logprobs or result.pooled or result.errors
        if more or not full or not 0 < record.later < self._last or not self._ends.isdisjoint(tokens.tolist()):
            self._write()
            self._written = record.later
            return False
        self._unwritten.append(tokens)
        return True

    def fills(self, record: StepRecord) -> bool:
        """Whether a step may have filled a block of some row; if so, tokens are written to `Rows`."""
        if record.later < self._fills_at:
            return False
        size = self._cache.block_size
        self._fills_at = record.later + size - int((record.ends % size).max())
        self._write()
        return True

    def settle(self, step: int, committed: int) -> None:
        """Bring `Rows` up to date after step number `step`; tokens of steps after `committed` are not known yet."""
        state, rows, ends = self._state, self.batch.rows, self.batch.seq_lens
        state.num_computed[rows] = ends
        state.num_tokens[rows] = ends + 1
        state.last_step[rows] = step
        self._write()
        for back in range(min(step - committed, self._taken)):
            state.tokens[rows, ends - back] = PENDING

    def _write(self) -> None:
        """Write the committed tokens that are still missing to `Rows`."""
        for later, tokens in enumerate(self._unwritten, self._written + 1):
            self._state.tokens[self.first.rows, self.first.first_ends + later] = tokens
        self._written += len(self._unwritten)
        self._unwritten.clear()

    def _grow(self, taken: int) -> bool:
        lacking = np.flatnonzero(self._room < taken)
        if len(lacking) > self._cache.num_free:
            return False
        self._cache.extend(self.batch.rows[lacking])
        self._room[lacking] += self._cache.block_size
        self._grows_at = int(self._room.min()) + 1
        width = self._cache.blocks_for(int(self.batch.seq_lens.max()) + 1)
        self._look_up(width, taken)
        return True

    def _look_up(self, width: int, taken: int) -> None:
        """Put new blocks into the batch's tables, `width` columns wide; views of the cache's have them already."""
        tables, rows = [group.table for group in self._cache.groups], self.batch.rows
        if width != self.batch.block_tables[0].shape[1]:
            lines = tuple(table_lines(table, rows, width) for table in tables)
            self.batch = replace(self.batch, step=self.first.step + taken, block_tables=lines)
            return
        for table, line in zip(tables, self.batch.block_tables, strict=True):
            if line.base is not table:
                line[:] = table[rows, :width]
