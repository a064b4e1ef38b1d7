"""The shapes that steps are padded to where a device compiles each: few enough to compile, enough to waste little.

By tokens, rows and the blocks of the longest sequence. Steps in which each row brings one token come in powers of two
rows; others in powers of two tokens, in few rows or in as many as there can be. Contexts quadruple.
"""

from __future__ import annotations

from anychip.plugin.contract import KVPlan
from anychip.runner.compiled import Shape

FEW = 8
"""Rows of the smallest shapes; the others are multiples of it."""
SHORT = 512
"""Tokens of the shortest context that has shapes of its own."""


def shapes_up_to(plan: KVPlan) -> tuple[Shape, ...]:
    """Enough for every step of a plan."""
    rows, tokens = _multiple(plan.max_num_seqs), _multiple(plan.max_num_batched_tokens)
    return tuple(
        Shape(*pair, blocks)
        for blocks in _blocks(plan)
        for pair in (*_single(rows), *(pair for size in _doubled(2 * FEW, tokens) for pair in _several(size, rows)))
    )


def _single(most: int) -> tuple[tuple[int, int], ...]:
    return tuple((rows, rows) for rows in _doubled(FEW, most))


def _several(tokens: int, most: int) -> list[tuple[int, int]]:
    """(tokens, rows): a row of padding is one more than there can be."""
    many = min(most, tokens) + FEW
    return sorted({(tokens, rows) for rows in (FEW, many + FEW * (many == tokens)) if rows != tokens})


def _blocks(plan: KVPlan) -> tuple[int, ...]:
    """Columns of block tables."""
    longest, contexts = plan.max_model_len, list[int]()
    while plan.groups and 2 * SHORT * 4 ** len(contexts) <= longest:
        contexts.append(SHORT * 4 ** len(contexts))
    return tuple(dict.fromkeys(-(-tokens // plan.block_size) for tokens in (*contexts, longest)))


def _doubled(first: int, last: int) -> list[int]:
    sizes = [first]
    while sizes[-1] < last:
        sizes.append(min(2 * sizes[-1], max(last, first)))
    return sizes


def _multiple(count: int) -> int:
    return -(-count // FEW) * FEW
