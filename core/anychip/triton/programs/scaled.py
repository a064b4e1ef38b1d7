"""Scaled logits, and blocks of them in a list."""

import triton
import triton.language as tl


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
def list_blocks(place, chosen):
    """Write the indices of the blocks chosen to `place`, which nobody has read yet, in order; how many they are."""
    index = tl.cumsum(chosen.to(tl.int32), 0)
    tl.store(place + index - 1, tl.arange(0, chosen.shape[0]), chosen)
    tl.debug_barrier()  # each thread now reads what others wrote
    return tl.max(index, 0)


@triton.jit
def read_blocks(line, place, index, count, V: tl.constexpr, BLOCK: tl.constexpr):
    """Logits [blocks, BLOCK] of the listed blocks `index`, -inf behind the end of the list or of the row."""
    block = tl.load(place + index, index < count, other=0)
    token = block[:, None] * BLOCK + in_fours(BLOCK)[None, :]
    there = (index < count)[:, None] & (token < V)
    return tl.load(line + token, there, other=float("-inf")).to(tl.float32)
