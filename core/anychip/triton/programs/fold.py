"""One tile of keys and values, folded into the running softmax of a tile of queries (Milakov and Gimelshein, 2018)."""

import triton
import triton.language as tl

LOWEST = tl.constexpr(-1.0e30)
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def fold(
    q, total, highest, mass, k_cache, v_cache, k_scale, v_scale, block, kv_head, kv_heads, query_position, start, end,
    scale, softcap, BOUNDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr,
    CODED: tl.constexpr, PAGE: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Keys `start` to start + BLOCK_N of a row, each in its `block` [BLOCK_N].

    BOUNDED: keys from `end` on are not read. CAUSAL: each query sees up to its own position, and WINDOW keys (0: all).
    CODED: keys and values are codes, each with a scale [block, head, entry] of its own.
    total [M, D], highest and mass [M] are float32, scores in units of log 2.
    """
    dims = tl.arange(0, BLOCK_D)
    keys = start + tl.arange(0, BLOCK_N)
    within = (keys < end) if BOUNDED else (keys >= 0)
    entry = (block.to(tl.int64) * kv_heads + kv_head) * PAGE + keys % PAGE
    offsets = entry[:, None] * D + dims[None, :]
    # What lies behind the end may be another request's, or no number: it is read as 0, because 0 * nan is nan.
    k = _read(k_cache + offsets, within, dims, BOUNDED, D, BLOCK_D).to(q.dtype)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if CODED:
        scores *= tl.load(k_scale + entry, within, other=0.0)[None, :]
    if SOFTCAP:  # of the natural scores; without it `scale` already includes the change of base
        scores = softcap * LOG2_E * (1.0 - 2.0 / (1.0 + tl.exp2(scores * (2.0 * LOG2_E / softcap))))
    if CAUSAL:
        distance = query_position[:, None] - keys[None, :]
        visible = distance >= 0
        if WINDOW > 0:
            visible = visible & (distance < WINDOW)
        scores = tl.where(visible, scores, LOWEST)
    if BOUNDED:
        scores = tl.where(within[None, :], scores, LOWEST)
    higher = tl.maximum(highest, tl.max(scores, 1))
    weights = tl.exp2(scores - higher[:, None])
    shrink = tl.exp2(highest - higher)
    mass = mass * shrink + tl.sum(weights, 1)
    v = _read(v_cache + offsets, within, dims, BOUNDED, D, BLOCK_D).to(q.dtype)
    if CODED:
        weights *= tl.load(v_scale + entry, within, other=0.0)[None, :]
    total = tl.dot(weights.to(q.dtype), v, total * shrink[:, None], input_precision="ieee")
    return total, higher, mass


@triton.jit
def blocks_of(table_row, start, end, BOUNDED: tl.constexpr, PAGE: tl.constexpr, BLOCK_N: tl.constexpr):
    """In which blocks a row's keys `start` to start + BLOCK_N lie; BOUNDED: those from `end` on are not looked up."""
    keys = start + tl.arange(0, BLOCK_N)
    if BOUNDED:
        return tl.load(table_row + keys // PAGE, mask=keys < end, other=0)
    else:
        return tl.load(table_row + keys // PAGE)


@triton.jit
def _read(pointers, within, dims, BOUNDED: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr):
    if BOUNDED and BLOCK_D != D:
        return tl.load(pointers, mask=within[:, None] & (dims[None, :] < D), other=0.0)
    elif BOUNDED:
        return tl.load(pointers, mask=within[:, None], other=0.0)
    elif BLOCK_D != D:
        return tl.load(pointers, mask=dims[None, :] < D, other=0.0)
    else:
        return tl.load(pointers)


@triton.jit
def begin_softmax(sinks, heads, valid, SINKS: tl.constexpr):
    """Highest score and mass before any key: a sink is a score without a value."""
    if SINKS:
        highest = tl.load(sinks + heads, mask=valid, other=0.0).to(tl.float32) * LOG2_E
        mass = tl.full(heads.shape, 1.0, tl.float32)
    else:
        highest = tl.full(heads.shape, LOWEST, tl.float32)
        mass = tl.zeros(heads.shape, tl.float32)
    return highest, mass
