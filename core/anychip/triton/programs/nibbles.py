"""Products with weights of 4 bits, packed so that no code has to change its place between memory and the product.

    words [C, N, 16]: nibbles q and q + 4 of word j of chunk c and row n hold inputs 128 c + 32 q + 2 j and the next one

So the nibbles q and q + 4 of a row's 16 words are 32 inputs in order, a pair of them in each word. Codes become
float32 by setting them as the low bits of 2^23. Scales and zero points are [G, N], so that a tile reads neighbours.
NVIDIA's chips have a faster way for most matrices: gluon_programs/fragments.py.
"""

import triton
import triton.language as tl

from anychip.triton.programs.codes import is_last, store_product
from anychip.triton.programs.order import let_next_start, take_turn, wait_for_previous
from anychip.triton.programs.thin import joined

MAGIC = tl.constexpr(0x4B000000)
SHIFTED = tl.constexpr(8388608.0)
SYMMETRIC = tl.constexpr(8.0)
CHUNK = tl.constexpr(128)
WORDS = tl.constexpr(16)


@triton.jit(do_not_specialize=["num_tokens"])
def multiply_nibbles(
    x, words, scales, zeros, bias, out, partial, counters, num_tokens, stride_x, N: tl.constexpr, K: tl.constexpr,
    GROUP: tl.constexpr, ZEROS: tl.constexpr, BIAS: tl.constexpr, OVERLAP: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y [T, N] = x [T, K] W^T. A scale that serves a chunk is applied to its sums, others to the numbers.

    With SPLIT 1 there may be more tokens than BLOCK_T, a program for each block of them.
    """
    let_next_start(OVERLAP)
    wait_for_previous(OVERLAP)
    tl.static_assert(BLOCK_K == 128)
    tile, part = tl.program_id(0), tl.program_id(1)
    rows, tokens, columns = tile * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_K)
    if SPLIT == 1:
        tokens += tl.program_id(2) * BLOCK_T
    lines = rows if N % BLOCK_N == 0 else tl.minimum(rows, N - 1)
    sources = x + tl.minimum(tokens, num_tokens - 1).to(tl.int64)[:, None] * stride_x + columns[None, :]
    chunks: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    share: tl.constexpr = (chunks + SPLIT - 1) // SPLIT
    total = tl.zeros((BLOCK_N, BLOCK_T), tl.float32)
    for chunk in range(part * share, tl.minimum(part * share + share, chunks)):
        start = chunk * BLOCK_K
        if K % 128 == 0:
            z = tl.load(sources + start)
        else:
            z = tl.load(sources + start, (start + columns < K)[None, :], other=0.0)
        numbers = read_chunk(
            words, scales, zeros, lines, chunk, z.dtype, N, K, GROUP, ZEROS, GROUP % 128 != 0, BLOCK_N
        )  # fmt: skip
        if GROUP % 128 != 0:
            total = tl.dot(numbers, tl.trans(z), total, input_precision="ieee")
        else:
            scale = tl.load(scales + chunk // (GROUP // 128) * N + lines).to(tl.float32)
            total += tl.dot(numbers, tl.trans(z), input_precision="ieee") * scale[:, None]
    if SPLIT > 1:
        size: tl.constexpr = ((N + BLOCK_N - 1) // BLOCK_N) * BLOCK_N * BLOCK_T
        offsets = rows[:, None] * BLOCK_T + tokens[None, :]
        if not is_last(partial + part * size + offsets, total, counters + tile, SPLIT):
            return
        total = joined(partial + offsets, size, SPLIT)
    store_product(total, bias, out, rows, tokens, num_tokens, N, BIAS)


@triton.jit
def read_chunk(
    words, scales, zeros, lines, chunk, TYPE: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
    ZEROS: tl.constexpr, SCALED: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """What the codes of a chunk mean, [BLOCK_N, 128] in TYPE, before their scales unless SCALED."""
    place = tl.cast(chunk, tl.int64) * (N * WORDS)
    packed = tl.load(words + place + lines[:, None] * WORDS + tl.arange(0, WORDS)[None, :])
    group = chunk * 4 + tl.arange(0, 4)  # of 32 inputs
    group = tl.minimum(group // (GROUP // 32), K // GROUP - 1)[:, None] * N + lines[None, :]
    if SCALED:
        scale = tl.trans(tl.load(scales + group).to(tl.float32))
    if ZEROS:
        zero = tl.trans(tl.load(zeros + group).to(tl.float32))
    shifts = tl.arange(0, 4)[:, None, None] * 4 + tl.arange(0, 2)[None, None, :] * 16
    codes = ((packed[:, None, :, None] >> shifts[None, :, :, :]) & 15) | MAGIC
    numbers = tl.reshape(codes.to(tl.float32, bitcast=True), (BLOCK_N, 4, 32)) - SHIFTED
    numbers -= zero[:, :, None] if ZEROS else SYMMETRIC
    if SCALED:
        numbers *= scale[:, :, None]
    return tl.reshape(numbers, (BLOCK_N, 128)).to(TYPE)


@triton.jit
def unpack(
    words, scales, zeros, out, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, ZEROS: tl.constexpr, OVERLAP:
    tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Packed codes as numbers, out [N, K]: a program for a chunk of some rows."""
    take_turn(OVERLAP)
    rows, chunk = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.program_id(1)
    lines = rows if N % BLOCK_N == 0 else tl.minimum(rows, N - 1)
    columns = chunk * 128 + tl.arange(0, 128)
    numbers = read_chunk(words, scales, zeros, lines, chunk, tl.float32, N, K, GROUP, ZEROS, True, BLOCK_N)
    targets = out + rows.to(tl.int64)[:, None] * K + columns[None, :]
    tl.store(targets, numbers.to(out.dtype.element_ty), (rows < N)[:, None] & (columns < K)[None, :])
