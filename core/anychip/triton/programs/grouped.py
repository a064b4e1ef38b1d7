"""Many tokens times weights in integers of 8 bits.

Tokens are the rows of the matrix instruction: a thread then holds few of them, and needs few scales of a group.
"""

import triton
import triton.language as tl

from anychip.triton.programs.order import take_turn


@triton.jit(do_not_specialize=["num_tokens"])
def multiply_grouped(
    given, tiles, x_scales, scales, bias, out, num_tokens, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, TERMS:
    tl.constexpr, BIAS: tl.constexpr, OVERLAP: tl.constexpr, CROWD: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N:
    tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """As `multiply_rounded`, read through descriptors; GROUP is 0, or BLOCK_K.

    CROWD blocks of tokens follow one another on the same rows of W, which then come from the cache.
    """
    tl.static_assert(GROUP == 0 or (GROUP == BLOCK_K and TERMS == 1))
    take_turn(OVERLAP)
    heights: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    program = tl.program_id(0)
    first = program // (CROWD * heights) * CROWD
    count = tl.minimum(tl.cdiv(num_tokens, BLOCK_T) - first, CROWD)
    within = program % (CROWD * heights)
    block, tile = (first + within % count) * BLOCK_T, within // count * BLOCK_N
    tokens, rows = block + tl.arange(0, BLOCK_T), tile + tl.arange(0, BLOCK_N)
    inside, factors = tokens < num_tokens, x_scales + tokens
    if GROUP > 0:
        product = tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
        for start in range(0, K, GROUP):
            factor = tl.load(factors, inside, other=0.0)
            value, z = tiles.load([tile, start]), given.load([block, start])
            product += tl.dot(z, tl.trans(value), out_dtype=tl.int32).to(tl.float32) * factor[:, None]
            factors += num_tokens
    else:
        product = _sums(given, tiles, num_tokens, block, tile, K, TERMS, BLOCK_T, BLOCK_N, BLOCK_K)
        product *= tl.load(factors, inside, other=0.0)[:, None]
    product *= tl.load(scales + rows, rows < N, other=0.0).to(tl.float32)[None, :]
    if BIAS:
        product += tl.load(bias + rows, rows < N, other=0.0).to(tl.float32)[None, :]
    targets = out + tokens.to(tl.int64)[:, None] * N + rows[None, :]
    tl.store(targets, product.to(out.dtype.element_ty), inside[:, None] & (rows < N)[None, :])


@triton.jit
def _sums(
    given, tiles, num_tokens, block, tile, K: tl.constexpr, TERMS: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N:
    tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Sums [BLOCK_T, BLOCK_N] of codes, in steps of the first term."""
    total, rest = tl.zeros((BLOCK_T, BLOCK_N), tl.int32), tl.zeros((BLOCK_T, BLOCK_N), tl.int32)
    for start in range(0, K, BLOCK_K):
        value = tl.trans(tiles.load([tile, start]))
        total = tl.dot(given.load([block, start]), value, total, out_dtype=tl.int32)
        if TERMS == 2:
            rest = tl.dot(given.load([num_tokens + block, start]), value, rest, out_dtype=tl.int32)
    product = total.to(tl.float32)
    if TERMS == 2:
        product += rest.to(tl.float32) * (1 / 254)
    return product
