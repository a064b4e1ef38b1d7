"""Attention of rows that bring one token: the context is read in pieces by as many programs as fill the chip.

    pass 1, a program for each piece and cached head:  a row of one piece is done; others leave sums in `partial`
    pass 2, a program for each row and query head:     the pieces of a row are put together

Putting them together in the last program of a row to finish was slower: one processor then reads what many wrote.
"""

import triton
import triton.language as tl

from anychip.triton.programs.fold import LOWEST, begin_softmax, fold
from anychip.triton.programs.order import take_turn
from anychip.triton.programs.plan import PIECE


@triton.jit(do_not_specialize=["stride_table"], do_not_specialize_on_alignment=["table"])
def attend_contexts(
    q, k_cache, v_cache, k_scale, v_scale, table, pieces, out, partial, statistics, sinks, scale, softcap, stride_qt,
    stride_qh, stride_table, OVERLAP: tl.constexpr, G: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    CODED: tl.constexpr, SOFTCAP: tl.constexpr, SINKS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Queries of one token and cached head, G heads, against one piece of their context."""
    take_turn(OVERLAP)
    piece, kv_head, kv_heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    line = pieces + piece * PIECE
    row = tl.load(line)
    if row < 0:
        return
    begin, end, number, count = tl.load(line + 1), tl.load(line + 2), tl.load(line + 3), tl.load(line + 4)
    members, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    heads = kv_head * G + members
    valid = (members < G)[:, None] & (dims < D)[None, :]
    queries = tl.load(q + row.to(tl.int64) * stride_qt + heads[:, None] * stride_qh + dims[None, :], valid, other=0.0)
    highest, mass = begin_softmax(sinks, heads, members < G, SINKS)
    if SINKS:  # only the first piece counts it
        highest = tl.where(number == 0, highest, LOWEST)
        mass = tl.where(number == 0, mass, 0.0)
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    table_row = table + row.to(tl.int64) * stride_table
    for start in range(begin, end, BLOCK_N):
        total, highest, mass = fold(
            queries, total, highest, mass, k_cache, v_cache, k_scale, v_scale, table_row, kv_head, kv_heads, members,
            start, end, scale, softcap, True, False, 0, SOFTCAP, CODED, PAGE, D, BLOCK_N, BLOCK_D,
        )  # fmt: skip
    if count == 1:
        offsets = (row.to(tl.int64) * kv_heads * G + heads)[:, None] * D + dims[None, :]
        result = total / tl.where(mass > 0.0, mass, 1.0)[:, None]
        tl.store(out + offsets, result.to(out.dtype.element_ty), valid)
    else:
        lines = (piece.to(tl.int64) * kv_heads + kv_head) * G + members
        tl.store(partial + lines[:, None] * D + dims[None, :], total, valid)
        tl.store(statistics + lines * 2, highest, members < G)
        tl.store(statistics + lines * 2 + 1, mass, members < G)


@triton.jit
def join_pieces(
    partial, statistics, row_pieces, out, OVERLAP: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_P: tl.constexpr,
):  # fmt: skip
    """Put the pieces of one row and head together, BLOCK_P at a time."""
    take_turn(OVERLAP)
    row, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    first, count = tl.load(row_pieces + row * 2), tl.load(row_pieces + row * 2 + 1)
    if count == 1:
        return
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
