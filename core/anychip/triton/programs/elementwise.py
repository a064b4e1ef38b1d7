"""Gated activations and the embedding's rows."""

import triton
import triton.language as tl

from anychip.triton.programs.activate import activate
from anychip.triton.programs.order import take_turn
from anychip.triton.programs.rounding import put_row


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


@triton.jit
def gate_and_round(
    x, codes, scales, stride, LARGEST: tl.constexpr, WHOLE: tl.constexpr, GROUP: tl.constexpr, TERMS: tl.constexpr,
    OVERLAP: tl.constexpr, ACTIVATION: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """activation(first half) * second half of a row [2 * K] in 8 bits; see `put_row`."""
    take_turn(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    valid = column < K
    gates = tl.load(x + row * stride + column, valid, other=0.0).to(tl.float32)
    values = tl.load(x + row * stride + K + column, valid, other=0.0).to(tl.float32)
    put_row(codes, scales, row, activate(gates, ACTIVATION) * values, column, K, LARGEST, WHOLE, GROUP, TERMS)


@triton.jit(do_not_specialize_on_alignment=["token_ids"])
def gather_rows(token_ids, table, out, stride_ids, OVERLAP: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr):
    """Row token_ids[i] of a table [V, H] into row i."""
    take_turn(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(token_ids + row * stride_ids).to(tl.int64)
    tl.store(out + row * H + column, tl.load(table + token * H + column, column < H), column < H)
