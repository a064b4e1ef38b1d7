"""The highest logit of a row, in two passes: of each part of the vocabulary, then of the parts."""

import triton
import triton.language as tl

from anychip.triton.programs.order import take_turn

NOT_FINITE = tl.constexpr(-1)
NOTHING_LEFT = tl.constexpr(-2)
"""As in anychip.sample.take."""


@triton.jit
def find_peaks(logits, values, tokens, stride, V: tl.constexpr, OVERLAP: tl.constexpr, BLOCK: tl.constexpr):
    """values and tokens [L, parts]: the highest logit of a part, NaN where any is, and its lowest token."""
    take_turn(OVERLAP)
    row, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    token = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row.to(tl.int64) * stride + token, token < V, other=float("-inf")).to(tl.float32)
    value, best = _peak(x, token)
    tl.store(values + row * parts + part, value)
    tl.store(tokens + row * parts + part, best)


@triton.jit
def choose_peak(
    values, tokens, ids, highest, rows, newest, parts, OVERLAP: tl.constexpr, TAKE: tl.constexpr, BLOCK: tl.constexpr
):
    """ids [L] int64 and highest [L] float32 out of the parts; with TAKE ids are noted instead, see `note`."""
    take_turn(OVERLAP)
    row, part = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(values + row * parts + part, part < parts, other=float("-inf"))
    token = tl.load(tokens + row * parts + part, part < parts, other=2147483647)
    value, best = _peak(x, token)
    if TAKE:
        note(row, best, value, ids, rows, newest)
    else:
        tl.store(ids + row, best.to(tl.int64))
        tl.store(highest + row, value)


@triton.jit
def note(row, token, highest, ids, rows, newest):
    """Leave a row's token in `ids`, or why there is none, and note it as the newest of its stable row."""
    lost = tl.where(highest == float("-inf"), NOTHING_LEFT, NOT_FINITE)
    taken = tl.where(tl.abs(highest) < float("inf"), token, lost)
    tl.store(ids + row, taken.to(tl.int64))
    tl.store(newest + tl.load(rows + row), tl.maximum(taken, 0).to(tl.int32))


@triton.jit
def _peak(x, token):
    """The largest of x, and the lowest token that has it."""
    value = tl.max(x, 0)
    best = tl.min(tl.where(x == value, token, 2147483647), 0)
    broken = tl.max((x != x).to(tl.int32), 0) > 0
    return tl.where(broken, float("nan"), value), tl.where(broken, 0, best)
