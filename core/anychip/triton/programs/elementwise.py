"""Gated activations and the embedding's rows."""

import triton
import triton.language as tl

from anychip.triton.programs.activate import activate
from anychip.triton.programs.order import take_turn


@triton.jit
def gate(x, out, stride, width, OVERLAP: tl.constexpr, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    """activation(first half) * second half of a row [2 * width]."""
    take_turn(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = column < width
    gates = tl.load(x + row * stride + column, valid, other=0.0).to(tl.float32)
    values = tl.load(x + row * stride + width + column, valid, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, (activate(gates, ACTIVATION) * values).to(out.dtype.element_ty), valid)


@triton.jit(do_not_specialize_on_alignment=["token_ids"])
def gather_rows(token_ids, table, out, stride_ids, OVERLAP: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr):
    """Row token_ids[i] of a table [V, H] into row i."""
    take_turn(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(token_ids + row * stride_ids).to(tl.int64)
    tl.store(out + row * H + column, tl.load(table + token * H + column, column < H), column < H)
