"""Mixture of experts: choosing them, putting each one's tokens together, and multiplying.

A pair is a token and one of its k experts, number token * k + place. Sorted by expert, each expert's pairs fill whole
blocks of BLOCK_T:

    order   | 4 9 . . | 0 1 7 8 | 2 . . . |    pairs, -1 where a block is not full
    owners  |    0    |    0..  |    3    | -1 ...    expert of each block, -1 behind the last one
"""

import triton
import triton.language as tl

from anychip.triton.programs.activate import activate
from anychip.triton.programs.order import let_next_start, take_turn, wait_for_previous
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


@triton.jit(do_not_specialize=["num_pairs"])
def count_pairs(
    chosen, counts, num_pairs, E: tl.constexpr, OVERLAP: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_P: tl.constexpr
):
    """How many of a chunk of BLOCK_P pairs go to each expert, counts [chunks, BLOCK_E]."""
    take_turn(OVERLAP)
    chunk = tl.program_id(0)
    tl.store(counts + chunk * BLOCK_E + tl.arange(0, BLOCK_E), _counted(chosen, chunk, num_pairs, BLOCK_E, BLOCK_P))


@triton.jit
def _counted(chosen, chunk, num_pairs, BLOCK_E: tl.constexpr, BLOCK_P: tl.constexpr):
    pairs = chunk * BLOCK_P + tl.arange(0, BLOCK_P)
    return tl.histogram(tl.load(chosen + pairs, pairs < num_pairs, other=BLOCK_E - 1), BLOCK_E)


@triton.jit
def place_chunks(
    counts, E: tl.constexpr, CHUNKS: tl.constexpr, OVERLAP: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_E: tl.constexpr,
    BLOCK_T: tl.constexpr,
):  # fmt: skip
    """Where each chunk's pairs of each expert begin, in the place of their counts; behind them all pairs, [BLOCK_E]."""
    take_turn(OVERLAP)
    experts, chunks = tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_C)
    table = counts + chunks[:, None] * BLOCK_E + experts[None, :]
    taken = tl.load(table, (chunks < CHUNKS)[:, None], other=0)
    totals = tl.sum(taken, 0)
    blocks = _blocks(totals, E, BLOCK_E, BLOCK_T)
    starts = (tl.cumsum(blocks, 0) - blocks) * BLOCK_T
    tl.debug_barrier()  # all counts are read before any place is written
    tl.store(table, starts[None, :] + tl.cumsum(taken, 0) - taken, (chunks < CHUNKS)[:, None])
    tl.store(counts + CHUNKS * BLOCK_E + experts, totals)


@triton.jit
def _blocks(totals, E: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_T: tl.constexpr):
    """Blocks that each expert's pairs fill."""
    return tl.where(tl.arange(0, BLOCK_E) < E, (totals + BLOCK_T - 1) // BLOCK_T, 0)


@triton.jit(do_not_specialize=["num_pairs", "num_blocks"])
def sort_pairs(
    chosen, places, order, owners, num_pairs, num_blocks, E: tl.constexpr, OVERLAP: tl.constexpr, CHUNKS: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """The pairs of one expert in one chunk of all pairs: behind those of earlier chunks, in order.

    With one chunk the pairs are counted here, with several `places` says where to begin.
    """
    take_turn(OVERLAP)
    expert, chunk = tl.program_id(0), tl.program_id(1)
    lanes = tl.arange(0, BLOCK_P)
    if CHUNKS == 1:
        experts, totals = tl.arange(0, BLOCK_E), _counted(chosen, 0, num_pairs, BLOCK_E, BLOCK_P)
        blocks = _blocks(totals, E, BLOCK_E, BLOCK_T)
        begin = tl.sum(tl.where(experts < expert, blocks, 0), 0) * BLOCK_T
        total = tl.sum(tl.where(experts == expert, totals, 0), 0)
    else:
        begin = tl.load(places + chunk * BLOCK_E + expert)
        total = tl.load(places + CHUNKS * BLOCK_E + expert)
    pairs = chunk * BLOCK_P + lanes
    here = (tl.load(chosen + pairs, pairs < num_pairs, other=-1) == expert).to(tl.int32)
    tl.store(order + begin + tl.cumsum(here, 0) - 1, pairs, here == 1)
    if chunk == 0:
        first, mine = begin // BLOCK_T, (total + BLOCK_T - 1) // BLOCK_T
        behind = total + tl.arange(0, BLOCK_T)
        tl.store(order + begin + behind, -1, behind < mine * BLOCK_T)
        for start in range(0, mine, BLOCK_P):
            tl.store(owners + first + start + lanes, expert, start + lanes < mine)
        if expert == E - 1:
            for start in range(first + mine, num_blocks, BLOCK_P):
                tl.store(owners + start + lanes, -1, start + lanes < num_blocks)


@triton.jit
def multiply_experts(
    x, x_scales, weight, tiles, scales, out, order, owners, shares, stride_x, stride_w, N: tl.constexpr, K:
    tl.constexpr, COUNT: tl.constexpr, ACTIVATION: tl.constexpr, CODED: tl.constexpr, TILED: tl.constexpr, OVERLAP:
    tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A tile of an expert's rows times a block of its pairs, out [pairs, N].

    With an ACTIVATION x is by token and W has 2N rows: y = activation(gates) * others. Without, x is by pair and y is
    scaled by the pair's share. CODED: both sides in 8 bits, with a scale a row of W and of x. TILED: W is read through
    a descriptor of its tiles. A tile has the weights' rows first, so that few pairs still fill a matrix instruction.
    """
    let_next_start(OVERLAP)
    tile, block = tl.program_id(0), tl.program_id(1)
    wait_for_previous(OVERLAP)
    owner = tl.load(owners + block)
    if owner < 0:
        return
    rows, columns = tile * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    pairs = tl.load(order + block * BLOCK_T + tl.arange(0, BLOCK_T))
    held = pairs >= 0
    pairs = tl.maximum(pairs, 0)
    inputs = pairs // COUNT if ACTIVATION != "" else pairs
    expert_rows: tl.constexpr = 2 * N if ACTIVATION != "" else N
    first = owner * expert_rows + tile * BLOCK_N
    numbers = owner.to(tl.int64) * expert_rows + tl.minimum(rows, N - 1)
    lines = weight + numbers[:, None] * stride_w + columns[None, :]
    sources = x + inputs.to(tl.int64)[:, None] * stride_x + columns[None, :]
    sums: tl.constexpr = tl.int32 if weight.dtype.element_ty == tl.int8 else tl.float32
    total = tl.zeros((BLOCK_N, BLOCK_T), sums)
    gates = tl.zeros((BLOCK_N, BLOCK_T), sums)
    for start in range(0, K, BLOCK_K):
        z = tl.trans(read_tile(sources, columns, start, K, BLOCK_K))
        value = tiles.load([first, start]) if TILED else read_tile(lines, columns, start, K, BLOCK_K)
        if ACTIVATION != "":
            gates = tl.dot(value, z, gates, input_precision="ieee", out_dtype=sums)
            if TILED:
                value = tiles.load([first + N, start])
            else:
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
