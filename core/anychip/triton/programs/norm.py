"""Root-mean-square normalization of a row at a time; sums in float32, rounded once.

The norm's weight is read before the previous program has ended: nobody writes it, and it comes from far away.
"""

import triton
import triton.language as tl

from anychip.triton.programs.order import let_next_start, take_turn, wait_for_previous
from anychip.triton.programs.rounding import put_row


@triton.jit
def normalize(
    x, weight, out, scales, eps, heads, stride_row, stride_head, LARGEST: tl.constexpr, WHOLE: tl.constexpr, GROUP:
    tl.constexpr, TERMS: tl.constexpr, OVERLAP: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Lines [rows, heads, H], a program each; `out` and `scales` as in `put_row`."""
    let_next_start(OVERLAP)
    line = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    valid = column < H
    factor = tl.load(weight + column, valid, other=0.0)
    wait_for_previous(OVERLAP)
    source = x + line // heads * stride_row + line % heads * stride_head
    values = tl.load(source + column, valid, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / H + eps)
    normed = values * scale * factor.to(tl.float32)
    put_row(out, scales, line, normed, column, H, LARGEST, WHOLE, GROUP, TERMS)


@triton.jit
def add_and_normalize(
    x, residual, weight, out, scales, new_residual, eps, stride_x, stride_residual, LARGEST: tl.constexpr, WHOLE:
    tl.constexpr, GROUP: tl.constexpr, TERMS: tl.constexpr, OVERLAP: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x + residual, and that normalized before it is rounded. [rows, H]; `out` and `scales` as in `put_row`."""
    let_next_start(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    valid = column < H
    factor = tl.load(weight + column, valid, other=0.0)
    wait_for_previous(OVERLAP)
    values = tl.load(x + row * stride_x + column, valid, other=0.0).to(tl.float32)
    values += tl.load(residual + row * stride_residual + column, valid, other=0.0).to(tl.float32)
    tl.store(new_residual + row * H + column, values.to(new_residual.dtype.element_ty), valid)
    scale = tl.rsqrt(tl.sum(values * values, 0) / H + eps)
    normed = values * scale * factor.to(tl.float32)
    put_row(out, scales, row, normed, column, H, LARGEST, WHOLE, GROUP, TERMS)


@triton.jit
def center_and_normalize(
    x, residual, weight, bias, out, eps, stride_x, stride_residual, OVERLAP: tl.constexpr, ADD: tl.constexpr,
    H: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x, plus residual with ADD, normalized by mean and variance. [rows, H]."""
    take_turn(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    valid = column < H
    values = tl.load(x + row * stride_x + column, valid, other=0.0).to(tl.float32)
    if ADD:
        values += tl.load(residual + row * stride_residual + column, valid, other=0.0).to(tl.float32)
    centered = tl.where(valid, values - tl.sum(values, 0) / H, 0.0)
    scale = tl.rsqrt(tl.sum(centered * centered, 0) / H + eps)
    normed = centered * scale * tl.load(weight + column, valid, other=0.0).to(tl.float32)
    normed += tl.load(bias + column, valid, other=0.0).to(tl.float32)
    tl.store(out + row * H + column, normed.to(out.dtype.element_ty), valid)
