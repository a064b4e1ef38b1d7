"""A draw: weights of blocks of the vocabulary, again where less than all of it is kept, then a block and a token.

Weights of a block are taken relative to its own highest logit, so that one reading finds both. Sums do not depend on
the other rows: neither on what those ask for nor, by `in_fours`, on the type that their logits have come in.
"""

import triton
import triton.language as tl

from anychip.triton.programs.greedy import note
from anychip.triton.programs.order import take_turn

GOLDEN, FIRST = tl.constexpr(0x9E3779B97F4A7C15), tl.constexpr(0xBF58476D1CE4E5B9)
SECOND, PURPOSES = tl.constexpr(0x94D049BB133111EB), tl.constexpr(16)
"""As in anychip.sample.random."""


@triton.jit
def weigh_blocks(
    logits, temperatures, parts_out, blocks_out, stride, V: tl.constexpr, OVERLAP: tl.constexpr, BLOCK: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """blocks_out [2, L, parts * TILE]: highest logit and weight of each block of BLOCK tokens.

    parts_out [3, L, parts]: of each TILE blocks the highest logit, NaN where any is, the weight relative to it, and the
    least of the blocks' highest.
    """
    take_turn(OVERLAP)
    row, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    block = part * TILE + tl.arange(0, TILE)
    token = block[:, None] * BLOCK + in_fours(BLOCK)[None, :]
    x = tl.load(logits + row.to(tl.int64) * stride + token, token < V, other=float("-inf")).to(tl.float32)
    top, inverse = tl.max(x, 1), 1.0 / temperature_of(temperatures, row)
    weight = tl.sum(tl.exp((x - finite(top)[:, None]) * inverse), 1)
    peak = tl.max(top, 0)
    out, plane = blocks_out + row * parts * TILE + block, tl.num_programs(0) * parts
    tl.store(out, top)
    tl.store(out + plane * TILE, weight)
    broken = tl.max(tl.max((x != x).to(tl.int32), 1), 0) > 0
    out = parts_out + row * parts + part
    tl.store(out, tl.where(broken, float("nan"), peak))
    tl.store(out + plane, tl.sum(weight * tl.exp((top - finite(peak)) * inverse), 0))
    tl.store(out + 2 * plane, tl.min(tl.where(block * BLOCK < V, top, float("inf")), 0))


@triton.jit
def weigh_kept(
    logits, temperatures, min_ps, floors, of_parts, blocks_out, stride, parts, V: tl.constexpr, OVERLAP: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The weights of blocks again, without tokens below a row's floor: that of `floors`, if any, or of min_p."""
    take_turn(OVERLAP)
    row, part = tl.program_id(0), tl.program_id(1)
    floor = tl.log(tl.load(min_ps + row)) if floors is None else tl.load(floors + row)
    if floor > float("-inf"):
        highest, _ = peak_of(of_parts + row * parts, parts, PARTS)
        temperature = temperature_of(temperatures, row)
        block = part * TILE + tl.arange(0, TILE)
        out = blocks_out + row * parts * TILE + block
        top = tl.load(out)
        kept = scale(top, highest, temperature) >= floor
        weight = tl.zeros_like(top)
        if tl.max(kept.to(tl.int32), 0) > 0:
            token = block[:, None] * BLOCK + in_fours(BLOCK)[None, :]
            line, there = logits + row.to(tl.int64) * stride, (token < V) & kept[:, None]
            x = tl.load(line + token, there, other=float("-inf")).to(tl.float32)
            weights = tl.exp((x - finite(top)[:, None]) * (1.0 / temperature))
            weight = tl.sum(tl.where(scale(x, highest, temperature) >= floor, weights, 0.0), 1)
        tl.store(out + tl.num_programs(0) * parts * TILE, tl.where(kept, weight, 0.0))


@triton.jit
def draw_block(
    logits, of_parts, of_blocks, temperatures, min_ps, floors, numbers, keys, positions, ids, highest_out, rows, newest,
    stride, parts, V: tl.constexpr, OVERLAP: tl.constexpr, TAKE: tl.constexpr, PARTS: tl.constexpr,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """ids [L] int64 and highest [L] out of the weights of blocks.

    With TAKE the numbers are those of `keys` at `positions`, and ids are noted, see `note`.
    """
    take_turn(OVERLAP)
    row, block = tl.program_id(0), tl.arange(0, BLOCKS)
    highest, broken = peak_of(of_parts + row * parts, parts, PARTS)
    temperature = temperature_of(temperatures, row)
    floor = tl.log(tl.load(min_ps + row)) if floors is None else tl.load(floors + row)
    if TAKE:
        one, two = uniforms(tl.load(keys + row), tl.load(positions + row))
    else:
        one, two = tl.load(numbers + row * 2), tl.load(numbers + row * 2 + 1)
    top = tl.load(of_blocks + row * parts * TILE + block, block < parts * TILE, other=float("-inf"))
    plane = tl.num_programs(0) * parts * TILE
    weights = tl.load(of_blocks + plane + row * parts * TILE + block, block < parts * TILE, other=0.0)
    at = passed_at(weights * tl.exp(scale(top, highest, temperature)), one)
    token = at * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row.to(tl.int64) * stride + token, token < V, other=float("-inf")).to(tl.float32)
    scaled = scale(x, highest, temperature)
    token = at * BLOCK + passed_at(tl.where(scaled >= floor, tl.exp(scaled), 0.0), two)
    highest = tl.where(broken, float("nan"), highest)
    if TAKE:
        note(row, token, highest, ids, rows, newest)
    else:
        tl.store(ids + row, token.to(tl.int64))
        tl.store(highest_out + row, highest)


@triton.jit
def temperature_of(temperatures, row):
    """A row's temperature, as anychip.sample.choose.scale takes it."""
    return tl.maximum(tl.load(temperatures + row), 1e-10)


@triton.jit
def scale(x, highest, temperature):
    """Logits over temperature, the highest being 0; the same everywhere, so that equal ones compare equal."""
    return tl.div_rn(x - highest, temperature + tl.zeros_like(x))


@triton.jit
def finite(x):
    """What weights are relative to: not what is infinite."""
    return tl.where(tl.abs(x) == float("inf"), 0.0, x)


@triton.jit
def in_fours(COUNT: tl.constexpr):
    """Indices of which the compiler knows only that four are neighbours: it then adds in one order for all types."""
    return tl.max_contiguous(tl.arange(0, COUNT), 4)


@triton.jit
def peak_of(peaks, parts, PARTS: tl.constexpr):
    """The highest of a row's peaks, and whether any is no number."""
    part = tl.arange(0, PARTS)
    x = tl.load(peaks + part, part < parts, other=float("-inf"))
    return tl.max(tl.where(x == x, x, float("-inf")), 0), tl.max((x != x).to(tl.int32), 0) > 0


@triton.jit
def passed_at(weights, number):
    """Where the running sum passes `number` of the total; never an element of weight 0."""
    index = tl.arange(0, weights.shape[0])
    mass = tl.cumsum(weights, 0)
    passed = (mass > number * tl.max(mass, 0)) & (weights > 0)
    last = tl.max(tl.where(weights > 0, index, 0), 0)
    return tl.minimum(tl.min(tl.where(passed, index, 2147483647), 0), last)


@triton.jit
def uniforms(key, position):
    """Two numbers in [0, 1), as anychip.sample.random.uniforms for the purpose of sampling, which is 0."""
    z = key.to(tl.uint64, bitcast=True) + position.to(tl.uint64) * PURPOSES * GOLDEN
    z = (z ^ (z >> 30)) * FIRST
    z = (z ^ (z >> 27)) * SECOND
    z = z ^ (z >> 31)
    return _fraction(z >> 40), _fraction(z >> 16)


@triton.jit
def _fraction(bits):
    """The lowest 24 bits as a number in [0, 1)."""
    return (bits & 0xFFFFFF).to(tl.int32).to(tl.float32) * 5.9604644775390625e-8
