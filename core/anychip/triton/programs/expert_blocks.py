"""Experts of many tokens: whole blocks of pairs, weights copied in tiles, the pairs' rows first in each instruction.

What is between the two products lies in the order of pairs.py, so that the second one copies whole tiles as well.
"""

import triton
import triton.language as tl

from anychip.triton.programs.activate import activate
from anychip.triton.programs.order import take_turn


@triton.jit
def gate_blocks(
    x, tiles, out, order, owners, stride_x, N: tl.constexpr, K: tl.constexpr, COUNT: tl.constexpr, ACTIVATION:
    tl.constexpr, OVERLAP: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out [places, N] = activation(gates) * others of each place's pair; tiles [2, BLOCK_N, BLOCK_K] of [2E, N, K].

    Where half of a block or less is held, half of it is computed.
    """
    take_turn(OVERLAP)
    tile, block = tl.program_id(0), tl.program_id(1)
    owner = tl.load(owners + block)
    if owner < 0:
        return
    half: tl.constexpr = BLOCK_T // 2
    first = block * BLOCK_T
    if tl.load(order + first + half) < 0:
        _gate(x, tiles, out, order, owner, first, tile, stride_x, N, K, COUNT, ACTIVATION, half, BLOCK_N, BLOCK_K)
    else:
        _gate(x, tiles, out, order, owner, first, tile, stride_x, N, K, COUNT, ACTIVATION, BLOCK_T, BLOCK_N, BLOCK_K)


@triton.jit
def _gate(
    x, tiles, out, order, owner, first, tile, stride_x, N: tl.constexpr, K: tl.constexpr, COUNT: tl.constexpr,
    ACTIVATION: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """BLOCK_T places from the first one on."""
    columns, places = tl.arange(0, BLOCK_K), first + tl.arange(0, BLOCK_T)
    pairs = tl.load(order + places)
    held = (pairs >= 0)[:, None]
    sources = x + (tl.maximum(pairs, 0) // COUNT).to(tl.int64)[:, None] * stride_x + columns[None, :]
    both = tl.zeros((BLOCK_T, 2 * BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        inside = held if K % BLOCK_K == 0 else held & (start + columns < K)[None, :]
        z = tl.load(sources + start, inside, other=0.0)
        value = tiles.load([owner * 2, tile * BLOCK_N, start]).reshape([2 * BLOCK_N, BLOCK_K])
        both = tl.dot(z, value.T, both)
    gates, others = both.reshape(BLOCK_T, 2, BLOCK_N).permute(0, 2, 1).split()
    y = others * activate(gates, ACTIVATION)
    rows = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    targets = out + places.to(tl.int64)[:, None] * N + rows[None, :]
    tl.store(targets, y.to(out.dtype.element_ty), held & (rows < N)[None, :])


@triton.jit
def multiply_blocks(
    inputs, tiles, out, order, owners, used, shares, N: tl.constexpr, K: tl.constexpr, PROGRAMS: tl.constexpr, OVERLAP:
    tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out [pairs, N], scaled by shares, of inputs [places, K] in tiles; tiles [1, BLOCK_N, BLOCK_K] of [E, N, K].

    A program for each processor goes on to its next tile while the loads for it are under way: K is short.
    """
    take_turn(OVERLAP)
    tiles_of_rows: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    lanes = tl.arange(0, BLOCK_T)
    for work in tl.range(tl.program_id(0), tl.load(used) * tiles_of_rows, PROGRAMS, flatten=True):
        tile, block = work % tiles_of_rows, work // tiles_of_rows
        owner = tl.load(owners + block)
        total = tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
        for start in range(0, K, BLOCK_K):
            z = inputs.load([block * BLOCK_T, start])
            value = tiles.load([owner, tile * BLOCK_N, start]).reshape([BLOCK_N, BLOCK_K])
            total = tl.dot(z, value.T, total)
        pairs = tl.load(order + block * BLOCK_T + lanes)
        held = (pairs >= 0)[:, None]
        pairs = tl.maximum(pairs, 0)
        rows = tile * BLOCK_N + tl.arange(0, BLOCK_N)
        y = total * tl.load(shares + pairs)[:, None]
        targets = out + pairs.to(tl.int64)[:, None] * N + rows[None, :]
        tl.store(targets, y.to(out.dtype.element_ty), held & (rows < N)[None, :])
