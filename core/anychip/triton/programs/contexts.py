"""Attention of rows that bring one token: the context is read in pieces by as many programs as fill the chip.

    pass 1, a program for each piece and cached head:  a row of one piece is done; others leave sums in `partial`
    pass 2, a program for each row and query head:     the pieces of a row are put together

What several rows share is read once for all of them, in pieces whose tile holds the heads of several rows:

    line of a tile      0 .. G-1          G .. 2G-1         ..
    query               heads of sharer   heads of the next ..

Programs of a piece follow one another, so those that several rows share, which take longest, all begin first, and those
that have no piece come last. Putting pieces together in the last program of a row to finish was slower: one processor
then reads what many wrote.
"""

import triton
import triton.language as tl

from anychip.triton.programs.fold import LOWEST, begin_softmax, blocks_of, fold, suited
from anychip.triton.programs.order import take_turn
from anychip.triton.programs.plan import PIECE
from anychip.triton.programs.sharing import SHARER


@triton.jit(do_not_specialize=["stride_table"], do_not_specialize_on_alignment=["table"])
def attend_contexts(
    q, k_cache, v_cache, k_scale, v_scale, table, pieces, sharers, row_pieces, out, partial, statistics, sinks, scale,
    softcap, stride_qt, stride_qh, stride_table, OVERLAP: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
    PAGE: tl.constexpr, STARTS: tl.constexpr, CODED: tl.constexpr, SOFTCAP: tl.constexpr, SINKS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr, SHARED_M: tl.constexpr, SHARED_N: tl.constexpr,
    SHARED_STAGES: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Queries of one token and cached head, or of several tokens that share, against one piece of their context.

    A tile has BLOCK_M lines for one token and SHARED_M for several; 0: none share. Pieces begin at multiples of STARTS.
    """
    take_turn(OVERLAP)
    line = pieces + tl.program_id(1) * PIECE
    first = tl.load(line)
    if first < 0:
        return
    if SHARED_M > 0:
        members = tl.load(line + 6)
        if members > 1:
            _attend_shared(
                q, k_cache, v_cache, k_scale, v_scale, table, line, first, members, sharers, row_pieces, partial,
                statistics, sinks, scale, softcap, stride_qt, stride_qh, stride_table, G, D, PAGE, STARTS, CODED,
                SOFTCAP, SINKS, SHARED_M, SHARED_N, SHARED_STAGES, BLOCK_D,
            )  # fmt: skip
            return
    _attend_alone(
        q, k_cache, v_cache, k_scale, v_scale, table, line, first, out, partial, statistics, sinks, scale, softcap,
        stride_qt, stride_qh, stride_table, G, D, PAGE, STARTS, CODED, SOFTCAP, SINKS, BLOCK_M, BLOCK_N, STAGES,
        BLOCK_D,
    )  # fmt: skip


@triton.jit
def _attend_alone(
    q, k_cache, v_cache, k_scale, v_scale, table, line, row, out, partial, statistics, sinks, scale, softcap, stride_qt,
    stride_qh, stride_table, G: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, STARTS: tl.constexpr, CODED:
    tl.constexpr, SOFTCAP: tl.constexpr, SINKS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES:
    tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    kv_head, kv_heads = tl.program_id(0), tl.num_programs(0)
    members, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    heads = kv_head * G + members
    valid = (members < G)[:, None] & (dims < D)[None, :]
    queries = tl.load(q + row.to(tl.int64) * stride_qt + heads[:, None] * stride_qh + dims[None, :], valid, other=0.0)
    total, highest, mass = _fold_piece(
        queries, k_cache, v_cache, k_scale, v_scale, table + row.to(tl.int64) * stride_table, line, heads, members < G,
        sinks, scale, softcap, PAGE, STARTS, CODED, SOFTCAP, SINKS, BLOCK_M, BLOCK_N, STAGES, BLOCK_D, D,
    )  # fmt: skip
    if tl.load(line + 4) == 1:
        offsets = (row.to(tl.int64) * kv_heads * G + heads)[:, None] * D + dims[None, :]
        result = total / tl.where(mass > 0.0, mass, 1.0)[:, None]
        tl.store(out + offsets, result.to(out.dtype.element_ty), valid)
    else:
        lines = tl.load(line + 5).to(tl.int64) * kv_heads * G + heads
        tl.store(partial + lines[:, None] * D + dims[None, :], total, valid)
        tl.store(statistics + lines * 2, highest, members < G)
        tl.store(statistics + lines * 2 + 1, mass, members < G)


@triton.jit
def _attend_shared(
    q, k_cache, v_cache, k_scale, v_scale, table, line, first, members, sharers, row_pieces, partial, statistics, sinks,
    scale, softcap, stride_qt, stride_qh, stride_table, G: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, STARTS:
    tl.constexpr, CODED: tl.constexpr, SOFTCAP: tl.constexpr, SINKS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N:
    tl.constexpr, STAGES: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    kv_head, kv_heads = tl.program_id(0), tl.num_programs(0)
    member, dims = tl.arange(0, BLOCK_M) // G, tl.arange(0, BLOCK_D)
    heads = kv_head * G + tl.arange(0, BLOCK_M) % G
    held = member < members
    row = tl.load(sharers + (first + member) * SHARER, held, other=0)
    offsets = row.to(tl.int64)[:, None] * stride_qt + heads[:, None] * stride_qh + dims[None, :]
    valid = held[:, None] & (dims < D)[None, :]
    table_row = table + tl.load(sharers + first * SHARER).to(tl.int64) * stride_table
    total, highest, mass = _fold_piece(
        tl.load(q + offsets, valid, other=0.0), k_cache, v_cache, k_scale, v_scale, table_row, line, heads, held, sinks,
        scale, softcap, PAGE, STARTS, CODED, SOFTCAP, SINKS, BLOCK_M, BLOCK_N, STAGES, BLOCK_D, D,
    )  # fmt: skip
    place = tl.load(row_pieces + row * 2, held, other=0) + tl.load(line + 3)
    lines = place.to(tl.int64) * kv_heads * G + heads
    tl.store(partial + lines[:, None] * D + dims[None, :], total, valid)
    tl.store(statistics + lines * 2, highest, held)
    tl.store(statistics + lines * 2 + 1, mass, held)


@triton.jit
def _fold_piece(
    queries, k_cache, v_cache, k_scale, v_scale, table_row, line, heads, held, sinks, scale, softcap, PAGE:
    tl.constexpr, STARTS: tl.constexpr, CODED: tl.constexpr, SOFTCAP: tl.constexpr, SINKS: tl.constexpr, BLOCK_M:
    tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr, BLOCK_D: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Sums, highest score and mass of a piece's keys, for a tile of queries."""
    begin, end = tl.load(line + 1), tl.load(line + 2)
    if CODED:
        queries, scale = suited(queries, scale, k_cache.dtype.element_ty)
    highest, mass = begin_softmax(sinks, heads, held, SINKS)
    if SINKS:  # only the first piece counts it
        number = tl.load(line + 3)
        highest = tl.where(number == 0, highest, LOWEST)
        mass = tl.where(number == 0, mass, 0.0)
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    # Known a turn ahead: keys wait for no table then, and as many tiles of them are under way as there are stages.
    ONE: tl.constexpr = PAGE % BLOCK_N == 0 and STARTS % BLOCK_N == 0
    block = blocks_of(table_row, begin, end, True, PAGE, BLOCK_N, ONE)
    for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        following = blocks_of(table_row, start + BLOCK_N, end, True, PAGE, BLOCK_N, ONE)
        total, highest, mass = fold(
            queries, total, highest, mass, k_cache, v_cache, k_scale, v_scale, block, tl.program_id(0),
            tl.num_programs(0), heads, start, end, scale, softcap, True, False, 0, SOFTCAP, CODED, PAGE, D, BLOCK_N,
            BLOCK_D,
        )  # fmt: skip
        block = following
    return total, highest, mass


@triton.jit
def join_pieces(
    partial, statistics, row_pieces, out, OVERLAP: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """Put the pieces of one row and of HEADS heads together, BLOCK_P at a time."""
    take_turn(OVERLAP)
    row, heads = tl.program_id(0), tl.num_programs(1) * HEADS
    first, count = tl.load(row_pieces + row * 2), tl.load(row_pieces + row * 2 + 1)
    if count == 1:
        return
    for number in range(HEADS):
        head = tl.program_id(1) * HEADS + number
        _join_head(partial, statistics, out, row, head, heads, first, count, D, BLOCK_D, BLOCK_P)


@triton.jit
def _join_head(
    partial, statistics, out, row, head, heads, first, count, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_P: tl.constexpr,
):  # fmt: skip
    dims, part = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_P)
    total = tl.zeros((BLOCK_D,), tl.float32)
    highest, mass = -1.0e30, 0.0
    for start in range(0, count, BLOCK_P):
        piece = start + part
        valid = piece < count
        lines = (first + piece).to(tl.int64) * heads + head
        peaks = tl.load(statistics + lines * 2, valid, other=LOWEST)
        masses = tl.load(statistics + lines * 2 + 1, valid, other=0.0)
        sums = tl.load(partial + lines[:, None] * D + dims[None, :], valid[:, None] & (dims < D)[None, :], other=0.0)
        higher = tl.maximum(highest, tl.max(peaks, 0))
        shrink, weights = tl.exp2(highest - higher), tl.exp2(peaks - higher)
        total = total * shrink + tl.sum(sums * weights[:, None], 0)
        mass = mass * shrink + tl.sum(masses * weights, 0)
        highest = higher
    tl.store(out + (row.to(tl.int64) * heads + head) * D + dims, (total / mass).to(out.dtype.element_ty), dims < D)
