"""Single tokens' logits: what is added to them, and which are left."""

import triton
import triton.language as tl

from anychip.triton.programs.order import take_turn


@triton.jit(do_not_specialize=["count"])
def add_entries(logits, index, tokens, values, stride, count, OVERLAP: tl.constexpr, BLOCK: tl.constexpr):
    """Add a value to the logit of each entry, of which two may be the same."""
    take_turn(OVERLAP)
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = entry < count
    row, token = tl.load(index + entry, there, other=0), tl.load(tokens + entry, there, other=0)
    tl.atomic_add(logits + row.to(tl.int64) * stride + token, tl.load(values + entry, there, other=0.0), there)


@triton.jit(do_not_specialize=["words"])
def mask_bits(logits, index, bits, stride, words, V: tl.constexpr, OVERLAP: tl.constexpr, BLOCK: tl.constexpr):
    """Write -inf where a token's bit is not set, and nothing else."""
    take_turn(OVERLAP)
    place, token = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    line = logits + tl.load(index + place).to(tl.int64) * stride
    word = tl.load(bits + place.to(tl.int64) * words + token // 32, token < V, other=-1)
    forbidden = ((word >> (token % 32)) & 1) == 0
    tl.store(line + token, tl.full((BLOCK,), float("-inf"), tl.float32), forbidden)
