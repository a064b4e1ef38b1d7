"""A matrix times a few vectors: weights are the rows of the matrix instruction, tokens its columns.

Where the output is short, several programs share its rows and split the inputs; the last to finish adds up their sums,
in the order of their numbers, and clears the counter for the next launch.
"""

import triton
import triton.language as tl

from anychip.triton.programs.activate import activate
from anychip.triton.programs.order import fetch_ahead, let_next_start, wait_for_previous


@triton.jit(do_not_specialize=["num_tokens"])
def multiply_thin(
    x, weight, given, tiles, bias, out, partial, counters, num_tokens, stride_x, stride_w, N: tl.constexpr, K:
    tl.constexpr, OVERLAP: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr, SPLIT: tl.constexpr, AHEAD:
    tl.constexpr, PARTS: tl.constexpr, TILED: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K:
    tl.constexpr,
):  # fmt: skip
    """y [T, N] = x [T, K] W^T, T <= BLOCK_T. With an ACTIVATION W has 2N rows: y = activation(gates) * others.

    AHEAD: inputs of each row of W that are asked for before x is there: no program writes weights. TILED: x and W are
    read through descriptors of their tiles, `given` and `tiles`; without, the first weights are read before x is there.
    """
    let_next_start(OVERLAP)
    tile, part = tl.program_id(0), tl.program_id(1)
    rows, tokens = tile * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_T)
    heads = weight + tl.minimum(rows, N - 1).to(tl.int64)[:, None] * stride_w
    share: tl.constexpr = (K + SPLIT * BLOCK_K - 1) // (SPLIT * BLOCK_K) * BLOCK_K
    tl.static_assert((SPLIT - 1) * share < K)  # each part has something to do
    start, stop = part * share, tl.minimum(part * share + share, K)
    if AHEAD > 0:
        fetch_ahead(heads, start, stop, AHEAD, PARTS)
        if ACTIVATION != "":
            fetch_ahead(heads + tl.cast(N, tl.int64) * stride_w, start, stop, AHEAD, PARTS)
    if TILED:
        wait_for_previous(OVERLAP)
        total, gates = _multiply_tiles(given, tiles, tile, start, stop, N, ACTIVATION != "", BLOCK_T, BLOCK_N, BLOCK_K)
    else:
        sources = x + tl.minimum(tokens, num_tokens - 1)[:, None] * stride_x
        total, gates = _multiply_lines(
            sources, heads, stride_w, start, stop, N, K, OVERLAP, ACTIVATION != "", BLOCK_T, BLOCK_N, BLOCK_K
        )
    inside = (rows < N)[:, None] & (tokens < num_tokens)[None, :]
    if SPLIT > 1:
        offsets = rows[:, None] * BLOCK_T + tokens[None, :]
        size: tl.constexpr = ((N + BLOCK_N - 1) // BLOCK_N) * BLOCK_N * BLOCK_T
        tl.store(partial + part * size + offsets, total)
        if ACTIVATION != "":
            tl.store(partial + (SPLIT + part) * size + offsets, gates)
        tl.debug_barrier()  # all threads' sums are written before the count says so
        if tl.atomic_add(counters + tile, 1, sem="acq_rel") < SPLIT - 1:
            return
        tl.debug_barrier()
        tl.store(counters + tile, 0)
        total = joined(partial + offsets, size, SPLIT)
        if ACTIVATION != "":
            gates = joined(partial + SPLIT * size + offsets, size, SPLIT)
    if BIAS:
        total += tl.load(bias + rows, rows < N, other=0.0).to(tl.float32)[:, None]
    if ACTIVATION != "":
        total *= activate(gates, ACTIVATION)
    tl.store(out + tokens[None, :] * N + rows[:, None], total.to(out.dtype.element_ty), inside)


@triton.jit
def _multiply_tiles(
    given, tiles, tile, begin, stop, N: tl.constexpr, GATED: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Sums [BLOCK_N, BLOCK_T] of inputs `begin` to stop, and those of the gates, read through descriptors."""
    total = tl.zeros((BLOCK_N, BLOCK_T), tl.float32)
    gates = tl.zeros((BLOCK_N, BLOCK_T), tl.float32)
    for start in range(begin, stop, BLOCK_K):
        z = tl.trans(given.load([0, start]))
        if GATED:
            gates = tl.dot(tiles.load([tile * BLOCK_N, start]), z, gates, input_precision="ieee")
            total = tl.dot(tiles.load([N + tile * BLOCK_N, start]), z, total, input_precision="ieee")
        else:
            total = tl.dot(tiles.load([tile * BLOCK_N, start]), z, total, input_precision="ieee")
    return total, gates


@triton.jit
def _multiply_lines(
    sources, heads, stride_w, begin, stop, N: tl.constexpr, K: tl.constexpr, OVERLAP: tl.constexpr, GATED: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The same from pointers to lines, once the previous program has ended; the first weights are read before."""
    columns = tl.arange(0, BLOCK_K)
    sources, lines = sources + columns[None, :], heads + columns[None, :]
    others = lines + tl.cast(N, tl.int64) * stride_w
    values = read_tile(lines, columns, begin, K, BLOCK_K)
    if GATED:
        more = read_tile(others, columns, begin, K, BLOCK_K)
    wait_for_previous(OVERLAP)
    zeros = tl.zeros((BLOCK_N, BLOCK_T), tl.float32)
    z = tl.trans(read_tile(sources, columns, begin, K, BLOCK_K))
    total, gates = tl.dot(values, z, zeros, input_precision="ieee"), zeros
    if GATED:
        gates, total = total, tl.dot(more, z, zeros, input_precision="ieee")
    for start in range(begin + BLOCK_K, stop, BLOCK_K):
        z = tl.trans(read_tile(sources, columns, start, K, BLOCK_K))
        if GATED:
            gates = tl.dot(read_tile(lines, columns, start, K, BLOCK_K), z, gates, input_precision="ieee")
            total = tl.dot(read_tile(others, columns, start, K, BLOCK_K), z, total, input_precision="ieee")
        else:
            total = tl.dot(read_tile(lines, columns, start, K, BLOCK_K), z, total, input_precision="ieee")
    return total, gates


@triton.jit
def read_tile(lines, columns, start, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """Inputs `start` to start + BLOCK_K of each line; 0 behind the last one."""
    if K % BLOCK_K == 0:
        return tl.load(lines + start)
    else:
        return tl.load(lines + start, (start + columns < K)[None, :], other=0.0)


@triton.jit
def joined(sources, size, SPLIT: tl.constexpr):
    """The sums of all programs of a tile, in order."""
    total = tl.load(sources, cache_modifier=".cg")
    for part in tl.static_range(1, SPLIT):
        total += tl.load(sources + part * size, cache_modifier=".cg")
    return total
