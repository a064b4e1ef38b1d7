"""Log-probabilities in two passes: each part of the vocabulary offers its best, then a row takes the best of those.

The part that it was taken from offers its next one, which costs a second reading of that part alone. Logits are ordered
by one integer, so that equal ones come by their tokens.
"""

import triton
import triton.language as tl

from anychip.triton.programs.order import take_turn

NOTHING = tl.constexpr(-(2**63))
"""The key of no token, below all others."""


@triton.jit
def offer_best(
    logits, token_ids, keys, sums, above, stride, V: tl.constexpr, OVERLAP: tl.constexpr, BLOCK: tl.constexpr
):
    """Of each part of a row, all [N, parts]: the key of its best token, sums and counts.

    A sum is that of the exponentials of logits less the best one, a count that of logits above the given token's.
    """
    take_turn(OVERLAP)
    row, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    line = logits + row.to(tl.int64) * stride
    own = tl.load(line + tl.maximum(tl.load(token_ids + row), 0)).to(tl.float32)
    token = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(line + token, token < V, other=float("-inf")).to(tl.float32)
    best = tl.max(tl.where(token < V, _key(x, token), NOTHING), 0)
    at = row * parts + part
    tl.store(keys + at, best)
    tl.store(sums + at, tl.sum(tl.exp(x - _shift(_logit(best))), 0))
    tl.store(above + at, tl.sum((x > own).to(tl.int32), 0))


@triton.jit(do_not_specialize=["parts", "count"])
def score_best(
    logits, token_ids, keys, sums, above, ids, values, ranks, stride, parts, count, V: tl.constexpr,
    OVERLAP: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """A row of ids and values [N, 1 + count], and its rank."""
    take_turn(OVERLAP)
    row, part = tl.program_id(0), tl.arange(0, PARTS)
    there, at = part < parts, row * parts + part
    line = logits + row.to(tl.int64) * stride
    best = tl.load(keys + at, there, other=NOTHING)
    level = _level(best, tl.load(sums + at, there, other=0.0), there)
    given = tl.maximum(tl.load(token_ids + row), 0)
    out = row * (count + 1)
    tl.store(ids + out, given.to(tl.int32))
    tl.store(values + out, tl.load(line + given).to(tl.float32) - level)
    tl.store(ranks + row, tl.sum(tl.load(above + at, there, other=0), 0) + 1)
    for place in range(1, count + 1):
        key = tl.max(best, 0)
        taken = _token(key)
        tl.store(ids + out + place, taken)
        tl.store(values + out + place, _logit(key) - level)
        token = taken // PART * PART + tl.arange(0, PART)
        x = tl.load(line + token, token < V, other=float("-inf")).to(tl.float32)
        others = _key(x, token)
        following = tl.max(tl.where((token < V) & (others < key), others, NOTHING), 0)
        best = tl.where(part == taken // PART, following, best)


@triton.jit
def _level(best, sums, there):
    """The logarithm of the sum of a row's exponentials, as torch.logsumexp has it; not below the highest logit."""
    highest = _logit(tl.max(best, 0))
    shift = _shift(highest)
    level = tl.log(tl.sum(tl.where(there, sums * tl.exp(_logit(best) - shift), 0.0), 0)) + shift
    return tl.where(level < highest, highest, level)


@triton.jit
def _shift(highest):
    """What exponentials are scaled by: not what is infinite."""
    return tl.where(tl.abs(highest) == float("inf"), 0.0, highest)


@triton.jit
def _key(x, token):
    """An integer that grows with a float32 and, among equal ones, as the token falls."""
    return (_ordered((x + 0.0).to(tl.int32, bitcast=True)).to(tl.int64) << 32) | (2147483647 - token).to(tl.int64)


@triton.jit
def _logit(key):
    """The number of a key."""
    return _ordered((key >> 32).to(tl.int32)).to(tl.float32, bitcast=True)


@triton.jit
def _token(key):
    """The token of a key."""
    return 2147483647 - (key & 0xFFFFFFFF).to(tl.int32)


@triton.jit
def _ordered(bits):
    """From the bits of a float32 to an integer of the same order, or back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
