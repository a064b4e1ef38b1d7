"""Between the projections and attention in one pass: normalize heads, rotate them, write keys and values to the cache.

A program takes a few tokens of one head. Heads are numbered queries first, then keys, then values.
LARGEST > 0: the cache holds codes of 8 bits up to that number, whole ones where WHOLE, and a scale for each entry.
"""

import triton
import triton.language as tl

from anychip.triton.programs.order import take_turn


@triton.jit(do_not_specialize=["num_tokens"], do_not_specialize_on_alignment=["positions"])
def prepare_heads(
    q, k, v, q_norm, k_norm, positions, cos_sin, slots, q_out, k_out, v_out, k_scale, v_scale, k_beside, eps,
    num_tokens, stride_qt, stride_qh, stride_kt, stride_kh, stride_vt, stride_vh, OVERLAP: tl.constexpr,
    N: tl.constexpr, M: tl.constexpr, D: tl.constexpr, ROTARY: tl.constexpr, NORM_Q: tl.constexpr,
    NORM_K: tl.constexpr, PAGED: tl.constexpr, PAGE: tl.constexpr, LARGEST: tl.constexpr, WHOLE: tl.constexpr,
    BESIDE: tl.constexpr, TOKENS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """q [T, N, D] -> q_out, contiguous; k and v [T, M, D] -> the cache where PAGED, else k -> k_out, contiguous.

    Where BESIDE, k -> k_beside, contiguous, as well.
    """
    take_turn(OVERLAP)
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    head = tl.program_id(1)
    dims = tl.arange(0, BLOCK_D)
    valid = (token < num_tokens)[:, None] & (dims < D)[None, :]
    wide = token.to(tl.int64)[:, None]
    if head < N:
        source = q + wide * stride_qt + head * stride_qh
        turned = _turn(source, q_norm, positions, cos_sin, token, dims, valid, num_tokens, eps, D, ROTARY, NORM_Q)
        tl.store(q_out + (wide * N + head) * D + dims[None, :], turned.to(q_out.dtype.element_ty), valid)
    elif head < N + M:
        head = head - N
        source = k + wide * stride_kt + head * stride_kh
        turned = _turn(source, k_norm, positions, cos_sin, token, dims, valid, num_tokens, eps, D, ROTARY, NORM_K)
        entry = _entry(slots, token, num_tokens, head, M, PAGE) if PAGED else wide * M + head
        _put(k_out, k_scale, entry, dims, turned.to(k.dtype.element_ty), valid, D, LARGEST, WHOLE)
        if BESIDE:
            tl.store(k_beside + (wide * M + head) * D + dims[None, :], turned.to(k.dtype.element_ty), valid)
    else:
        if PAGED:  # otherwise there is no such head
            head = head - N - M
            values = tl.load(v + wide * stride_vt + head * stride_vh + dims[None, :], valid, other=0.0)
            entry = _entry(slots, token, num_tokens, head, M, PAGE)
            _put(v_out, v_scale, entry, dims, values, valid, D, LARGEST, WHOLE)


@triton.jit(do_not_specialize=["num_tokens"])
def write_heads(
    k, v, slots, k_cache, v_cache, k_scale, v_scale, num_tokens, stride_kt, stride_kh, stride_vt, stride_vh,
    OVERLAP: tl.constexpr, M: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, LARGEST: tl.constexpr,
    WHOLE: tl.constexpr, TOKENS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """k and v [T, M, D] into the cache, not turned."""
    take_turn(OVERLAP)
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    head = tl.program_id(1)
    dims = tl.arange(0, BLOCK_D)
    valid = (token < num_tokens)[:, None] & (dims < D)[None, :]
    wide = token.to(tl.int64)[:, None]
    entry = _entry(slots, token, num_tokens, head, M, PAGE)
    keys = tl.load(k + wide * stride_kt + head * stride_kh + dims[None, :], valid, other=0.0)
    _put(k_cache, k_scale, entry, dims, keys, valid, D, LARGEST, WHOLE)
    values = tl.load(v + wide * stride_vt + head * stride_vh + dims[None, :], valid, other=0.0)
    _put(v_cache, v_scale, entry, dims, values, valid, D, LARGEST, WHOLE)


@triton.jit(do_not_specialize=["num_tokens", "room"], do_not_specialize_on_alignment=["slots"])
def read_heads(
    k_cache, v_cache, k_scale, v_scale, slots, k, v, num_tokens, room, OVERLAP: tl.constexpr, M: tl.constexpr, D:
    tl.constexpr, PAGE: tl.constexpr, CODED: tl.constexpr, TOKENS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The cache's entries of some tokens as k and v [room, M, D], contiguous; zeros behind the last token.

    Whoever multiplies a value by a share of zero needs numbers: those that are none are zeros in v, and their keys are
    none, so that who sees them still knows.
    """
    take_turn(OVERLAP)
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    head = tl.program_id(1)
    dims = tl.arange(0, BLOCK_D)
    there, inside = (token < num_tokens)[:, None], (dims < D)[None, :]
    entry = _entry(slots, token, num_tokens, head, M, PAGE)
    keys = _get(k_cache, k_scale, entry, dims, there, inside, D, CODED)
    values = _get(v_cache, v_scale, entry, dims, there, inside, D, CODED).to(tl.float32)
    nothing = values * 0.0  # what is no number is none in it
    keys = keys.to(tl.float32) + tl.sum(nothing, 1)[:, None]
    values = tl.where(nothing == 0.0, values, 0.0)
    target = (token.to(tl.int64)[:, None] * M + head) * D + dims[None, :]
    tl.store(k + target, keys.to(k.dtype.element_ty), (token < room)[:, None] & inside)
    tl.store(v + target, values.to(v.dtype.element_ty), (token < room)[:, None] & inside)


@triton.jit
def _get(plane, scales, entry, dims, there, inside, D: tl.constexpr, CODED: tl.constexpr):
    """What `_put` has put, 0 where nothing is `there`."""
    values = tl.load(plane + entry * D + dims[None, :], there & inside, other=0.0)
    if CODED:
        values = values.to(tl.float32) * tl.load(scales + entry, there, other=0.0)
    return values


@triton.jit
def _put(
    plane, scales, entry, dims, values, valid, D: tl.constexpr, LARGEST: tl.constexpr, WHOLE: tl.constexpr
):  # fmt: skip
    """Values [TOKENS, BLOCK_D] of one head, 0 where not valid, to their entries [TOKENS, 1]."""
    if LARGEST > 0:
        values = values.to(tl.float32)
        # What is no number is none in the scale, so that the entry's values are none.
        scale = tl.max(tl.abs(values), 1) / LARGEST + tl.sum(values * 0.0, 1)
        values = values / tl.maximum(scale, 1.0e-30)[:, None]
        if WHOLE:
            values = tl.floor(values + 0.5)
        tl.store(scales + entry, scale[:, None])  # that of a token behind the last goes to the null block
    tl.store(plane + entry * D + dims[None, :], values.to(plane.dtype.element_ty), valid)


@triton.jit
def _turn(
    source, norm, positions, cos_sin, token, dims, valid, num_tokens, eps, D: tl.constexpr, ROTARY: tl.constexpr,
    NORM: tl.constexpr,
):  # fmt: skip
    """One head of some tokens, normalized where NORM, its first ROTARY elements turned: x * cos + partner * sin."""
    HALF: tl.constexpr = ROTARY // 2
    turns = dims < ROTARY
    partner = tl.where(turns, tl.where(dims < HALF, dims + HALF, dims - HALF), dims)
    x = tl.load(source + dims[None, :], valid, other=0.0).to(tl.float32)
    y = tl.load(source + partner[None, :], valid, other=0.0).to(tl.float32)
    if NORM:
        scale = tl.rsqrt(tl.sum(x * x, 1) / D + eps)[:, None]
        x = x * scale * tl.load(norm + dims, dims < D, other=0.0).to(tl.float32)[None, :]
        y = y * scale * tl.load(norm + partner, dims < D, other=0.0).to(tl.float32)[None, :]
    position = tl.load(positions + token, token < num_tokens, other=0).to(tl.int64)
    angle = cos_sin + position[:, None] * ROTARY + (dims % HALF)[None, :]
    mask = valid & turns[None, :]
    cos = tl.load(angle, mask, other=1.0)
    sin = tl.load(angle + HALF, mask, other=0.0)
    return x * cos + tl.where((dims < HALF)[None, :], -y, y) * sin


@triton.jit
def _entry(slots, token, num_tokens, head, M: tl.constexpr, PAGE: tl.constexpr):
    """Line of a token's head in a cache [block, head, entry]; a slot is block * PAGE + entry."""
    slot = tl.load(slots + token, token < num_tokens, other=0)[:, None]
    return (slot // PAGE * M + head) * PAGE + slot % PAGE
