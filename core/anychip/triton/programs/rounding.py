"""Numbers in 8 bits, a scale a row: what products with codes multiply."""

import triton
import triton.language as tl

from anychip.triton.programs.order import take_turn


@triton.jit
def put_row(out, scales, row, values, columns, K: tl.constexpr, LARGEST: tl.constexpr, WHOLE: tl.constexpr):
    """One row's values [BLOCK], 0 behind the K-th, to a contiguous `out`.

    LARGEST > 0: in 8 bits, the largest of them at that number, and what they were divided by to `scales`; WHOLE: as
    integers.
    """
    if LARGEST > 0:
        # A maximum passes over what is no number, and no integer says that it is none: the scale does.
        sizes = tl.where(values == values, tl.abs(values), float("inf"))
        scale = tl.maximum(tl.max(sizes, 0) / LARGEST, 1e-12)
        values = values / scale
        if WHOLE:
            values = tl.floor(values + 0.5)
        tl.store(scales + row, scale)
    tl.store(out + row * K + columns, values.to(out.dtype.element_ty), columns < K)


@triton.jit
def round_rows(
    x, codes, scales, stride_x, K: tl.constexpr, LARGEST: tl.constexpr, WHOLE: tl.constexpr, OVERLAP: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One token's values in 8 bits."""
    take_turn(OVERLAP)
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    values = tl.load(x + row * stride_x + columns, columns < K, other=0.0).to(tl.float32)
    put_row(codes, scales, row, values, columns, K, LARGEST, WHOLE)
