"""Attention of rows that bring several tokens, on chips that copy a page's keys or values by themselves.

What lies behind the end of a row in its last page may be another request's, or no number, and 0 * nan is nan. So the
tile at the end is read from earlier on, as many keys as it would have too many; what comes before a page reads as 0:

    page      | a b c . . . . . |     row ends behind c
    tile      0 0 0 0 0 a b c
"""

import triton
import triton.language as tl

from anychip.triton.programs.fold import LOG2_E, begin_softmax
from anychip.triton.programs.order import take_turn
from anychip.triton.programs.plan import PIECE


@triton.jit(do_not_specialize=["stride_table"], do_not_specialize_on_alignment=["table"])
def attend_pages(
    q, k_tiles, v_tiles, table, pieces, out, sinks, scale, softcap, stride_qt, stride_qh, stride_table, OVERLAP:
    tl.constexpr, G: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr,
    SINKS: tl.constexpr, TOKENS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """As `attend_queries`: keys and values by descriptors of tiles [1, BLOCK_N, BLOCK_D] of [block * head, PAGE, D]."""
    take_turn(OVERLAP)
    kv_head, kv_heads = tl.program_id(1), tl.num_programs(1)
    line = pieces + tl.program_id(0) * PIECE
    row = tl.load(line)
    if row < 0:
        return
    first, stop, begin, length = tl.load(line + 1), tl.load(line + 2), tl.load(line + 3), tl.load(line + 4)
    lines, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    token = first + lines // G
    heads = kv_head * G + lines % G
    held = (token < stop) & (lines < TOKENS * G)
    valid = held[:, None] & (dims < D)[None, :]
    end = tl.minimum(begin + stop - first, length)  # a row of padding has one key, however many tokens
    position = tl.where(held, begin + lines // G, begin)
    offsets = token.to(tl.int64)[:, None] * stride_qt + heads[:, None] * stride_qh + dims[None, :]
    queries = tl.load(q + offsets, valid, other=0.0)
    highest, mass = begin_softmax(sinks, heads, held, SINKS)
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    table_row = table + row.to(tl.int64) * stride_table
    low = tl.maximum(begin - WINDOW + 1, 0) // BLOCK_N * BLOCK_N if WINDOW > 0 else 0
    block = tl.load(table_row + low // PAGE)
    for start in tl.range(low, end, BLOCK_N, num_stages=STAGES):
        plane = block * kv_heads + kv_head
        block = tl.load(table_row + (start + BLOCK_N) // PAGE, mask=start + BLOCK_N < end, other=0)  # a turn ahead
        behind = tl.maximum(start + BLOCK_N - length, 0)
        entry = start % PAGE - behind
        keys = tl.reshape(k_tiles.load([plane, entry, 0]), (BLOCK_N, BLOCK_D))
        scores = tl.dot(queries, tl.trans(keys))
        if SOFTCAP:
            scores = softcap * LOG2_E * (1.0 - 2.0 / (1.0 + tl.exp2(scores * (scale * 2.0 * LOG2_E / softcap))))
        partly = start + BLOCK_N > begin + 1
        if WINDOW > 0:
            partly = partly | (start < end - WINDOW)
        if partly:
            key = start - behind + tl.arange(0, BLOCK_N)[None, :]
            visible = (key >= start) & (key <= position[:, None])
            if WINDOW > 0:
                visible = visible & (key > position[:, None] - WINDOW)
            scores = tl.where(visible, scores, float("-inf"))
        factor = 1.0 if SOFTCAP else scale
        higher = tl.maximum(highest, tl.max(scores, 1) * factor)
        weights = tl.exp2(scores * factor - higher[:, None])
        shrink = tl.exp2(highest - higher)
        mass = mass * shrink + tl.sum(weights, 1)
        highest = higher
        values = tl.reshape(v_tiles.load([plane, entry, 0]), (BLOCK_N, BLOCK_D))
        total = tl.dot(weights.to(queries.dtype), values, total * shrink[:, None])
    result = total * (1.0 / mass)[:, None]
    offsets = (token.to(tl.int64) * kv_heads * G + heads)[:, None] * D + dims[None, :]
    tl.store(out + offsets, result.to(out.dtype.element_ty), valid)
