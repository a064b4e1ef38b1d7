"""Experts of some tokens: weights copied in tiles, their rows first, so that few pairs still fill a matrix instruction.

What a block does not hold is not read. The second product need not wait for all of the first: `done` counts the tiles
of each block, and a block's second product starts when all of them are there.
"""

import triton
import triton.language as tl

from anychip.triton.programs.activate import activate
from anychip.triton.programs.order import let_next_start, wait_for_previous


@triton.jit
def gate_tiles(
    x, tiles, out, order, owners, done, stride_x, N: tl.constexpr, K: tl.constexpr, COUNT: tl.constexpr, ACTIVATION:
    tl.constexpr, OVERLAP: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out [pairs, N] = activation(gates) * others; tiles [2, BLOCK_N, BLOCK_K] of [2E, N, K], both at once."""
    wait_for_previous(OVERLAP)
    let_next_start(OVERLAP)  # so what comes next knows blocks without waiting
    tile, block = tl.program_id(0), tl.program_id(1)
    owner = tl.load(owners + block)
    if owner < 0:
        return
    pairs = tl.load(order + block * BLOCK_T + tl.arange(0, BLOCK_T))
    held = pairs >= 0
    lines = x + (tl.maximum(pairs, 0) // COUNT).to(tl.int64) * stride_x
    both = tl.zeros((2 * BLOCK_N, BLOCK_T), tl.float32)
    for start in range(0, K, BLOCK_K):
        z = _read(lines, held, start, K, BLOCK_K)
        value = tiles.load([owner * 2, tile * BLOCK_N, start]).reshape([2 * BLOCK_N, BLOCK_K])
        both = tl.dot(value, z.T, both)
    gates, others = both.reshape(2, BLOCK_N, BLOCK_T).permute(1, 2, 0).split()
    _put(out, others * activate(gates, ACTIVATION), pairs, held, tile, N, BLOCK_N)
    tl.debug_barrier()  # all threads' products are written before the count says so
    tl.atomic_add(done + block, 1, sem="release")


@triton.jit
def multiply_tiles(
    x, tiles, out, order, owners, done, shares, N: tl.constexpr, K: tl.constexpr, PARTS: tl.constexpr, OVERLAP:
    tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out [pairs, N], scaled by shares, of x [pairs, K] in PARTS tiles; tiles [1, BLOCK_N, BLOCK_K] of [E, N, K].

    It starts when all programs of the product before have been started, and must not end before they have.
    """
    let_next_start(OVERLAP)
    tile, block = tl.program_id(0), tl.program_id(1)
    owner = tl.load(owners + block, cache_modifier=".cg")
    if owner >= 0:
        pairs = tl.load(order + block * BLOCK_T + tl.arange(0, BLOCK_T), cache_modifier=".cg")
        held = pairs >= 0
        lines = x + tl.maximum(pairs, 0).to(tl.int64) * K
        while tl.atomic_add(done + block, 0, sem="acquire") < PARTS:
            pass
        tl.debug_barrier()
        total = tl.zeros((BLOCK_N, BLOCK_T), tl.float32)
        for start in range(0, K, BLOCK_K):
            z = _read(lines, held, start, K, BLOCK_K)
            value = tiles.load([owner, tile * BLOCK_N, start]).reshape([BLOCK_N, BLOCK_K])
            total = tl.dot(value, z.T, total)
        y = total * tl.load(shares + tl.maximum(pairs, 0))[None, :]
        _put(out, y, pairs, held, tile, N, BLOCK_N)
    wait_for_previous(OVERLAP)


@triton.jit
def _read(lines, held, start, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """Inputs [BLOCK_T, BLOCK_K] of the lines that are held; 0 for others and behind the last input."""
    columns = start + tl.arange(0, BLOCK_K)
    inside = held[:, None] if K % BLOCK_K == 0 else held[:, None] & (columns < K)[None, :]
    return tl.load(lines[:, None] + columns[None, :], inside, other=0.0)


@triton.jit
def _put(out, y, pairs, held, tile, N: tl.constexpr, BLOCK_N: tl.constexpr):
    """y [BLOCK_N, BLOCK_T] into the lines of the pairs that are held."""
    rows = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    targets = out + pairs.to(tl.int64)[None, :] * N + rows[:, None]
    tl.store(targets, y.to(out.dtype.element_ty), (rows < N)[:, None] & held[None, :])
