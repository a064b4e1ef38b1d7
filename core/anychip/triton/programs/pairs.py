"""Pairs of a token and one of its experts, put together by expert.

A pair has the number token * k + place among the token's k experts. Sorted by expert, each expert's pairs fill whole
blocks of BLOCK_T:

    order   | 4 9 . . | 0 1 7 8 | 2 . . . |    pairs, -1 where a block is not full
    owners  |    0    |    0..  |    3    | -1 ...    expert of each block, -1 behind the last one
"""

import triton
import triton.language as tl

from anychip.triton.programs.order import take_turn


@triton.jit(do_not_specialize=["num_pairs"])
def count_pairs(
    chosen, counts, num_pairs, E: tl.constexpr, OVERLAP: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_P: tl.constexpr
):
    """How many of a chunk of BLOCK_P pairs go to each expert, counts [chunks, BLOCK_E]."""
    take_turn(OVERLAP)
    chunk = tl.program_id(0)
    tl.store(counts + chunk * BLOCK_E + tl.arange(0, BLOCK_E), _counted(chosen, chunk, num_pairs, BLOCK_E, BLOCK_P))


@triton.jit
def _counted(chosen, chunk, num_pairs, BLOCK_E: tl.constexpr, BLOCK_P: tl.constexpr):
    pairs = chunk * BLOCK_P + tl.arange(0, BLOCK_P)
    return tl.histogram(tl.load(chosen + pairs, pairs < num_pairs, other=BLOCK_E - 1), BLOCK_E)


@triton.jit
def place_chunks(
    counts, E: tl.constexpr, CHUNKS: tl.constexpr, OVERLAP: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_E: tl.constexpr,
    BLOCK_T: tl.constexpr,
):  # fmt: skip
    """Where each chunk's pairs of each expert begin, in the place of their counts.

    Behind them, [BLOCK_E] each: how many pairs an expert has, and where they begin.
    """
    take_turn(OVERLAP)
    experts, chunks = tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_C)
    table = counts + chunks[:, None] * BLOCK_E + experts[None, :]
    taken = tl.load(table, (chunks < CHUNKS)[:, None], other=0)
    totals = tl.sum(taken, 0)
    blocks = _blocks(totals, E, BLOCK_E, BLOCK_T)
    starts = (tl.cumsum(blocks, 0) - blocks) * BLOCK_T
    tl.debug_barrier()  # all counts are read before any place is written
    tl.store(table, starts[None, :] + tl.cumsum(taken, 0) - taken, (chunks < CHUNKS)[:, None])
    tl.store(counts + CHUNKS * BLOCK_E + experts, totals)
    tl.store(counts + (CHUNKS + 1) * BLOCK_E + experts, starts)


@triton.jit
def _blocks(totals, E: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_T: tl.constexpr):
    """Blocks that each expert's pairs fill."""
    return tl.where(tl.arange(0, BLOCK_E) < E, (totals + BLOCK_T - 1) // BLOCK_T, 0)


@triton.jit(do_not_specialize=["num_pairs", "num_blocks"])
def sort_pairs(
    chosen, order, owners, done, used, num_pairs, num_blocks, E: tl.constexpr, OVERLAP: tl.constexpr, BLOCK_E:
    tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """One expert's pairs, in order, where a chunk holds all pairs: each program counts them."""
    take_turn(OVERLAP)
    expert, pairs = tl.program_id(0), tl.arange(0, BLOCK_P)
    experts, totals = tl.arange(0, BLOCK_E), _counted(chosen, 0, num_pairs, BLOCK_E, BLOCK_P)
    blocks = _blocks(totals, E, BLOCK_E, BLOCK_T)
    begin = tl.sum(tl.where(experts < expert, blocks, 0), 0) * BLOCK_T
    total = tl.sum(tl.where(experts == expert, totals, 0), 0)
    here = (tl.load(chosen + pairs, pairs < num_pairs, other=-1) == expert).to(tl.int32)
    tl.store(order + begin + tl.cumsum(here, 0) - 1, pairs, here == 1)
    _own(order, owners, done, used, expert, begin, total, num_blocks, E, BLOCK_P, BLOCK_T)


@triton.jit(do_not_specialize=["num_pairs", "num_blocks"])
def scatter_pairs(
    chosen, places, order, owners, done, used, num_pairs, num_blocks, E: tl.constexpr, OVERLAP: tl.constexpr, CHUNKS:
    tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """A program a chunk, whose pairs each take the next place of their expert, and one an expert for what is around.

    Which place a pair has within its chunk's share is left to chance: nothing computed from it depends on that.
    """
    take_turn(OVERLAP)
    program = tl.program_id(0)
    if program < CHUNKS:
        pairs = program * BLOCK_P + tl.arange(0, BLOCK_P)
        experts = tl.load(chosen + pairs, pairs < num_pairs, other=0)
        place = tl.atomic_add(places + program * BLOCK_E + experts, 1, pairs < num_pairs, sem="relaxed")
        tl.store(order + place, pairs, pairs < num_pairs)
    else:
        expert = program - CHUNKS
        totals = places + CHUNKS * BLOCK_E + expert
        _own(
            order,
            owners,
            done,
            used,
            expert,
            tl.load(totals + BLOCK_E),
            tl.load(totals),
            num_blocks,
            E,
            BLOCK_P,
            BLOCK_T,
        )


@triton.jit
def _own(
    order,
    owners,
    done,
    used,
    expert,
    begin,
    total,
    num_blocks,
    E: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Name an expert's blocks, and mark what is not full; the last expert marks the blocks behind it and counts all."""
    first, mine = begin // BLOCK_T, (total + BLOCK_T - 1) // BLOCK_T
    lanes, behind = tl.arange(0, BLOCK_P), total + tl.arange(0, BLOCK_T)
    tl.store(order + begin + behind, -1, behind < mine * BLOCK_T)
    for start in range(0, mine, BLOCK_P):
        tl.store(owners + first + start + lanes, expert, start + lanes < mine)
        tl.store(done + first + start + lanes, 0, start + lanes < mine)
    if expert == E - 1:
        tl.store(used, first + mine)
        for start in range(first + mine, num_blocks, BLOCK_P):
            tl.store(owners + start + lanes, -1, start + lanes < num_blocks)
