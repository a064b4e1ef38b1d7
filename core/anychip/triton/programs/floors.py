"""Where top-k and top-p cut a row, exactly and without sorting.

What is known of blocks bounds the cut from below: k blocks that have a token at or above a level, and tokens below one
that weigh too little to matter. The logits at or above that bound are listed, in the order of the vocabulary, and the
list is searched. Where it would be too long, what lies at or above a few levels is measured first, and again, and only
what lies between two of them is listed. Tokens count 1 for top-k and their weight for top-p.

A row is read in lanes: each adds up by itself, so that only the end of a reading has to wait for all of them.
"""

import triton
import triton.language as tl

from anychip.triton.programs.scaled import list_blocks, read_blocks, scale

STEPS = tl.constexpr(12)
"""Halvings of the bound."""
LOWEST = tl.constexpr(-104.0)
"""Below this a weight is 0 in float32."""
ROUNDS = tl.constexpr(4)
"""How often what is listed is narrowed down at most; where equal logits do not fit, the row itself is searched."""


@triton.jit
def find_floor(
    line, top, mass, place, listed, top_k, top_p, floor, highest, temperature, V: tl.constexpr, BLOCK: tl.constexpr,
    TILE: tl.constexpr, ROOM: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """The lowest scaled logit that is kept, given that of min_p. top and mass [blocks]."""
    whole = (top_k > 0) | (floor > float("-inf"))  # what top-p takes its share of is known when the list is there
    low = _bound(top, mass, top_k, top_p, floor, highest, temperature, V, BLOCK)
    high, above = tl.full((), float("inf"), tl.float32), tl.full((), 0.0, tl.float32)
    wanted = tl.where(whole, -1.0, top_p * tl.sum(mass, 0))
    blocks = list_blocks(place, (top >= low) & (top > float("-inf")))
    FEW: tl.constexpr = TILE * BLOCK // 2
    if blocks * BLOCK <= ROOM:
        count = _list_blocks(line, place, blocks, listed, low, V, BLOCK, TILE)
        lowest, most = _keys(low, highest, SHIFT)
        floor = _cut(listed, count, lowest, most, top_k, top_p, wanted, floor, highest, temperature, FEW, SHIFT)
    else:
        LANES: tl.constexpr = TILE * BLOCK
        if (wanted < 0.0) & (top_k == 0):
            wanted = top_p * _weight(line, V, floor, highest, temperature, LANES)
        counts, rounds = _count_between(line, low, high, V, LANES), 0
        while (tl.sum(counts, 0) > ROOM) & (rounds < ROUNDS):
            low, high, above = _narrow(
                line, low, high, above, top_k, top_p, floor, wanted, highest, temperature, V, LANES
            )
            counts = _count_between(line, low, high, V, LANES)
            rounds += 1
        count = tl.sum(counts, 0)
        lowest, most = _keys(low, tl.minimum(high, highest), SHIFT)
        if count <= ROOM:
            _list_between(line, counts, listed, low, high, V, LANES)
            top_k, wanted = tl.where(top_k > 0, top_k - above.to(tl.int32), 0), wanted - above
            floor = _cut(listed, count, lowest, most, top_k, top_p, wanted, floor, highest, temperature, FEW, SHIFT)
        else:
            floor = _cut(line, V, lowest, most, top_k, top_p, wanted, floor, highest, temperature, FEW, SHIFT)
    return floor


@triton.jit
def _bound(top, mass, top_k, top_p, floor, highest, temperature, V: tl.constexpr, BLOCK: tl.constexpr):
    """A logit at or below the cut."""
    inverse, low, high = 1.0 / temperature, tl.full((), float("-inf"), tl.float32), highest
    if top_k > 0:
        exists = tl.arange(0, top.shape[0]) * BLOCK < V
        low = tl.where(top_k <= V // BLOCK, tl.min(tl.where(exists, top, float("inf")), 0), low)
        for _ in range(STEPS):
            middle = 0.5 * (low + high)
            enough = tl.sum((top >= middle).to(tl.int32), 0) >= top_k
            low, high = tl.where(enough, middle, low), tl.where(enough, high, middle)
    elif floor == float("-inf"):
        total = tl.sum(mass, 0)
        rest = tl.maximum(mass - tl.exp(scale(top, highest, temperature)), 0.0)
        spare = (1.0 - top_p) * total
        low = highest + temperature * tl.maximum(tl.log(spare * (1.0 / V)) - 0.01, LOWEST)
        for _ in range(STEPS):
            middle = 0.5 * (low + high)
            most = (BLOCK - 1) * tl.exp((middle - highest) * inverse)
            below = tl.sum(tl.where(top < middle, mass, tl.minimum(rest, most)), 0)
            enough = below + 1e-5 * total <= spare
            low, high = tl.where(enough, middle, low), tl.where(enough, high, middle)
    least = highest + floor * temperature
    return tl.maximum(low, least - 1e-5 * (tl.abs(highest) + tl.abs(least)))


@triton.jit
def _list_blocks(line, place, blocks, listed, low, V: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr):
    """List the logits of so many blocks from `low` on, all of which have room; how many there are."""
    count = 0
    for start in range(0, blocks, TILE):
        x = tl.reshape(read_blocks(line, place, start + tl.arange(0, TILE), blocks, V, BLOCK), (TILE * BLOCK,))
        kept = (x >= low) & (x > float("-inf"))
        index = tl.cumsum(kept.to(tl.int32), 0)
        tl.store(listed + count + index - 1, x, kept)
        count += tl.max(index, 0)
    tl.debug_barrier()  # each thread now reads what others wrote
    return count


@triton.jit
def _read(line, start, V: tl.constexpr, LANES: tl.constexpr):
    """A logit for each lane, -inf behind the end of the row."""
    token = start + tl.arange(0, LANES)
    return tl.load(line + token, token < V, other=float("-inf")).to(tl.float32)


@triton.jit
def _is_between(x, low, high):
    return (x >= low) & (x < high) & (x > float("-inf"))


@triton.jit
def _count_between(line, low, high, V: tl.constexpr, LANES: tl.constexpr):
    """[LANES] how many of each lane's logits are from `low` to less than `high`."""
    counts, x = tl.zeros((LANES,), tl.int32), _read(line, 0, V, LANES)
    for start in range(LANES, V + LANES, LANES):
        following = _read(line, start, V, LANES)  # on its way while these are looked at
        counts += _is_between(x, low, high).to(tl.int32)
        x = following
    return counts


@triton.jit
def _list_between(line, counts, listed, low, high, V: tl.constexpr, LANES: tl.constexpr):
    """List the logits from `low` to less than `high`, lane by lane; `counts` [LANES] of them fit."""
    place, x = tl.cumsum(counts, 0) - counts, _read(line, 0, V, LANES)
    for start in range(LANES, V + LANES, LANES):
        following = _read(line, start, V, LANES)
        between = _is_between(x, low, high)
        tl.store(listed + place, x, between)
        place += between.to(tl.int32)
        x = following
    tl.debug_barrier()  # each thread now reads what others wrote


@triton.jit
def _narrow(
    line, low, high, above, top_k, top_p, floor, wanted, highest, temperature, V: tl.constexpr, LANES: tl.constexpr
):  # fmt: skip
    """The two of a few levels around the cut, and what lies above the upper one.

    Where top-p comes after top-k there is no upper one: all that top-k keeps is to be listed.
    """
    step = (tl.minimum(high, highest) - tl.maximum(low, highest + LOWEST * temperature)) * (1.0 / 6)
    end = tl.minimum(high, highest)
    one, two, three, four = end - step, end - 2 * step, end - 3 * step, end - 4 * step
    five = end - 5 * step
    first, second, third, fourth, fifth = (tl.zeros((LANES,), tl.float32),) * 5
    x, weighed = _read(line, 0, V, LANES), top_k == 0
    for start in range(LANES, V + LANES, LANES):
        following = _read(line, start, V, LANES)  # on its way while these are looked at
        amount = _amount(x, weighed, floor, highest, temperature)
        first += tl.where(x >= one, amount, 0.0)
        second += tl.where(x >= two, amount, 0.0)
        third += tl.where(x >= three, amount, 0.0)
        fourth += tl.where(x >= four, amount, 0.0)
        fifth += tl.where(x >= five, amount, 0.0)
        x = following
    goal = tl.where(weighed, wanted, top_k.to(tl.float32))
    # from the lowest level up: each that has enough at or above it is a better bound
    upper, beyond = high, above
    lower, upper, beyond = _step_up(low, upper, beyond, five, tl.sum(fifth, 0), goal)
    lower, upper, beyond = _step_up(lower, upper, beyond, four, tl.sum(fourth, 0), goal)
    lower, upper, beyond = _step_up(lower, upper, beyond, three, tl.sum(third, 0), goal)
    lower, upper, beyond = _step_up(lower, upper, beyond, two, tl.sum(second, 0), goal)
    lower, upper, beyond = _step_up(lower, upper, beyond, one, tl.sum(first, 0), goal)
    either = weighed | (top_p >= 1.0)
    return lower, tl.where(either, upper, high), tl.where(either, beyond, above)


@triton.jit
def _step_up(low, high, above, level, amount, goal):
    """The cut's bounds with what is known of one more level, the next higher one."""
    enough = amount >= goal
    short = (amount < goal) & (level < high)
    return tl.where(enough, level, low), tl.where(short, level, high), tl.where(short, amount, above)


@triton.jit
def _cut(
    line, count, low, high, top_k, top_p, wanted, floor, highest, temperature, LANES: tl.constexpr, SHIFT: tl.constexpr
):
    """The floor by top-k, then by top-p of what that leaves, over `count` logits that hold the cut."""
    if top_k > 0:
        goal = tl.minimum(top_k, count).to(tl.float32)
        low = _search(line, count, low, high, goal, floor, highest, temperature, False, LANES, SHIFT)
        floor = tl.maximum(floor, scale(_logit(low, SHIFT), highest, temperature))
    if top_p < 1.0:
        if wanted < 0.0:
            wanted = top_p * _weight(line, count, floor, highest, temperature, LANES)
        key = _search(line, count, low, high, wanted, floor, highest, temperature, True, LANES, SHIFT)
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
        first, second, third = (tl.zeros((LANES,), tl.float32),) * 3
        for start in range(0, count, LANES):
            x = tl.load(line + start + lanes, start + lanes < count, other=float("-inf")).to(tl.float32)
            amount = _amount(x, WEIGHED, floor, highest, temperature)
            key = _key(x, SHIFT).to(tl.int64)
            first += tl.where(key >= one, amount, 0.0)
            second += tl.where(key >= two, amount, 0.0)
            third += tl.where(key >= three, amount, 0.0)
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
    sums = tl.zeros((LANES,), tl.float32)
    for start in range(0, count, LANES):
        x = tl.load(line + start + lanes, start + lanes < count, other=float("-inf")).to(tl.float32)
        sums += _amount(x, True, floor, highest, temperature)
    return tl.sum(sums, 0)


@triton.jit
def _amount(x, weighed, floor, highest, temperature):
    """What a token counts: its weight, which is 0 below a floor, or 1."""
    scaled = scale(x, highest, temperature)
    weights = tl.where(scaled >= floor, tl.exp(scaled), 0.0)
    return tl.where(weighed, weights, tl.where(x > float("-inf"), 1.0, 0.0))


@triton.jit
def _key(x, SHIFT: tl.constexpr):
    """An integer that grows with a float32 whose lowest SHIFT bits are 0."""
    return _ordered((x + 0.0).to(tl.int32, bitcast=True)) >> SHIFT


@triton.jit
def _keys(low, high, SHIFT: tl.constexpr):
    """The keys between which a cut is searched for."""
    return _key(low, SHIFT).to(tl.int64), _key(high, SHIFT).to(tl.int64)


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
