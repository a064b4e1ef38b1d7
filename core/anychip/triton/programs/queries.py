"""Attention of rows that bring several tokens: tiles of tokens times query heads against the row's paged context."""

import triton
import triton.language as tl

from anychip.triton.programs.fold import begin_softmax, blocks_of, fold, suited
from anychip.triton.programs.order import take_turn
from anychip.triton.programs.plan import PIECE


@triton.jit(do_not_specialize=["stride_table"], do_not_specialize_on_alignment=["table", "positions"])
def attend_queries(
    q, k_cache, v_cache, k_scale, v_scale, table, positions, pieces, out, sinks, scale, softcap, stride_qt, stride_qh,
    stride_table, OVERLAP: tl.constexpr, G: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, CODED: tl.constexpr,
    WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, SINKS: tl.constexpr, TOKENS: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Up to TOKENS tokens of one row with the G heads of one cached head: line m holds token m // G, head m % G."""
    take_turn(OVERLAP)
    kv_head, kv_heads = tl.program_id(1), tl.num_programs(1)
    line = pieces + tl.program_id(0) * PIECE
    row = tl.load(line)
    if row < 0:
        return
    first, stop = tl.load(line + 1), tl.load(line + 2)
    lines, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    token = first + lines // G
    heads = kv_head * G + lines % G
    held = (token < stop) & (lines < TOKENS * G)
    valid = held[:, None] & (dims < D)[None, :]
    begin, end = tl.load(positions + first), tl.load(positions + stop - 1) + 1
    position = tl.load(positions + token, held, other=0)
    position = tl.where(held, position, begin)
    offsets = token.to(tl.int64)[:, None] * stride_qt + heads[:, None] * stride_qh + dims[None, :]
    queries = tl.load(q + offsets, valid, other=0.0)
    if CODED:
        queries, scale = suited(queries, scale, k_cache.dtype.element_ty)
    highest, mass = begin_softmax(sinks, heads, held, SINKS)
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    table_row = table + row.to(tl.int64) * stride_table
    if WINDOW > 0:
        low = tl.maximum(begin - WINDOW + 1, 0)
    else:  # what all queries of the tile see needs no mask
        low = (begin + 1) // BLOCK_N * BLOCK_N
        for start in range(0, low, BLOCK_N):
            block = blocks_of(table_row, start, end, False, PAGE, BLOCK_N)
            total, highest, mass = fold(
                queries, total, highest, mass, k_cache, v_cache, k_scale, v_scale, block, kv_head, kv_heads, position,
                start, end, scale, softcap, False, False, 0, SOFTCAP, CODED, PAGE, D, BLOCK_N, BLOCK_D,
            )  # fmt: skip
    for start in range(low, end, BLOCK_N):
        block = blocks_of(table_row, start, end, True, PAGE, BLOCK_N)
        total, highest, mass = fold(
            queries, total, highest, mass, k_cache, v_cache, k_scale, v_scale, block, kv_head, kv_heads, position,
            start, end, scale, softcap, True, True, WINDOW, SOFTCAP, CODED, PAGE, D, BLOCK_N, BLOCK_D,
        )  # fmt: skip
    result = total / mass[:, None]
    offsets = (token.to(tl.int64) * kv_heads * G + heads)[:, None] * D + dims[None, :]
    tl.store(out + offsets, result.to(out.dtype.element_ty), valid)
