"""Products with weights that are kept as codes: 8-bit integers or floats, or 4-bit integers packed eight a word.

A word holds the codes of inputs 16 apart, so that neighbouring words mean neighbouring inputs:

    unit u of 128 inputs = 16 words; word j of it: bits 4i.. hold the code of input 128 u + 16 i + j

Codes become numbers by setting them as the low bits of 2^23, which costs less than a conversion.
"""

import triton
import triton.language as tl

from anychip.triton.programs.order import let_next_start, take_turn, wait_for_previous

MAGIC = tl.constexpr(0x4B000000)
SHIFTED = tl.constexpr(8388608.0)
SYMMETRIC = tl.constexpr(8.0)


@triton.jit(do_not_specialize=["num_tokens"])
def multiply_nibbles(
    x, words, scales, zeros, bias, out, num_tokens, stride_x, stride_s, N: tl.constexpr, K: tl.constexpr, GROUP:
    tl.constexpr, ZEROS: tl.constexpr, BIAS: tl.constexpr, OVERLAP: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N:
    tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """y [T, N] = x [T, K] W^T for T <= BLOCK_T, with words [N, ceil(K / 128) * 16]. BLOCK_T 1: sums without tiles."""
    let_next_start(OVERLAP)
    wait_for_previous(OVERLAP)
    rows, lanes = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_W)
    inside = tl.minimum(rows, N - 1).to(tl.int64)[:, None]
    tokens = tl.arange(0, BLOCK_T)
    length: tl.constexpr = (K + 127) // 128 * 16
    total = tl.zeros((BLOCK_N, BLOCK_W if BLOCK_T == 1 else BLOCK_T), tl.float32)
    for start in range(0, length, BLOCK_W):
        word = start + lanes
        packed = tl.load(words + inside * length + word[None, :], (word < length)[None, :], other=0)
        first = word // 16 * 128 + word % 16
        for part in tl.static_range(8):
            column = first + part * 16
            group = inside * stride_s + tl.minimum(column // GROUP, (K - 1) // GROUP)[None, :]
            value = (((packed >> (4 * part)) & 15) | MAGIC).to(tl.float32, bitcast=True) - SHIFTED
            value -= tl.load(zeros + group).to(tl.float32) if ZEROS else SYMMETRIC
            value *= tl.load(scales + group).to(tl.float32)
            if BLOCK_T == 1:
                z = tl.load(x + column, column < K, other=0.0).to(tl.float32)
                total += value * z[None, :]
            else:
                sources = x + tl.minimum(tokens, num_tokens - 1)[:, None] * stride_x + column[None, :]
                z = tl.load(sources, (column < K)[None, :], other=0.0)
                total = tl.dot(value.to(z.dtype), tl.trans(z), total, input_precision="ieee")
    _store(tl.sum(total, 1)[:, None] if BLOCK_T == 1 else total, bias, out, rows, tokens, num_tokens, N, BIAS)


@triton.jit(do_not_specialize=["num_tokens"])
def multiply_bytes(
    x, codes, scales, bias, out, num_tokens, stride_x, stride_s, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
    BIAS: tl.constexpr, OVERLAP: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The same for codes [N, K] of 8 bits; with GROUP = K the scale is applied once, to the sums."""
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
    _store(total, bias, out, rows, tokens, num_tokens, N, BIAS)


@triton.jit
def _store(total, bias, out, rows, tokens, num_tokens, N: tl.constexpr, BIAS: tl.constexpr):
    if BIAS:
        total += tl.load(bias + rows, rows < N, other=0.0).to(tl.float32)[:, None]
    inside = (rows < N)[:, None] & (tokens < num_tokens)[None, :]
    tl.store(out + tokens[None, :] * N + rows[:, None], total.to(out.dtype.element_ty), inside)


@triton.jit
def unpack(
    words, scales, zeros, out, stride_s, K: tl.constexpr, GROUP: tl.constexpr, ZEROS: tl.constexpr, OVERLAP:
    tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """One row of packed codes as numbers, out [N, K]."""
    take_turn(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    length: tl.constexpr = (K + 127) // 128 * 16
    word = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    packed = tl.load(words + row * length + word, word < length, other=0)
    for part in tl.static_range(8):
        column = word // 16 * 128 + word % 16 + part * 16
        group = row * stride_s + tl.minimum(column // GROUP, (K - 1) // GROUP)
        value = (((packed >> (4 * part)) & 15) | MAGIC).to(tl.float32, bitcast=True) - SHIFTED
        value -= tl.load(zeros + group).to(tl.float32) if ZEROS else SYMMETRIC
        value *= tl.load(scales + group).to(tl.float32)
        tl.store(out + row * K + column, value.to(out.dtype.element_ty), column < K)


@triton.jit
def round_rows(
    x, codes, scales, stride_x, K: tl.constexpr, LARGEST: tl.constexpr, WHOLE: tl.constexpr, OVERLAP: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One token's values in 8 bits, the largest of them at LARGEST; WHOLE: as integers."""
    take_turn(OVERLAP)
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    value = tl.load(x + row * stride_x + columns, columns < K, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(value), 0) / LARGEST, 1e-12)
    value = value / scale
    if WHOLE:
        value = tl.floor(value + 0.5)
    tl.store(codes + row * K + columns, value.to(codes.dtype.element_ty), columns < K)
    tl.store(scales + row, scale)


@triton.jit
def scale_sums(
    sums, row_scales, column_scales, bias, out, N, BIAS: tl.constexpr, OVERLAP: tl.constexpr, BLOCK: tl.constexpr
):
    """Integer sums [T, N] times a scale a token and a scale a column, plus a bias."""
    take_turn(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(sums + row * N + column, column < N, other=0).to(tl.float32)
    value *= tl.load(row_scales + row) * tl.load(column_scales + column, column < N, other=0.0).to(tl.float32)
    if BIAS:
        value += tl.load(bias + column, column < N, other=0.0).to(tl.float32)
    tl.store(out + row * N + column, value.to(out.dtype.element_ty), column < N)
