"""Finding rows whose contexts begin in the same blocks, on the device, out of the block tables alone.

    pass 1, a program for each row:     how far it shares with how many others, and so where its group ends
    pass 2, a program for a few rows:   rows in an order in which those of a group follow one another

A group is named by the first row of all that agree with it so far, and by how many blocks that is: rows with the same
name have those blocks in common, whatever else they or others share.
"""

import triton
import triton.language as tl

from anychip.triton.programs.order import take_turn

SHARER = tl.constexpr(4)
"""int32 in a line of `sharers`: row, keys it shares (0: none), its number in its group, rows of the group."""
NOBODY = tl.constexpr(2147483647)
DEPTHS = tl.constexpr(1 << 18)
"""More blocks than a row has."""


@triton.jit(do_not_specialize=["num_rows", "stride_table"], do_not_specialize_on_alignment=["seq_lens", "table"])
def find_sharing(
    seq_lens, table, groups, num_rows, stride_table, OVERLAP: tl.constexpr, PAGE: tl.constexpr, LEAST: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """How many leading blocks each row shares, LEAST at least or none: those that save it most reading.

    n rows that share d blocks read each of them once, so each saves d (1 - 1 / n). A row keeps its newest token's block
    for itself. groups [R, 2]: first row that has all of the blocks too, and their number.
    """
    take_turn(OVERLAP)
    own = tl.program_id(0)
    rows, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    limit = (tl.load(seq_lens + own) - 1) // PAGE
    limits = (tl.load(seq_lens + rows, mask=rows < num_rows, other=1) - 1) // PAGE
    own_line, lines = table + own.to(tl.int64) * stride_table, table + rows.to(tl.int64) * stride_table
    agree = limits > 0
    best, depth, leader = 0.0, 0, own
    start = 0
    more = limit >= LEAST
    while more:
        at = start + column
        mine = tl.load(own_line + at, mask=at < limit, other=-1)
        present = agree[:, None] & (at[None, :] < limits[:, None])
        theirs = tl.load(lines[:, None] + at[None, :], mask=present, other=-2)
        run = tl.min(tl.where(theirs == mine[None, :], COLUMNS, column[None, :]), 1)
        many = tl.sum((run[:, None] > column[None, :]).to(tl.int32), 0)
        blocks = at + 1
        saved = blocks.to(tl.float32) * (1.0 - 1.0 / tl.maximum(many, 1).to(tl.float32))
        saved = tl.where(blocks >= LEAST, saved, 0.0)
        most = tl.max(saved, 0)
        if most > best:
            best = most
            depth = tl.max(tl.where(saved == most, blocks, 0), 0)
            leader = tl.min(tl.where(run >= depth - start, rows, NOBODY), 0)
        agree = run == COLUMNS
        start += COLUMNS
        more = (start < limit) & (tl.sum(agree.to(tl.int32), 0) > 1)
    tl.store(groups + own * 2, leader)
    tl.store(groups + own * 2 + 1, depth)


@triton.jit(do_not_specialize=["num_rows"])
def order_sharers(
    groups, sharers, num_rows, OVERLAP: tl.constexpr, PAGE: tl.constexpr, ROWS: tl.constexpr, LINES: tl.constexpr
):
    """Lines of `sharers` [R, SHARER], a group's rows one after the other. Who is alone in a group shares nothing."""
    take_turn(OVERLAP)
    rows, own = tl.arange(0, ROWS), tl.program_id(0) * LINES + tl.arange(0, LINES)
    there, here = rows < num_rows, own < num_rows
    depth = tl.load(groups + own * 2 + 1, mask=here, other=0)
    name = tl.load(groups + own * 2, mask=here, other=0) * DEPTHS + depth
    names = tl.load(groups + rows * 2, mask=there, other=0) * DEPTHS
    names += tl.load(groups + rows * 2 + 1, mask=there, other=0)
    same = there[None, :] & (names[None, :] == name[:, None])
    number = tl.sum((same & (rows[None, :] < own[:, None])).to(tl.int32), 1)
    size = tl.sum(same.to(tl.int32), 1)
    before = tl.sum((there[None, :] & (names[None, :] < name[:, None])).to(tl.int32), 1)
    line = sharers + (before + number) * SHARER
    tl.store(line, own, mask=here)
    tl.store(line + 1, tl.where(size > 1, depth * PAGE, 0), mask=here)
    tl.store(line + 2, number, mask=here)
    tl.store(line + 3, size, mask=here)
