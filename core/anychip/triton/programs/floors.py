"""Where top-k and top-p cut a row, exactly and without sorting, in three programs.

Parts of the vocabulary measure how much lies at or above each of a few levels; what lies between the two levels around
the cut is collected in a list, in any order; and the list is searched. Tokens count 1 for top-k and their weight for
top-p. What is added up over the list are integers, so that its order says nothing.
"""

import triton
import triton.language as tl

from anychip.triton.programs.draw import finite, in_fours, peak_of, scale, temperature_of
from anychip.triton.programs.order import take_turn

LOWEST = tl.constexpr(-104.0)
"""Below this a weight is 0 in float32."""
UNIT = tl.constexpr(1099511627776.0)
"""2**40: integers in which the weight of the highest logit is measured."""


@triton.jit
def measure_levels(
    logits, temperatures, top_ks, top_ps, min_ps, of_parts, amounts, of_rows, counters, stride, parts,
    V: tl.constexpr, OVERLAP: tl.constexpr, PARTS: tl.constexpr, PART: tl.constexpr, SHARE: tl.constexpr,
    BLOCK: tl.constexpr, LEVELS: tl.constexpr,
):  # fmt: skip
    """amounts [L, shares, LEVELS]: what lies at or above each level in each share of SHARE tokens.

    The levels are even steps down to of_rows[1] [L], and at last everything. `counters` [L] are set to 0.
    """
    take_turn(OVERLAP)
    row, share, shares = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
    if (top_k > 0) | (top_p < 1.0):
        temperature, plane = temperature_of(temperatures, row), tl.num_programs(0) * parts
        inverse = 1.0 / temperature
        highest, _ = peak_of(of_parts + row * parts, parts, PARTS)
        lowest = _lowest_level(of_parts + row * parts, plane, parts, top_k, top_p, highest, inverse, V, PARTS, BLOCK)
        if share == 0:
            tl.store(of_rows + tl.num_programs(0) + row, lowest)
            tl.store(counters + row, 0)
        min_p = tl.load(min_ps + row)
        part = share * (SHARE // PART) + tl.arange(0, SHARE // PART)
        peaks = tl.load(of_parts + row * parts + part, part < parts, other=float("-inf"))
        near = tl.max(peaks, 0) >= _level(lowest, LEVELS - 2, highest, temperature, LEVELS)
        out, token = amounts + (row * shares + share) * LEVELS, share * SHARE + in_fours(SHARE)
        if near | (min_p > 0.0):
            x = tl.load(logits + row.to(tl.int64) * stride + token, token < V, other=float("-inf")).to(tl.float32)
            amount = tl.exp((x - finite(highest)) * inverse)
            if top_k > 0:
                amount = (token < V).to(tl.float32)
            elif min_p > 0.0:
                amount = tl.where(scale(x, highest, temperature) >= tl.log(min_p), amount, 0.0)
            for index in tl.static_range(LEVELS - 1):
                level = _level(lowest, index, highest, temperature, LEVELS)
                tl.store(out + index, tl.sum(tl.where(x >= level, amount, 0.0), 0))
            tl.store(out + LEVELS - 1, tl.sum(amount, 0))
        else:
            weights = tl.load(of_parts + plane + row * parts + part, part < parts, other=0.0)
            everything = tl.sum(weights * tl.exp((peaks - finite(highest)) * inverse), 0)
            if top_k > 0:
                everything = tl.minimum(V - share * SHARE, SHARE).to(tl.float32)
            index = tl.arange(0, LEVELS)
            tl.store(out + index, tl.where(index == LEVELS - 1, everything, 0.0))


@triton.jit
def collect_between(
    logits, temperatures, top_ks, top_ps, of_parts, amounts, of_rows, counters, lists, stride, parts,
    V: tl.constexpr, OVERLAP: tl.constexpr, PARTS: tl.constexpr, PART: tl.constexpr, SHARE: tl.constexpr,
    SHARES: tl.constexpr, LEVELS: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """lists [L, ROOM]: the logits between the levels around the cut, with top-k all above the lower one.

    of_rows[2:6] [L]: the lower and the upper level, what lies above that, and how much is wanted. `counters` [L]: how
    many are listed; where they are more than ROOM, not all are.
    """
    take_turn(OVERLAP)
    row, share, shares = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
    if (top_k > 0) | (top_p < 1.0):
        temperature, rows = temperature_of(temperatures, row), tl.num_programs(0)
        lowest = tl.load(of_rows + rows + row)
        highest, _ = peak_of(of_parts + row * parts, parts, PARTS)
        each, index = tl.arange(0, SHARES)[:, None], tl.arange(0, LEVELS)
        measured = tl.load(amounts + (row * shares + each) * LEVELS + index[None, :], each < shares, other=0.0)
        above = tl.sum(measured, 0)
        wanted = tl.where(top_k > 0, tl.minimum(top_k, V).to(tl.float32), top_p * tl.max(above, 0))
        at = tl.min(tl.where(above >= wanted, index, LEVELS - 1), 0)
        low = _level(lowest, at, highest, temperature, LEVELS)
        high = _level(lowest, at - 1, highest, temperature, LEVELS)
        whole = (top_k > 0) | (at == 0)
        high = tl.where(whole, float("inf"), high)
        if share == 0:
            out = of_rows + 2 * rows + row
            tl.store(out, low)
            tl.store(out + rows, high)
            tl.store(out + 2 * rows, tl.where(whole, 0.0, tl.sum(tl.where(index == at - 1, above, 0.0), 0)))
            tl.store(out + 3 * rows, wanted)
        part = share * (SHARE // PART) + tl.arange(0, SHARE // PART)
        peaks = tl.load(of_parts + row * parts + part, part < parts, other=float("-inf"))
        if tl.max(peaks, 0) >= low:
            token = share * SHARE + tl.arange(0, SHARE)
            x = tl.load(logits + row.to(tl.int64) * stride + token, token < V, other=float("-inf")).to(tl.float32)
            between = ((x >= low) & (x < high) & (x > float("-inf"))).to(tl.int32)
            place = tl.cumsum(between, 0)
            count = tl.max(place, 0)
            if count > 0:
                place += tl.atomic_add(counters + row, count) - 1
                tl.store(lists + row * ROOM + place, x, (between > 0) & (place < ROOM))


@triton.jit
def find_floors(
    logits, temperatures, top_ks, top_ps, min_ps, of_parts, of_rows, counters, lists, stride, parts,
    V: tl.constexpr, OVERLAP: tl.constexpr, PARTS: tl.constexpr, ROOM: tl.constexpr, LANES: tl.constexpr,
    SHIFT: tl.constexpr,
):  # fmt: skip
    """of_rows[0] [L]: the lowest scaled logit that is kept. A list that was too long is searched in the row itself."""
    take_turn(OVERLAP)
    row = tl.program_id(0)
    top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
    floor = tl.log(tl.load(min_ps + row))
    if (top_k > 0) | (top_p < 1.0):
        temperature = temperature_of(temperatures, row)
        highest, _ = peak_of(of_parts + row * parts, parts, PARTS)
        count = tl.load(counters + row)
        listed, line = lists + row * ROOM, logits + row.to(tl.int64) * stride
        if count <= ROOM:
            floor = _cut(listed, count, 1, top_k, top_p, floor, of_rows + row, highest, temperature, LANES, SHIFT)
        else:
            floor = _cut(line, V, 0, top_k, top_p, floor, of_rows + row, highest, temperature, LANES, SHIFT)
    tl.store(of_rows + row, floor)


@triton.jit
def _lowest_level(
    of_parts, plane, parts, top_k, top_p, highest, inverse, V: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """A scaled logit at or below the cut.

    Each block has a token at or above the least of their highest. And the tokens below a level can weigh no more than
    all of them at that level.
    """
    part = tl.arange(0, PARTS)
    there = part < parts
    if top_k > 0:
        least = tl.min(tl.load(of_parts + 2 * plane + part, there, other=float("inf")), 0)
        lowest = tl.where((top_k <= V // BLOCK) & (least > float("-inf")), (least - highest) * inverse - 0.01, LOWEST)
    else:
        peaks = tl.load(of_parts + part, there, other=float("-inf"))
        weights = tl.load(of_parts + plane + part, there, other=0.0) * tl.exp((peaks - finite(highest)) * inverse)
        lowest = tl.maximum(tl.log((1.0 - top_p) * tl.sum(weights, 0) * (1.0 / V)) - 0.01, LOWEST)
    return tl.where(lowest < 0.0, lowest, LOWEST)


@triton.jit
def _level(lowest, index, highest, temperature, LEVELS: tl.constexpr):
    """A level as a logit; the last is below everything."""
    step = lowest * (1.0 / (LEVELS - 1))
    return tl.where(index == LEVELS - 1, float("-inf"), highest + step * (index + 1) * temperature)


@triton.jit
def _cut(
    line, count, LISTED: tl.constexpr, top_k, top_p, floor, of_row, highest, temperature, LANES: tl.constexpr,
    SHIFT: tl.constexpr,
):  # fmt: skip
    """The floor by top-k, then by top-p of what that leaves, over `count` logits that hold the cut."""
    rows = tl.num_programs(0)
    low, high, wanted = tl.load(of_row + 2 * rows), tl.load(of_row + 3 * rows), tl.load(of_row + 5 * rows)
    lowest = _key(low, SHIFT).to(tl.int64)
    most = _key(tl.minimum(high, highest), SHIFT).to(tl.int64)
    if top_k > 0:
        key = _search(line, count, lowest, most, wanted.to(tl.int64), floor, highest, temperature, False, LANES, SHIFT)
        floor = tl.maximum(floor, scale(_logit(key, SHIFT), highest, temperature))
        lowest = key
    if top_p < 1.0:
        if top_k > 0:
            goal = top_p * _weight(line, count, floor, highest, temperature, LANES).to(tl.float32)
        else:
            goal = (wanted - tl.load(of_row + 4 * rows) * LISTED) * UNIT
        key = _search(line, count, lowest, most, goal.to(tl.int64), floor, highest, temperature, True, LANES, SHIFT)
        floor = tl.maximum(floor, scale(_logit(key, SHIFT), highest, temperature))
    return floor


@triton.jit
def _search(
    line, count, low, high, goal, floor, highest, temperature, WEIGHED: tl.constexpr, LANES: tl.constexpr,
    SHIFT: tl.constexpr,
):  # fmt: skip
    """The largest key from `low` to `high` such that what has it or a larger one amounts to `goal`."""
    lanes = tl.arange(0, LANES)
    while low < high:
        quarter = (high - low + 3) // 4
        one, two, three = low + quarter, tl.minimum(low + 2 * quarter, high), tl.minimum(low + 3 * quarter, high)
        first, second, third = (tl.zeros((LANES,), tl.int64),) * 3
        for start in range(0, count, LANES):
            x = tl.load(line + start + lanes, start + lanes < count, other=float("-inf")).to(tl.float32)
            amount = _units(x, floor, highest, temperature) if WEIGHED else (start + lanes < count).to(tl.int64)
            key = _key(x, SHIFT).to(tl.int64)
            first += tl.where(key >= one, amount, 0)
            second += tl.where(key >= two, amount, 0)
            third += tl.where(key >= three, amount, 0)
        if tl.sum(third, 0) >= goal:
            low = three
        elif tl.sum(second, 0) >= goal:
            low, high = two, three - 1
        elif tl.sum(first, 0) >= goal:
            low, high = one, two - 1
        else:
            high = one - 1
    return low


@triton.jit
def _weight(line, count, floor, highest, temperature, LANES: tl.constexpr):
    """What a list weighs."""
    lanes = tl.arange(0, LANES)
    sums = tl.zeros((LANES,), tl.int64)
    for start in range(0, count, LANES):
        x = tl.load(line + start + lanes, start + lanes < count, other=float("-inf")).to(tl.float32)
        sums += _units(x, floor, highest, temperature)
    return tl.sum(sums, 0)


@triton.jit
def _units(x, floor, highest, temperature):
    """Weights in units, 0 below a floor."""
    scaled = scale(x, highest, temperature)
    return (tl.where(scaled >= floor, tl.exp(scaled), 0.0) * UNIT).to(tl.int64)


@triton.jit
def _key(x, SHIFT: tl.constexpr):
    """An integer that grows with a float32 whose lowest SHIFT bits are 0."""
    return _ordered((x + 0.0).to(tl.int32, bitcast=True)) >> SHIFT


@triton.jit
def _logit(key, SHIFT: tl.constexpr):
    """The number of a key."""
    bits = (key << SHIFT).to(tl.int32)
    bits = tl.where(key < 0, bits | ((1 << SHIFT) - 1), bits)
    return _ordered(bits).to(tl.float32, bitcast=True)


@triton.jit
def _ordered(bits):
    """From the bits of a float32 to an integer of the same order, or back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
