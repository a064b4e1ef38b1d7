"""From scheduled rows to a `Batch`, by array work over all rows; only rows that score their prompt take a loop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anychip.engine.batch import PENDING, Batch, Int32
from anychip.engine.request import Rows


@dataclass(slots=True)
class StepRecord:
    """What the scheduler remembers of a step until its result is committed."""

    step: int
    rows: Int32
    """[R] rows scheduled."""
    sampled: Int32
    """[S] rows that sample, or pool, in batch order."""
    first_ends: Int32
    first_positions: Int32
    """`ends` and `positions` of the first of a run of steady steps, see `Steady`; of this step if it is alone."""
    later: int = 0
    """How many steps after the first one this is."""

    @property
    def ends(self) -> Int32:
        """[R] tokens of each row that are in the cache once the step is done."""
        return self.first_ends + self.later

    @property
    def positions(self) -> Int32:
        """[S] where, among its row's tokens, the sampled one goes."""
        return self.first_positions + self.later


def assemble(
    state: Rows, rows: Int32, counts: Int32, tables: tuple[Int32, ...], block_size: int, step: int
) -> tuple[Batch, StepRecord]:
    """Build the step in which row rows[i] computes its next counts[i] tokens, and advance the rows' counters.

    `tables` hold a block table of all rows for each KV group. Rows with one token come first in the batch.
    """
    several = counts > 1
    num_single = len(rows) - int(np.count_nonzero(several))
    if num_single < len(rows):
        order = np.argsort(several, kind="stable")
        rows, counts = rows[order], counts[order]
    starts = state.num_computed[rows]
    ends = starts + counts
    query_start = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(counts, out=query_start[1:])
    token_rows, positions = _token_positions(rows, counts, starts, query_start)
    sampled, sampled_at, logits_at = _sampling(state, rows, ends, query_start[1:] - 1)
    targets = state.targets[sampled]
    if state.scoring:
        logits_at, targets = _add_scored(state, rows, starts, ends, query_start, logits_at, targets)
    width = (int(ends.max()) + block_size - 1) // block_size
    batch = Batch(
        step=step,
        token_ids=state.tokens[token_rows, positions],
        positions=positions,
        query_start=query_start,
        seq_lens=ends,
        block_tables=tuple(table_lines(table, rows, width) for table in tables),
        rows=rows,
        logits_at=logits_at,
        targets=targets,
        num_single=num_single,
    )
    record = StepRecord(step, rows, sampled, ends, sampled_at)
    _advance(state, record)
    return batch, record


def share(rows: Int32, gap: Int32, budget: int) -> tuple[Int32, Int32]:
    """Divide a budget of tokens: rows that run, and how many tokens each computes.

    `gap` [R] is what each row has still to compute. Single tokens go first; longer gaps take what is left, in order.
    """
    if len(rows) <= budget and np.count_nonzero(gap == 1) == len(gap):
        return rows, gap
    order = np.argsort(gap > 1, kind="stable")
    rows, gap = rows[order], gap[order]
    before = np.cumsum(gap) - gap
    counts = np.minimum(gap, np.maximum(budget - before, 0)).astype(np.int32)
    return rows[counts > 0], counts[counts > 0]


def _sampling(state: Rows, rows: Int32, ends: Int32, last: Int32) -> tuple[Int32, Int32, Int32]:
    """[S] rows that reach their newest token and sample; the position of the sample; the index of that token in T."""
    samples = ends == state.num_tokens[rows]
    if np.count_nonzero(samples) == len(rows):
        return rows, ends, last
    return rows[samples], ends[samples], last[samples]


def _advance(state: Rows, record: StepRecord) -> None:
    state.num_computed[record.rows] = record.first_ends
    state.tokens[record.sampled, record.first_positions] = PENDING
    state.num_tokens[record.sampled] += 1
    state.last_step[record.rows] = record.step


def _token_positions(rows: Int32, counts: Int32, starts: Int32, query_start: Int32) -> tuple[Int32, Int32]:
    """[T] row and position of each token."""
    if query_start[-1] == len(rows):
        return rows, starts
    offset = np.arange(query_start[-1], dtype=np.int32) - np.repeat(query_start[:-1], counts)
    return np.repeat(rows, counts), np.repeat(starts, counts) + offset


def table_lines(table: Int32, rows: Int32, width: int) -> Int32:
    """[R, width] the rows' lines of a block table; a view, not a copy, where the rows are 0 to R - 1 in order."""
    if rows[0] == 0 and rows[-1] == len(rows) - 1 and (len(rows) == 1 or (rows[1:] > rows[:-1]).all()):
        return table[: len(rows), :width]
    return table[:, :width].take(rows, axis=0)


def _add_scored(
    state: Rows,
    rows: Int32,
    starts: Int32,
    ends: Int32,
    query_start: Int32,
    logits_at: Int32,
    targets: Int32,
) -> tuple[Int32, Int32]:
    """Add the tokens after which a prompt token is to be scored to `logits_at` and `targets`, in ascending order."""
    places, scored = [logits_at], [targets]
    firsts, lasts = np.maximum(state.scored[rows], starts), np.minimum(state.prompt_length[rows] - 1, ends)
    for index in np.flatnonzero((firsts < lasts) & np.isin(rows, list(state.scoring))).tolist():
        row, first, last = int(rows[index]), int(firsts[index]), int(lasts[index])
        state.scored[row] = last
        if last == state.prompt_length[row] - 1:
            state.scoring.discard(row)
        base = int(query_start[index] - starts[index])
        places.append(np.arange(base + first, base + last, dtype=np.int32))
        scored.append(state.tokens[row, first + 1 : last + 1])
    if len(places) == 1:
        return logits_at, targets
    all_places = np.concatenate(places)
    order = np.argsort(all_places, kind="stable")
    return all_places[order], np.concatenate(scored)[order]
