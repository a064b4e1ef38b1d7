"""Batches that nobody asked for: the worst step, to learn what memory it takes, and a first one."""

from __future__ import annotations

import numpy as np

from anychip.engine.batch import POOL, SAMPLE, AdmittedRow, Batch, RowSampling
from anychip.engine.sizing import group_layers
from anychip.plugin.contract import KVGroup, KVPlan, KVSpec


def worst_plan(specs: tuple[KVSpec, ...], block_size: int, rows: int, tokens: int, max_model_len: int) -> KVPlan:
    """A plan with just the blocks that `worst_batch` needs: those of its longest row, which all the others share."""
    blocks = 1 - (-max(worst_lengths(rows, tokens, max_model_len)) // block_size)
    groups = tuple(KVGroup(spec, layers, blocks) for spec, layers in group_layers(specs))
    return KVPlan(groups, block_size, rows, max_model_len, tokens)


def worst_lengths(rows: int, tokens: int, max_model_len: int) -> list[int]:
    """Tokens of each row in the worst step: as few rows as hold the budget, after single tokens in all other rows."""
    lengths: list[int] = []
    while tokens > 0 and len(lengths) < rows:
        singles_left = rows - len(lengths) - 1
        lengths.append(max(1, min(tokens - singles_left, max_model_len)))
        tokens -= lengths[-1]
    return sorted(lengths)


def worst_batch(plan: KVPlan, pools: bool = False) -> Batch:
    """The full token budget in as many rows as may run, all of them pooled, or sampling at random with top_p."""
    lengths = worst_lengths(plan.max_num_seqs, plan.max_num_batched_tokens, plan.max_model_len)
    counts = [-(-length // plan.block_size) for length in lengths]
    table = np.zeros((len(lengths), max(counts)), np.int32)
    for row, count in enumerate(counts):
        table[row, :count] = np.arange(1, 1 + count)  # all rows write the same, as their tokens are
    return fresh_batch(lengths, table, len(plan.groups), RowSampling(seed=0, top_p=0.9), pools)


def first_batch(plan: KVPlan, pools: bool = False) -> Batch:
    """One token in one row, written to the null block."""
    table = np.zeros((1, 1), np.int32)
    return fresh_batch([1], table, len(plan.groups), RowSampling(seed=0, temperature=0.0), pools)


def fresh_batch(
    lengths: list[int], table: np.ndarray, groups: int, sampling: RowSampling, pools: bool = False
) -> Batch:
    """New rows of so many tokens, those with one first; `table` [rows, blocks] serves all groups."""
    query_start = np.cumsum([0, *lengths], dtype=np.int32)
    return Batch(
        step=0,
        token_ids=np.zeros(query_start[-1], np.int32),
        positions=np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        query_start=query_start,
        seq_lens=np.array(lengths, np.int32),
        block_tables=(table,) * groups,
        rows=np.arange(len(lengths), dtype=np.int32),
        logits_at=query_start[1:] - 1,
        targets=np.full(len(lengths), POOL if pools else SAMPLE, np.int32),
        num_single=lengths.count(1),
        admitted=tuple(_admitted(row, sampling, length) for row, length in enumerate(lengths)),
    )


def _admitted(row: int, sampling: RowSampling, length: int) -> AdmittedRow:
    if not sampling.needs_history:
        return AdmittedRow(row, sampling, length)
    return AdmittedRow(row, sampling, length, np.zeros(length, np.int32), np.zeros(0, np.int32))
