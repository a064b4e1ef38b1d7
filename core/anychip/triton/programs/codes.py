"""Products with weights that are kept as codes of 8 bits: integers or floats."""

import triton
import triton.language as tl

from anychip.triton.programs.order import let_next_start, wait_for_previous
from anychip.triton.programs.thin import joined


@triton.jit(do_not_specialize=["num_tokens"])
def multiply_rounded(
    x, given, tiles, x_scales, codes, scales, bias, out, partial, counters, num_tokens, N: tl.constexpr, K:
    tl.constexpr, GROUP: tl.constexpr, TERMS: tl.constexpr, BIAS: tl.constexpr, OVERLAP: tl.constexpr, SPLIT:
    tl.constexpr, TILED: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y [T, N] = x [T, K] W^T with both sides in 8 bits: x_scales [G, T] of tokens, and a scale a row, scales [N].

    GROUP inputs of a token share a scale, 0: all. TERMS 2: x [2, T, K] is a sum, the second term in 254ths of the
    first's steps. TILED: x and W are read through descriptors, `given` and `tiles`. With SPLIT 1 there may be more
    tokens than BLOCK_T, a program for each block of them.
    """
    let_next_start(OVERLAP)
    wait_for_previous(OVERLAP)
    tile, part = tl.program_id(0), tl.program_id(1)
    rows, columns = tile * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    block = tl.program_id(2) * BLOCK_T if SPLIT == 1 else 0
    tokens = block + tl.arange(0, BLOCK_T)
    lines = codes + tl.minimum(rows, N - 1).to(tl.int64)[:, None] * K + columns[None, :]
    sources = x + tl.minimum(tokens, num_tokens - 1).to(tl.int64)[:, None] * K + columns[None, :]
    others = sources + num_tokens.to(tl.int64) * K
    share: tl.constexpr = (K + SPLIT * BLOCK_K - 1) // (SPLIT * BLOCK_K) * BLOCK_K
    sums: tl.constexpr = tl.int32 if codes.dtype.element_ty == tl.int8 and GROUP == 0 else tl.float32
    total, rest = tl.zeros((BLOCK_N, BLOCK_T), sums), tl.zeros((BLOCK_N, BLOCK_T), sums)
    for start in range(part * share, tl.minimum(part * share + share, K), BLOCK_K):
        inside = (start + columns < K)[None, :]
        if TILED:
            value, z = tiles.load([tile * BLOCK_N, start]), given.load([block, start])
        else:
            value, z = tl.load(lines + start, inside, other=0.0), tl.load(sources + start, inside, other=0.0)
        if TERMS == 2:
            more = given.load([num_tokens + block, start]) if TILED else tl.load(others + start, inside, other=0)
            total = tl.dot(value, tl.trans(z), total, out_dtype=sums)
            rest = tl.dot(value, tl.trans(more), rest, out_dtype=sums)
        elif GROUP > 0:
            tl.static_assert(GROUP % BLOCK_K == 0)
            factor = tl.load(x_scales + start // GROUP * num_tokens + tokens, tokens < num_tokens, other=0.0)
            total += tl.dot(value, tl.trans(z), out_dtype=tl.int32).to(tl.float32) * factor[None, :]
        else:
            total = tl.dot(value, tl.trans(z), total, out_dtype=sums)
    product = total.to(tl.float32)
    if TERMS == 2:
        product += rest.to(tl.float32) * (1 / 254)
    if SPLIT > 1:
        size: tl.constexpr = ((N + BLOCK_N - 1) // BLOCK_N) * BLOCK_N * BLOCK_T
        offsets = rows[:, None] * BLOCK_T + tokens[None, :]
        if not is_last(partial + part * size + offsets, product, counters + tile, SPLIT):
            return
        product = joined(partial + offsets, size, SPLIT)
    product *= tl.load(scales + rows, rows < N, other=0.0).to(tl.float32)[:, None]
    if GROUP == 0:
        product *= tl.load(x_scales + tokens, tokens < num_tokens, other=0.0)[None, :]
    store_product(product, bias, out, rows, tokens, num_tokens, N, BIAS)


@triton.jit
def is_last(targets, total, counter, SPLIT: tl.constexpr):
    """Leave this program's sums; whether all others of its tile have left theirs, and the counter is 0 again."""
    tl.store(targets, total)
    tl.debug_barrier()  # all threads' sums are written before the count says so
    last = tl.atomic_add(counter, 1, sem="acq_rel") == SPLIT - 1
    tl.debug_barrier()
    if last:
        tl.store(counter, 0)
    return last


@triton.jit(do_not_specialize=["num_tokens"])
def multiply_bytes(
    x, codes, scales, bias, out, num_tokens, stride_x, stride_s, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
    BIAS: tl.constexpr, OVERLAP: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The same for numbers x and codes [N, K]; with GROUP = K the scale is applied once, to the sums."""
    let_next_start(OVERLAP)
    wait_for_previous(OVERLAP)
    rows, columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    inside = tl.minimum(rows, N - 1).to(tl.int64)[:, None]
    tokens = tl.arange(0, BLOCK_T)
    total = tl.zeros((BLOCK_N, BLOCK_K if BLOCK_T == 1 else BLOCK_T), tl.float32)
    for start in range(0, K, BLOCK_K):
        column = start + columns
        value = tl.load(codes + inside * K + column[None, :], (column < K)[None, :], other=0.0).to(tl.float32)
        if GROUP != K:
            group = tl.minimum(column // GROUP, (K - 1) // GROUP)[None, :]
            value *= tl.load(scales + inside * stride_s + group).to(tl.float32)
        if BLOCK_T == 1:
            z = tl.load(x + column, column < K, other=0.0).to(tl.float32)
            total += value * z[None, :]
        else:
            sources = x + tl.minimum(tokens, num_tokens - 1)[:, None] * stride_x + column[None, :]
            z = tl.load(sources, (column < K)[None, :], other=0.0)
            total = tl.dot(value.to(z.dtype), tl.trans(z), total, input_precision="ieee")
    if BLOCK_T == 1:
        total = tl.sum(total, 1)[:, None]
    if GROUP == K:
        total *= tl.load(scales + inside * stride_s).to(tl.float32)
    store_product(total, bias, out, rows, tokens, num_tokens, N, BIAS)


@triton.jit
def store_product(total, bias, out, rows, tokens, num_tokens, N: tl.constexpr, BIAS: tl.constexpr):
    """Sums [BLOCK_N, BLOCK_T] of some rows, plus a bias, to out [T, N]."""
    if BIAS:
        total += tl.load(bias + rows, rows < N, other=0.0).to(tl.float32)[:, None]
    inside = (rows < N)[:, None] & (tokens < num_tokens)[None, :]
    tl.store(out + tokens.to(tl.int64)[None, :] * N + rows[:, None], total.to(out.dtype.element_ty), inside)
