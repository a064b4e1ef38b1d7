"""A draw in two programs: parts of the vocabulary weigh their blocks, then each row draws a block and a token.

Weights of a block are taken relative to its own highest logit, so that one reading finds both. Where a row keeps less
than everything, it reads again only blocks in which the cut may lie, or that have tokens above it. Nothing depends on
the other rows: neither on what those ask for nor, by `in_fours`, on the type that their logits have come in.
"""

import triton
import triton.language as tl

from anychip.triton.programs.floors import find_floor
from anychip.triton.programs.greedy import note
from anychip.triton.programs.order import take_turn
from anychip.triton.programs.scaled import finite, in_fours, list_blocks, read_blocks, scale, temperature_of

GOLDEN, FIRST = tl.constexpr(0x9E3779B97F4A7C15), tl.constexpr(0xBF58476D1CE4E5B9)
SECOND, PURPOSES = tl.constexpr(0x94D049BB133111EB), tl.constexpr(16)
"""As in anychip.sample.random."""


@triton.jit
def weigh_blocks(
    logits, temperatures, of_blocks, stride, V: tl.constexpr, OVERLAP: tl.constexpr, BLOCK: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """of_blocks [3, L, parts * TILE]: highest logit of each block of BLOCK tokens, and the weight relative to it.

    A weight is NaN where any logit is. The third plane is left for `draw_tokens`.
    """
    take_turn(OVERLAP)
    row, part, blocks = tl.program_id(0), tl.program_id(1), tl.num_programs(1) * TILE
    block = part * TILE + tl.arange(0, TILE)
    token = block[:, None] * BLOCK + in_fours(BLOCK)[None, :]
    x = tl.load(logits + row.to(tl.int64) * stride + token, token < V, other=float("-inf")).to(tl.float32)
    top, inverse = tl.max(x, 1), 1.0 / temperature_of(temperatures, row)
    out = of_blocks + row * blocks + block
    tl.store(out, top)
    tl.store(out + tl.num_programs(0) * blocks, tl.sum(tl.exp((x - finite(top)[:, None]) * inverse), 1))


@triton.jit(do_not_specialize=["blocks"])
def draw_tokens(
    logits, temperatures, top_ks, top_ps, min_ps, of_blocks, places, lists, numbers, keys, positions, ids, highest_out,
    rows, newest, stride, blocks, V: tl.constexpr, OVERLAP: tl.constexpr, TAKE: tl.constexpr, BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr, TILE: tl.constexpr, ROOM: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """ids [L] int64 and highest [L]; `places` [2, L, blocks] and `lists` [L, ROOM] are scratch.

    With TAKE the numbers are those of `keys` at `positions`, and ids are noted, see `note`.
    """
    take_turn(OVERLAP)
    row, block = tl.program_id(0), tl.arange(0, BLOCKS)
    line, temperature = logits + row.to(tl.int64) * stride, temperature_of(temperatures, row)
    tops, plane = of_blocks + row * blocks, tl.num_programs(0) * blocks
    top = tl.load(tops + block, block < blocks, other=float("-inf"))
    weight = tl.load(tops + plane + block, block < blocks, other=0.0)
    highest, broken = tl.max(top, 0), tl.max((weight != weight).to(tl.int32), 0) > 0
    mass = weight * tl.exp(scale(top, finite(highest), temperature))
    top_k, top_p, floor = tl.load(top_ks + row), tl.load(top_ps + row), tl.log(tl.load(min_ps + row))
    place, listed = places + row * blocks, lists + row * ROOM
    if (top_k > 0) | (top_p < 1.0):
        floor = find_floor(
            line, top, mass, place, listed, top_k, top_p, floor, highest, temperature, V, BLOCK, TILE, ROOM, SHIFT,
        )  # fmt: skip
    place += plane
    one, two = _numbers(row, numbers, keys, positions, TAKE)
    if floor > float("-inf"):
        kept = _weigh_kept(line, top, tops + 2 * plane, place, floor, highest, temperature, V, BLOCK, TILE)
        at = passed_at(tl.load(tops + 2 * plane + block, block < kept, other=0.0), one)
        at = tl.load(place + at, at < kept, other=0)
    else:
        at = passed_at(mass, one)
    token = at * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(line + token, token < V, other=float("-inf")).to(tl.float32)
    scaled = scale(x, highest, temperature)
    token = at * BLOCK + passed_at(tl.where(scaled >= floor, tl.exp(scaled), 0.0), two)
    highest = tl.where(broken, float("nan"), highest)
    if TAKE:
        note(row, token, highest, ids, rows, newest)
    else:
        tl.store(ids + row, token.to(tl.int64))
        tl.store(highest_out + row, highest)


@triton.jit
def _weigh_kept(
    line, top, masses, place, floor, highest, temperature, V: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr
):
    """How many blocks have a token at or above a floor; `place` and `masses` of them hold which, and what is kept."""
    count = list_blocks(place, scale(top, highest, temperature) >= floor)
    if count > 4 * TILE:
        _weigh_listed(line, masses, place, count, floor, highest, temperature, V, BLOCK, 2 * TILE)
    else:
        _weigh_listed(line, masses, place, count, floor, highest, temperature, V, BLOCK, TILE)
    tl.debug_barrier()  # each thread now reads what others wrote
    return count


@triton.jit
def _weigh_listed(
    line, masses, place, count, floor, highest, temperature, V: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr
):
    """What is kept of each listed block, TILE of them at once."""
    index = tl.arange(0, TILE)
    x = read_blocks(line, place, index, count, V, BLOCK)
    for start in range(TILE, count + TILE, TILE):
        following = read_blocks(line, place, start + tl.arange(0, TILE), count, V, BLOCK)  # on its way meanwhile
        scaled = scale(x, highest, temperature)
        tl.store(masses + index, tl.sum(tl.where(scaled >= floor, tl.exp(scaled), 0.0), 1), index < count)
        index, x = start + tl.arange(0, TILE), following


@triton.jit
def _numbers(row, numbers, keys, positions, TAKE: tl.constexpr):
    """The row's two numbers: given ones, or with TAKE those of its stream."""
    if TAKE:
        one, two = uniforms(tl.load(keys + row), tl.load(positions + row))
    else:
        one, two = tl.load(numbers + row * 2), tl.load(numbers + row * 2 + 1)
    return one, two


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
