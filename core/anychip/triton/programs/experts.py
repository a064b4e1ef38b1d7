"""Mixture of experts: choosing them, multiplying, and adding up. The order of pairs: see pairs.py."""

import triton
import triton.language as tl

from anychip.triton.programs.activate import activate
from anychip.triton.programs.order import take_turn
from anychip.triton.programs.thin import read_tile


@triton.jit
def choose(
    logits, shares, chosen, stride, E: tl.constexpr, COUNT: tl.constexpr, RENORMALIZE: tl.constexpr, OVERLAP:
    tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """One token: softmax over E experts, then the COUNT largest, the lowest number first among equals."""
    take_turn(OVERLAP)
    token = tl.program_id(0)
    experts, places = tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_C)
    scores = tl.load(logits + token * stride + experts, experts < E, other=-float("inf")).to(tl.float32)
    scores = tl.exp(scores - tl.max(scores, 0))
    scores = scores / tl.sum(scores, 0)
    left = tl.where(experts < E, scores, -1.0)
    best = tl.zeros((BLOCK_C,), tl.float32)
    numbers = tl.zeros((BLOCK_C,), tl.int32)
    for place in tl.static_range(COUNT):
        highest = tl.max(left, 0)
        number = tl.min(tl.where(left == highest, experts, E - 1), 0)  # the last one, where no score is a number
        best = tl.where(places == place, highest, best)
        numbers = tl.where(places == place, number, numbers)
        left = tl.where(experts == number, -1.0, left)
    best += tl.sum(scores * 0.0, 0)  # a maximum passes over what is no number, and a request has to hear of it
    if RENORMALIZE:
        best = best / tl.sum(best, 0)
    tl.store(shares + token * COUNT + places, best, places < COUNT)
    tl.store(chosen + token * COUNT + places, numbers, places < COUNT)


@triton.jit
def multiply_experts(
    x, x_scales, weight, scales, out, order, owners, shares, stride_x, stride_w, N: tl.constexpr, K: tl.constexpr,
    COUNT: tl.constexpr, ACTIVATION: tl.constexpr, CODED: tl.constexpr, OVERLAP: tl.constexpr, BLOCK_T: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A tile of an expert's rows times a block of its pairs, out [pairs, N].

    With an ACTIVATION x is by token and W has 2N rows: y = activation(gates) * others. Without, x is by pair and y is
    scaled by the pair's share. CODED: both sides in 8 bits, with a scale a row of W and of x. A tile has the weights'
    rows first, so that few pairs still fill a matrix instruction. What a block does not hold is not read.
    """
    take_turn(OVERLAP)
    tile, block = tl.program_id(0), tl.program_id(1)
    owner = tl.load(owners + block)
    if owner < 0:
        return
    rows, columns = tile * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    pairs = tl.load(order + block * BLOCK_T + tl.arange(0, BLOCK_T))
    held = pairs >= 0
    pairs = tl.maximum(pairs, 0)
    inputs = pairs // COUNT if ACTIVATION != "" else pairs
    expert_rows: tl.constexpr = 2 * N if ACTIVATION != "" else N
    numbers = owner.to(tl.int64) * expert_rows + tl.minimum(rows, N - 1)
    lines = weight + numbers[:, None] * stride_w + columns[None, :]
    sources = x + inputs.to(tl.int64)[:, None] * stride_x + columns[None, :]
    sums: tl.constexpr = tl.int32 if weight.dtype.element_ty == tl.int8 else tl.float32
    total = tl.zeros((BLOCK_N, BLOCK_T), sums)
    gates = tl.zeros((BLOCK_N, BLOCK_T), sums)
    for start in range(0, K, BLOCK_K):
        inside = held[:, None] if K % BLOCK_K == 0 else held[:, None] & (start + columns < K)[None, :]
        z = tl.trans(tl.load(sources + start, inside, other=0.0))
        value = read_tile(lines, columns, start, K, BLOCK_K)
        if ACTIVATION != "":
            gates = tl.dot(value, z, gates, input_precision="ieee", out_dtype=sums)
            value = read_tile(lines + tl.cast(N, tl.int64) * stride_w, columns, start, K, BLOCK_K)
        total = tl.dot(value, z, total, input_precision="ieee", out_dtype=sums)
    y, gate = total.to(tl.float32), gates.to(tl.float32)
    if CODED:
        given = tl.load(x_scales + inputs)[None, :]
        y *= tl.load(scales + numbers + (expert_rows - N)).to(tl.float32)[:, None] * given
        gate *= tl.load(scales + numbers).to(tl.float32)[:, None] * given
    if ACTIVATION != "":
        y *= activate(gate, ACTIVATION)
    else:
        y *= tl.load(shares + pairs)[None, :]
    targets = out + pairs.to(tl.int64)[None, :] * N + rows[:, None]
    tl.store(targets, y.to(out.dtype.element_ty), (rows < N)[:, None] & held[None, :])


@triton.jit
def add_pairs(products, out, H: tl.constexpr, COUNT: tl.constexpr, OVERLAP: tl.constexpr, BLOCK: tl.constexpr):
    """One token's products [COUNT, H], in the order of its experts, into one row."""
    take_turn(OVERLAP)
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for place in tl.static_range(COUNT):
        total += tl.load(products + (token * COUNT + place) * H + columns, columns < H, other=0.0).to(tl.float32)
    tl.store(out + token * H + columns, total.to(out.dtype.element_ty), columns < H)
