"""A draw from the truncated distribution, a program a row, without sorting.

While the highest logit is looked for, each of LANES lanes keeps the three largest logits that it sees. The thresholds
of top-k and top-p are then searched for among those, bit by bit. If a lane's third is at or above the threshold found,
that lane may have hidden a fourth, and the search is done again over the whole vocabulary.
"""

import triton
import triton.language as tl

from anychip.triton.programs.greedy import note
from anychip.triton.programs.order import take_turn

INFINITE = tl.constexpr(0x7F800000)
"""The key of minus infinity."""
BITS = tl.constexpr(31)
STAGES = tl.constexpr(4)
GOLDEN, FIRST = tl.constexpr(0x9E3779B97F4A7C15), tl.constexpr(0xBF58476D1CE4E5B9)
SECOND, PURPOSES = tl.constexpr(0x94D049BB133111EB), tl.constexpr(16)
"""As in anychip.sample.random."""


@triton.jit
def draw_tokens(
    logits, temperatures, top_ks, top_ps, min_ps, numbers, keys, positions, sums, ids, highest_out, rows, newest,
    stride, V: tl.constexpr, OVERLAP: tl.constexpr, TAKE: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """ids [L] int64 and highest [L]; `sums` [L, BLOCKS] holds the weight of each block of BLOCK tokens meanwhile.

    With TAKE the numbers are those of `keys` at `positions`, and ids are noted, see `note`.
    """
    take_turn(OVERLAP)
    row = tl.program_id(0)
    line = logits + row.to(tl.int64) * stride
    first, second, third, broken = _largest(line, V, LANES)
    highest = tl.max(first, 0)
    temperature = tl.maximum(tl.load(temperatures + row), 1e-10)
    floor = tl.log(tl.load(min_ps + row))
    top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
    a, b, c = (
        _scaled(first, highest, temperature), _scaled(second, highest, temperature), _scaled(third, highest,
        temperature),
    )  # fmt: skip
    if top_k > 0:
        key = _kth(a, b, c, tl.minimum(top_k, V))
        if _hides(c, _value(key)):
            goal = tl.minimum(top_k, V).to(tl.float32)
            key = _search(line, key, goal, floor, highest, temperature, False, V, LANES)
        floor = tl.maximum(floor, _value(key))
    if top_p < 1.0:
        needed = top_p * _mass(line, floor, highest, temperature, V, LANES)
        key = _nucleus(a, b, c, floor, needed)
        if _hides(c, tl.maximum(_value(key), floor)):
            key = _search(line, key, needed, floor, highest, temperature, True, V, LANES)
        floor = tl.maximum(floor, _value(key))
    one, two = stream_numbers(row, numbers, keys, positions, TAKE)
    token = _draw(line, sums + row * BLOCKS, one, two, floor, highest, temperature, V, BLOCK, BLOCKS, TILE)
    leave_token(row, token, tl.where(broken, float("nan"), highest), ids, highest_out, rows, newest, TAKE)


@triton.jit
def stream_numbers(row, numbers, keys, positions, TAKE: tl.constexpr):
    """The row's two numbers: given ones, or with TAKE those of its stream."""
    if TAKE:
        one, two = uniforms(tl.load(keys + row), tl.load(positions + row))
    else:
        one, two = tl.load(numbers + row * 2), tl.load(numbers + row * 2 + 1)
    return one, two


@triton.jit
def leave_token(row, token, highest, ids, highest_out, rows, newest, TAKE: tl.constexpr):
    """Note a row's token, or leave it with the highest logit."""
    if TAKE:
        note(row, token, highest, ids, rows, newest)
    else:
        tl.store(ids + row, token.to(tl.int64))
        tl.store(highest_out + row, highest)


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


@triton.jit
def _largest(line, V: tl.constexpr, LANES: tl.constexpr):
    """The three largest logits of each lane, and whether any logit of the row is no number."""
    lanes = tl.arange(0, LANES)
    first = tl.full((LANES,), float("-inf"), tl.float32)
    second, third = first, first
    broken = tl.zeros((LANES,), tl.int32)
    for start in tl.range(0, V, LANES, num_stages=STAGES):
        x = tl.load(line + start + lanes, start + lanes < V, other=float("-inf")).to(tl.float32)
        broken = tl.maximum(broken, (x != x).to(tl.int32))
        rest = tl.minimum(first, x)
        first = tl.maximum(first, x)
        last = tl.minimum(second, rest)
        second = tl.maximum(second, rest)
        third = tl.maximum(third, last)
    return first, second, third, tl.max(broken, 0) > 0


@triton.jit
def _scaled(x, highest, temperature):
    """Logits over temperature, the highest being 0; the same everywhere, so that equal ones compare equal."""
    return tl.div_rn(x - highest, temperature + tl.zeros_like(x))


@triton.jit
def _hides(third, threshold):
    """Whether a lane may have seen a fourth value that counts."""
    largest = tl.max(third, 0)
    return (largest >= threshold) & (largest > float("-inf"))


@triton.jit
def _key(scaled):
    """An integer that grows as a value of at most 0 falls."""
    return (-scaled + 0.0).to(tl.int32, bitcast=True)


@triton.jit
def _value(key):
    """The value of a key."""
    return -key.to(tl.float32, bitcast=True)


@triton.jit
def _kth(a, b, c, k):
    """The key of the k-th largest of the lanes' values."""
    low, high = tl.full((), 0, tl.int32), tl.full((), INFINITE, tl.int32)
    for _ in range(BITS):
        middle = low + (high - low) // 2
        above = (_key(a) <= middle).to(tl.int32) + (_key(b) <= middle).to(tl.int32) + (_key(c) <= middle).to(tl.int32)
        enough = tl.sum(above, 0) >= k
        high = tl.where(enough, middle, high)
        low = tl.where(enough, low, middle + 1)
    return high


@triton.jit
def _nucleus(a, b, c, floor, needed):
    """The key of the largest value such that what the lanes hold at or above it, and above `floor`, weighs `needed`."""
    low, high = tl.full((), 0, tl.int32), tl.full((), INFINITE, tl.int32)
    for _ in range(BITS):
        middle = low + (high - low) // 2
        limit = tl.maximum(_value(middle), floor)
        enough = tl.sum(weigh(a, limit) + weigh(b, limit) + weigh(c, limit), 0) >= needed
        high = tl.where(enough, middle, high)
        low = tl.where(enough, low, middle + 1)
    return high


@triton.jit
def _search(line, high, goal, floor, highest, temperature, MASS: tl.constexpr, V: tl.constexpr, LANES: tl.constexpr):
    """As `_kth`, or with MASS as `_nucleus`, over the whole row: the key is at most `high`. Three guesses a reading."""
    low, lanes = tl.full((), 0, tl.int32), tl.arange(0, LANES)
    while low < high:
        quarter = (high - low) // 4
        one, two, three = low + quarter, low + 2 * quarter, low + 3 * quarter
        first, second, third = (tl.zeros((LANES,), tl.float32),) * 3
        for start in tl.range(0, V, LANES, num_stages=STAGES):
            scaled = read_scaled(line, start + lanes, highest, temperature, V)
            key = _key(scaled)
            amount = weigh(scaled, floor) if MASS else (start + lanes < V).to(tl.float32)
            first += tl.where(key <= one, amount, 0.0)
            second += tl.where(key <= two, amount, 0.0)
            third += tl.where(key <= three, amount, 0.0)
        if tl.sum(first, 0) >= goal:
            high = one
        elif tl.sum(second, 0) >= goal:
            low, high = one + 1, two
        elif tl.sum(third, 0) >= goal:
            low, high = two + 1, three
        else:
            low = three + 1
    return high


@triton.jit
def weigh(scaled, limit):
    """The weight of a scaled logit, 0 below a limit."""
    return tl.where(scaled >= limit, tl.exp(scaled), 0.0)


@triton.jit
def read_scaled(line, token, highest, temperature, V: tl.constexpr):
    """Scaled logits of a row, -inf behind its end."""
    x = tl.load(line + token, token < V, other=float("-inf")).to(tl.float32)
    return _scaled(x, highest, temperature)


@triton.jit
def _mass(line, limit, highest, temperature, V: tl.constexpr, LANES: tl.constexpr):
    """The weight of all tokens at or above a limit."""
    lanes = tl.arange(0, LANES)
    mass = tl.zeros((LANES,), tl.float32)
    for start in tl.range(0, V, LANES, num_stages=STAGES):
        mass += weigh(read_scaled(line, start + lanes, highest, temperature, V), limit)
    return tl.sum(mass, 0)


@triton.jit
def _draw(
    line, sums, one, two, floor, highest, temperature, V: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """A block with the first number, a token in it with the second, as anychip.sample.choose.draw."""
    inside = tl.arange(0, BLOCK)
    for start in tl.range(0, BLOCKS, TILE, num_stages=STAGES):
        block = start + tl.arange(0, TILE)
        token = block[:, None] * BLOCK + inside[None, :]
        weights = weigh(read_scaled(line, token, highest, temperature, V), floor)
        tl.store(sums + block, tl.sum(weights, 1))
    tl.debug_barrier()  # each thread now reads what others wrote
    block = passed_at(tl.load(sums + tl.arange(0, BLOCKS)), one)
    weights = weigh(read_scaled(line, block * BLOCK + inside, highest, temperature, V), floor)
    return block * BLOCK + passed_at(weights, two)


@triton.jit
def passed_at(weights, number):
    """Where the running sum passes `number` of the total; never an element of weight 0."""
    index = tl.arange(0, weights.shape[0])
    mass = tl.cumsum(weights, 0)
    passed = (mass > number * tl.max(mass, 0)) & (weights > 0)
    last = tl.max(tl.where(weights > 0, index, 0), 0)
    return tl.minimum(tl.min(tl.where(passed, index, 2147483647), 0), last)
