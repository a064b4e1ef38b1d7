"""Cutting a step's attention into pieces of work, on the device: nothing here depends on what the host knows.

A piece is a line of eight int32. Of a context: row, first key, end of keys, number within its row, pieces of its row.
Of queries: row, first token, end of tokens. The row is -1 where a launch has more programs than there are pieces.
"""

import triton
import triton.language as tl

from anychip.triton.programs.order import take_turn

PIECE = tl.constexpr(8)


@triton.jit(do_not_specialize=["num_rows", "target"], do_not_specialize_on_alignment=["seq_lens"])
def cut_contexts(
    seq_lens, pieces, row_pieces, num_rows, target, OVERLAP: tl.constexpr, WINDOW: tl.constexpr, UNIT: tl.constexpr,
    ROWS: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Cut the contexts of rows that bring one token into about `target` pieces of equal length, a multiple of UNIT.

    A row without context is one empty piece. row_pieces [R, 2] gets the first piece and the number of each row.
    """
    take_turn(OVERLAP)
    rows = tl.arange(0, ROWS)
    length = tl.load(seq_lens + rows, mask=rows < num_rows, other=0)
    low = tl.maximum(length - WINDOW, 0) if WINDOW > 0 else tl.zeros_like(length)
    share = tl.cdiv(tl.sum(length - low, 0), target)
    size = tl.maximum(tl.cdiv(share, UNIT) * UNIT, UNIT)
    count = tl.where(rows < num_rows, tl.maximum(tl.cdiv(length - low, size), 1), 0)
    ends = tl.cumsum(count, 0)
    piece = tl.program_id(0) * PIECES + tl.arange(0, PIECES)
    row, number = _locate(piece, ends)
    here = row[:, None] == rows[None, :]
    begin = _pick(here, low) + number * size
    end = tl.minimum(begin + size, _pick(here, length))
    line = pieces + piece * PIECE
    tl.store(line, tl.where(row < num_rows, row, -1))
    tl.store(line + 1, begin)
    tl.store(line + 2, end)
    tl.store(line + 3, number)
    tl.store(line + 4, _pick(here, count))
    if tl.program_id(0) == 0:
        tl.store(row_pieces + rows * 2, ends - count, mask=rows < num_rows)
        tl.store(row_pieces + rows * 2 + 1, count, mask=rows < num_rows)


@triton.jit(do_not_specialize=["first_row", "num_rows"], do_not_specialize_on_alignment=["query_start"])
def cut_queries(
    query_start,
    pieces,
    first_row,
    num_rows,
    OVERLAP: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    PIECES: tl.constexpr,
):
    """Cut the new tokens of rows `first_row` to `num_rows` into pieces of TOKENS, a row's last and longest first."""
    take_turn(OVERLAP)
    rows = tl.arange(0, ROWS)
    valid = (rows >= first_row) & (rows < num_rows)
    start = tl.load(query_start + rows, mask=valid, other=0)
    stop = tl.load(query_start + rows + 1, mask=valid, other=0)
    count = tl.cdiv(stop - start, TOKENS)
    ends = tl.cumsum(count, 0)
    piece = tl.program_id(0) * PIECES + tl.arange(0, PIECES)
    row, number = _locate(piece, ends)
    here = row[:, None] == rows[None, :]
    begin = _pick(here, start) + (_pick(here, count) - 1 - number) * TOKENS
    line = pieces + piece * PIECE
    tl.store(line, tl.where(row < num_rows, row, -1))
    tl.store(line + 1, begin)
    tl.store(line + 2, tl.minimum(begin + TOKENS, _pick(here, stop)))


@triton.jit(
    do_not_specialize=["num_rows", "num_tokens", "stride_table"],
    do_not_specialize_on_alignment=["query_start", "positions", "table"],
)
def place_tokens(
    query_start, positions, table, slots, num_rows, num_tokens, stride_table, OVERLAP: tl.constexpr,
    SINGLE: tl.constexpr, PAGE: tl.constexpr, ROWS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Where each token's key and value go: block * PAGE + entry. Tokens behind the last row go to the null block."""
    take_turn(OVERLAP)
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    if SINGLE:
        row = token
    else:
        rows = tl.arange(0, ROWS)
        ends = tl.load(query_start + 1 + rows, mask=rows < num_rows, other=2147483647)
        row = tl.sum((ends[None, :] <= token[:, None]).to(tl.int32), 1)
    valid = (token < num_tokens) & (row < num_rows)
    position = tl.load(positions + token, mask=valid, other=0)
    block = tl.load(table + row.to(tl.int64) * stride_table + position // PAGE, mask=valid, other=0)
    tl.store(slots + token, block.to(tl.int64) * PAGE + position % PAGE, mask=token < num_tokens)


@triton.jit
def _locate(piece, ends):
    """The row a piece belongs to, and its number within it. ends: running sum of the rows' counts."""
    before = ends[None, :] <= piece[:, None]
    row = tl.sum(before.to(tl.int32), 1)
    return row, piece - tl.max(tl.where(before, ends[None, :], 0), 1)


@triton.jit
def _pick(here, values):
    """values[row] for each piece."""
    return tl.sum(tl.where(here, values[None, :], 0), 1)
