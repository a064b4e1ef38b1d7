"""Experts of a few tokens: each pair's matrices are read for it alone, without a matrix instruction and unsorted."""

import triton
import triton.language as tl

from anychip.triton.programs.activate import activate
from anychip.triton.programs.order import let_next_start, wait_for_previous
from anychip.triton.programs.thin import read_tile


@triton.jit
def gate_pairs(
    x, weight, scales, out, chosen, stride_x, stride_w, N: tl.constexpr, K: tl.constexpr, COUNT: tl.constexpr,
    ACTIVATION: tl.constexpr, CODED: tl.constexpr, OVERLAP: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One pair's out [pairs, N] = activation(gates) * others, of its expert's 2N rows; a scale a row where CODED."""
    wait_for_previous(OVERLAP)
    let_next_start(OVERLAP)  # so what comes next may read what was chosen without waiting
    rows, columns, pair = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K), tl.program_id(1)
    numbers = tl.load(chosen + pair).to(tl.int64) * 2 * N + tl.minimum(rows, N - 1)
    lines = weight + numbers[:, None] * stride_w + columns[None, :]
    gates = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    total = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    for start in tl.static_range(0, K, BLOCK_K):
        z = tl.load(x + (pair // COUNT) * stride_x + start + columns, start + columns < K, other=0.0).to(tl.float32)
        gates += read_tile(lines, columns, start, K, BLOCK_K).to(tl.float32) * z[None, :]
        others = read_tile(lines + tl.cast(N, tl.int64) * stride_w, columns, start, K, BLOCK_K)
        total += others.to(tl.float32) * z[None, :]
    gate, y = tl.sum(gates, 1), tl.sum(total, 1)
    if CODED:
        gate *= tl.load(scales + numbers).to(tl.float32)
        y *= tl.load(scales + numbers + N).to(tl.float32)
    y *= activate(gate, ACTIVATION)
    tl.store(out + pair.to(tl.int64) * N + rows, y.to(out.dtype.element_ty), rows < N)


@triton.jit
def join_experts(
    x, weight, scales, out, chosen, shares, stride_w, N: tl.constexpr, K: tl.constexpr, COUNT: tl.constexpr, CODED:
    tl.constexpr, OVERLAP: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One token's out [T, N]: the sum of its COUNT experts' products with x [pairs, K], by their shares."""
    let_next_start(OVERLAP)
    token = tl.program_id(1)
    rows, columns, places = (
        tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N),
        tl.arange(0, BLOCK_K),
        tl.arange(0, BLOCK_C),
    )
    pairs = token * COUNT + tl.minimum(places, COUNT - 1)
    experts = tl.load(chosen + pairs, cache_modifier=".cg").to(tl.int64)
    numbers = experts[:, None] * N + tl.minimum(rows, N - 1)[None, :]
    lines = weight + numbers[:, :, None] * stride_w + columns[None, None, :]
    values = _read(lines, columns, 0, K, BLOCK_K)  # before x is there: no program writes weights
    factors = tl.load(shares + pairs, places < COUNT, other=0.0, cache_modifier=".cg")[:, None]
    if CODED:
        factors = factors * tl.load(scales + numbers).to(tl.float32)
    wait_for_previous(OVERLAP)
    y = tl.zeros((BLOCK_C, BLOCK_N), tl.float32)
    for start in tl.static_range(0, K, BLOCK_K):
        inside = (places < COUNT)[:, None] & (start + columns < K)[None, :]
        z = tl.load(x + pairs.to(tl.int64)[:, None] * K + start + columns[None, :], inside, other=0.0).to(tl.float32)
        if start > 0:
            values = _read(lines, columns, start, K, BLOCK_K)
        y += tl.sum(values.to(tl.float32) * z[:, None, :], 2)
    total = tl.sum(y * factors, 0)
    tl.store(out + token.to(tl.int64) * N + rows, total.to(out.dtype.element_ty), rows < N)


@triton.jit
def _read(lines, columns, start, K: tl.constexpr, BLOCK_K: tl.constexpr):
    if K % BLOCK_K == 0:
        return tl.load(lines + start)
    else:
        return tl.load(lines + start, (start + columns < K)[None, None, :], other=0.0)
