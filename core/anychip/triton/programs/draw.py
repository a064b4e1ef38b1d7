"""A draw from a whole distribution: peaks of parts (greedy.py), then weights of blocks, then a block and a token."""

import triton
import triton.language as tl

from anychip.triton.programs.order import take_turn
from anychip.triton.programs.sample import leave_token, passed_at, read_scaled, stream_numbers, weigh


@triton.jit(do_not_specialize=["parts"])
def weigh_blocks(
    logits, peaks, temperatures, min_ps, sums, stride, parts, V: tl.constexpr, OVERLAP: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """sums [L, parts * TILE]: the weight of each block of BLOCK tokens, after `find_peaks` of parts of TILE blocks."""
    take_turn(OVERLAP)
    row, part = tl.program_id(0), tl.program_id(1)
    highest, _ = _peak_of(peaks + row * parts, parts, PARTS)
    temperature = tl.maximum(tl.load(temperatures + row), 1e-10)
    block = part * TILE + tl.arange(0, TILE)
    token = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    scaled = read_scaled(logits + row.to(tl.int64) * stride, token, highest, temperature, V)
    weights = weigh(scaled, tl.log(tl.load(min_ps + row)))
    tl.store(sums + row * parts * TILE + block, tl.sum(weights, 1))


@triton.jit(do_not_specialize=["parts"])
def draw_block(
    logits, peaks, temperatures, min_ps, numbers, keys, positions, sums, ids, highest_out, rows, newest, stride, parts,
    V: tl.constexpr, OVERLAP: tl.constexpr, TAKE: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """ids [L] int64 and highest [L] out of the sums of `weigh_blocks`, with TAKE as in `draw_tokens`."""
    take_turn(OVERLAP)
    row, block = tl.program_id(0), tl.arange(0, BLOCKS)
    highest, broken = _peak_of(peaks + row * parts, parts, PARTS)
    temperature = tl.maximum(tl.load(temperatures + row), 1e-10)
    one, two = stream_numbers(row, numbers, keys, positions, TAKE)
    at = passed_at(tl.load(sums + row * parts * TILE + block, block < parts * TILE, other=0.0), one)
    token = at * BLOCK + tl.arange(0, BLOCK)
    scaled = read_scaled(logits + row.to(tl.int64) * stride, token, highest, temperature, V)
    token = at * BLOCK + passed_at(weigh(scaled, tl.log(tl.load(min_ps + row))), two)
    leave_token(row, token, tl.where(broken, float("nan"), highest), ids, highest_out, rows, newest, TAKE)


@triton.jit
def _peak_of(peaks, parts, PARTS: tl.constexpr):
    """The highest of a row's peaks, and whether any is no number."""
    part = tl.arange(0, PARTS)
    x = tl.load(peaks + part, part < parts, other=float("-inf"))
    return tl.max(tl.where(x == x, x, float("-inf")), 0), tl.max((x != x).to(tl.int32), 0) > 0
