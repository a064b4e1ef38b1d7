"""What a row's history takes off its logits, and its newest token's entry in that history."""

import triton
import triton.language as tl

from anychip.triton.programs.order import take_turn


@triton.jit(do_not_specialize=["penalized"])
def penalize(
    logits, out, index, slots, counts, seen, presence, frequency, repetition, stride, penalized, V: tl.constexpr,
    OVERLAP: tl.constexpr, COPY: tl.constexpr, PLACES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Part of a row of `out` [S, V] float32: all rows with COPY, else only those listed, and of them what was seen."""
    take_turn(OVERLAP)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if COPY:
        row, places = tl.program_id(0), tl.arange(0, PLACES)
        listed = tl.load(index + places, places < penalized, other=-1) == row
        place = tl.max(tl.where(listed, places, -1), 0)
    else:
        place = tl.program_id(0)
        row = tl.load(index + place)
    line, to = logits + row.to(tl.int64) * stride, out + row.to(tl.int64) * (V if COPY else stride)
    if place >= 0:
        history = tl.load(slots + place).to(tl.int64) * V + token
        was = tl.load(seen + history, token < V, other=0) != 0
        count = tl.load(counts + history, was, other=0).to(tl.float32)  # few were seen, so little is read
        wanted = (token < V) if COPY else was
        x = tl.load(line + token, wanted, other=0.0).to(tl.float32)
        factor = tl.load(repetition + place)
        x = tl.where(was, tl.where(x > 0, x / factor, x * factor), x)
        x -= count * tl.load(frequency + place)
        x -= tl.where(count > 0, tl.load(presence + place), 0.0)
        tl.store(to + token, x, wanted)
    elif COPY:
        tl.store(to + token, tl.load(line + token, token < V, other=0.0).to(tl.float32), token < V)


@triton.jit(do_not_specialize=["penalized"])
def count_newest(
    token_ids, index, slots, counts, seen, penalized, V: tl.constexpr, OVERLAP: tl.constexpr, BLOCK: tl.constexpr
):
    """Count the token of each listed row, in its slot."""
    take_turn(OVERLAP)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < penalized
    token = tl.maximum(tl.load(token_ids + tl.load(index + place, there, other=0), there, other=0), 0)
    history = tl.load(slots + place, there, other=0).to(tl.int64) * V + token
    tl.store(counts + history, tl.load(counts + history, there, other=0) + 1, there)
    tl.store(seen + history, tl.full((BLOCK,), 1, tl.uint8), there)
