"""Numbers in 8 bits, a scale a row or a group of it: what products with codes multiply."""

import triton
import triton.language as tl

from anychip.triton.programs.order import take_turn


@triton.jit
def put_row(
    out, scales, row, values, columns, K: tl.constexpr, LARGEST: tl.constexpr, WHOLE: tl.constexpr, GROUP: tl.constexpr,
    TERMS: tl.constexpr,
):  # fmt: skip
    """One row's values [BLOCK], 0 behind the K-th, to a contiguous `out`. A program has one row.

    LARGEST > 0: in 8 bits, the largest of each GROUP at that number, and what they were divided by to `scales`
    [groups, rows]; WHOLE: as integers. GROUP 0: all of them are one. TERMS 2: what rounding took, in 254ths, follows
    behind all rows.
    """
    if LARGEST > 0:
        # A maximum passes over what is no number, and no integer says that it is none: the scale does.
        sizes = tl.where(values == values, tl.abs(values), float("inf"))
        if GROUP == 0 or values.shape[0] <= GROUP:
            scale = tl.maximum(tl.max(sizes, 0) / LARGEST, 1e-12)
            values = values / scale
            tl.store(scales + row, scale)
        else:
            count: tl.constexpr = values.shape[0] // GROUP
            scale = tl.maximum(tl.max(tl.reshape(sizes, (count, GROUP)), 1) / LARGEST, 1e-12)
            values = tl.reshape(tl.reshape(values, (count, GROUP)) / scale[:, None], (count * GROUP,))
            groups = tl.arange(0, count)
            tl.store(scales + groups * tl.num_programs(0) + row, scale, groups * GROUP < K)
        if WHOLE:
            whole = tl.floor(values + 0.5)
            if TERMS == 2:
                rest = tl.floor((values - whole) * 254 + 0.5).to(out.dtype.element_ty)
                tl.store(out + (tl.num_programs(0).to(tl.int64) + row) * K + columns, rest, columns < K)
            values = whole
    tl.store(out + row * K + columns, values.to(out.dtype.element_ty), columns < K)


@triton.jit
def round_rows(
    x, codes, scales, stride_x, K: tl.constexpr, LARGEST: tl.constexpr, WHOLE: tl.constexpr, GROUP: tl.constexpr,
    TERMS: tl.constexpr, OVERLAP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token's values in 8 bits."""
    take_turn(OVERLAP)
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    values = tl.load(x + row * stride_x + columns, columns < K, other=0.0).to(tl.float32)
    put_row(codes, scales, row, values, columns, K, LARGEST, WHOLE, GROUP, TERMS)
