"""One tile of keys and values, folded into the running softmax of a tile of queries (Milakov and Gimelshein, 2018)."""

import triton
import triton.language as tl

LOWEST = tl.constexpr(-1.0e30)
SMALLEST = tl.constexpr(1.0e-30)
EXPONENT = tl.constexpr(0x7F800000)
TINY = tl.constexpr(0x21800000)  # the bits of 2^-60
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def fold(
    q, total, highest, mass, k_cache, v_cache, k_scale, v_scale, block, kv_head, kv_heads, query_position, start, end,
    scale, softcap, BOUNDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr,
    CODED: tl.constexpr, PAGE: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Keys `start` to start + BLOCK_N of a row, each in its `block` [BLOCK_N], or all in one.

    BOUNDED: keys from `end` on are not read. CAUSAL: each query sees up to its own position, and WINDOW keys (0: all).
    CODED: keys and values are codes, each with a scale [block, head, entry] of its own.
    total [M, D], highest and mass [M] are float32, scores in units of log 2.
    """
    dims = tl.arange(0, BLOCK_D)
    keys = start + tl.arange(0, BLOCK_N)
    within = (keys < end) if BOUNDED else (keys >= 0)
    entry = entries_of(block, keys, start, kv_head, kv_heads, PAGE, BLOCK_N)
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
    if CODED:
        # The power of two in a value's scale joins its weight's exponent, so that the largest is 1, in float16 too.
        sizes = tl.load(v_scale + entry, within, other=1.0)
        bits = tl.maximum(sizes.to(tl.int32, bitcast=True) & EXPONENT, TINY)
        scores += ((bits >> 23) - 127).to(tl.float32)[None, :]
        inverse = (0x7F000000 - bits).to(tl.float32, bitcast=True)
    higher = tl.maximum(highest, tl.max(scores, 1))
    weights = tl.exp2(scores - higher[:, None])
    shrink = tl.exp2(highest - higher)
    if CODED:
        mass = mass * shrink + tl.sum(weights * inverse[None, :], 1)
        weights *= (sizes * inverse)[None, :]
        v = _read_pairs(v_cache, entry, within, q.dtype, BOUNDED, D, BLOCK_D)
    else:
        mass = mass * shrink + tl.sum(weights, 1)
        v = _read(v_cache + offsets, within, dims, BOUNDED, D, BLOCK_D).to(q.dtype)
    total = tl.dot(weights.to(q.dtype), v, total * shrink[:, None], input_precision="ieee")
    return total, higher, mass


@triton.jit
def blocks_of(
    table_row, start, end, BOUNDED: tl.constexpr, PAGE: tl.constexpr, BLOCK_N: tl.constexpr, ONE: tl.constexpr = False
):
    """In which blocks a row's keys `start` to start + BLOCK_N lie; BOUNDED: those from `end` on are not looked up.

    ONE: all in one, as `start` and PAGE are multiples of BLOCK_N.
    """
    if ONE:
        return tl.load(table_row + start // PAGE, mask=start < end, other=0)
    elif BOUNDED:
        keys = start + tl.arange(0, BLOCK_N)
        return tl.load(table_row + keys // PAGE, mask=keys < end, other=0)
    else:
        return tl.load(table_row + (start + tl.arange(0, BLOCK_N)) // PAGE)


@triton.jit
def entries_of(block, keys, start, kv_head, kv_heads, PAGE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Lines of keys [BLOCK_N] in a cache [block, head, entry]; one block for all of them is less to work out."""
    line = (block.to(tl.int64) * kv_heads + kv_head) * PAGE
    if len(block.shape) == 0:
        return (line + start % PAGE) + tl.arange(0, BLOCK_N)
    else:
        return line + keys % PAGE


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
def _read_pairs(
    codes, entry, within, TYPE: tl.constexpr, BOUNDED: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Codes [BLOCK_N, BLOCK_D] as numbers, read two at a time.

    So they become numbers where they were read to, before they go where a matrix instruction wants them: it wants a key
    and the next one in one register, which costs an instruction a code as long as they have 8 bits.
    """
    pair = tl.arange(0, BLOCK_D // 2)
    pointers = codes.to(tl.pointer_type(tl.int16), bitcast=True) + entry[:, None] * (D // 2) + pair[None, :]
    both = _read(pointers, within, pair, BOUNDED, D // 2, BLOCK_D // 2)
    low, high = both.to(tl.int8), (both >> 8).to(tl.int8)
    return tl.reshape(tl.join(low, high), (both.shape[0], BLOCK_D)).to(codes.dtype.element_ty, bitcast=True).to(TYPE)


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


@triton.jit
def suited(queries, scale, CODES: tl.constexpr):
    """Queries [M, D] in the type that codes become, and what products are multiplied by.

    Floats of 8 bits become float16 at half an instruction each, bfloat16 at several. Queries are scaled by a power of
    two so that the largest of a line stays below 1, and nothing is lost but what is 2^-24 of that.
    """
    if tl.int8 != CODES and queries.dtype == tl.bfloat16:
        largest = tl.maximum(tl.max(tl.abs(queries.to(tl.float32)), 1), SMALLEST)
        power = tl.ceil(tl.log2(largest))[:, None]
        return (queries.to(tl.float32) * tl.exp2(-power)).to(tl.float16), scale * tl.exp2(power)
    else:
        return queries, scale
