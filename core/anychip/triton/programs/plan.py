"""Cutting a step's attention into pieces of work, on the device: nothing here depends on what the host knows.

A piece is a line of eight int32. Of a context: row, first key, end of keys, number within its row, pieces of its row,
place of its sums, rows that read it; where these are several, their first line of `sharers` in place of the row. Of
queries: row, first token, end of tokens, the first one's position, length of its row. The row is -1 where a launch has
more programs than there are pieces.
"""

import triton
import triton.language as tl

from anychip.triton.programs.order import take_turn
from anychip.triton.programs.sharing import SHARER

PIECE = tl.constexpr(8)
SPREAD = tl.constexpr(16)
"""Times as many sums as there should be pieces, at most, for what rows share: each is written and read again."""


@triton.jit(do_not_specialize=["num_rows", "target", "most"], do_not_specialize_on_alignment=["seq_lens"])
def cut_contexts(
    seq_lens, sharers, pieces, row_pieces, num_rows, target, most, OVERLAP: tl.constexpr, WINDOW: tl.constexpr,
    UNIT: tl.constexpr, MEMBERS: tl.constexpr, ROWS: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Cut the contexts of rows that bring one token into about `target` pieces, a row's of nearly equal length.

    Up to MEMBERS rows of `sharers` read what they share in pieces of their own, about as many again, which come first;
    `most` tiles of rows do, the others read alone. Lengths are multiples of UNIT, and a row without context is one
    empty piece. row_pieces [R, 2] gets the place of each row's first sums, and of how many pieces they are.
    """
    take_turn(OVERLAP)
    place = tl.arange(0, ROWS)
    valid = place < num_rows
    row, shared, head, members = place, tl.zeros_like(place), valid & False, tl.zeros_like(place)
    if MEMBERS > 1:
        sharer = sharers + place * SHARER
        row, shared = tl.load(sharer, mask=valid, other=0), tl.load(sharer + 1, mask=valid, other=0)
        number, size = tl.load(sharer + 2, mask=valid, other=0), tl.load(sharer + 3, mask=valid, other=0)
        head = (shared > 0) & (number % MEMBERS == 0)
        members = tl.minimum(size - number, MEMBERS)
        shared = tl.where(tl.cumsum(head.to(tl.int32), 0) <= most, shared, 0)
        head = head & (shared > 0)
    length = tl.load(seq_lens + row, mask=valid, other=0)
    low = tl.maximum(length - WINDOW, 0) if WINDOW > 0 else shared
    share = tl.cdiv(tl.sum(length - low + tl.where(head, shared, 0), 0), target)
    count, each = _equal(length - low, share, UNIT)
    count = tl.where(valid, count, 0)
    least = tl.cdiv(tl.sum(tl.where(head, shared, 0), 0), target)
    parts, span = _equal(shared, tl.maximum(least, tl.cdiv(tl.sum(shared, 0), target * SPREAD)), UNIT)
    parts = tl.where(shared > 0, parts, 0)
    first = tl.cumsum(parts + count, 0) - parts - count
    if tl.program_id(0) == 0:
        tl.store(row_pieces + row * 2, first, mask=valid)
        tl.store(row_pieces + row * 2 + 1, parts + count, mask=valid)
    piece = tl.program_id(0) * PIECES + tl.arange(0, PIECES)
    together = tl.where(head, parts, 0)
    alone = piece - tl.sum(together, 0)
    at, number = _locate(alone, tl.cumsum(count, 0))
    if MEMBERS > 1:
        at_shared, number_shared = _locate(piece, tl.cumsum(together, 0))
        at, number = tl.where(alone < 0, at_shared, at), tl.where(alone < 0, number_shared, number)
    here = at[:, None] == place[None, :]
    begin = tl.where(alone < 0, number * _pick(here, span), _pick(here, low) + number * _pick(here, each))
    end = tl.where(alone < 0, begin + _pick(here, span), begin + _pick(here, each))
    end = tl.minimum(end, tl.where(alone < 0, _pick(here, shared), _pick(here, length)))
    part = number + tl.where(alone < 0, 0, _pick(here, parts))
    several = tl.where(alone < 0, _pick(here, members), 1)
    line = pieces + piece * PIECE
    tl.store(line, tl.where(at < num_rows, tl.where(several > 1, at, _pick(here, row)), -1))
    tl.store(line + 1, begin)
    tl.store(line + 2, end)
    tl.store(line + 3, part)
    tl.store(line + 4, _pick(here, parts + count))
    tl.store(line + 5, _pick(here, first) + part)
    tl.store(line + 6, several)


@triton.jit
def _equal(length, size, UNIT: tl.constexpr):
    """Into how many pieces of about `size` lengths are cut, one at least, and how long each but the last is."""
    size = tl.maximum(tl.cdiv(size, UNIT) * UNIT, UNIT)
    count = tl.maximum(tl.cdiv(length, size), 1)
    each = tl.maximum(tl.cdiv(tl.cdiv(length, count), UNIT) * UNIT, UNIT)
    return tl.maximum(tl.cdiv(length, each), 1), each


@triton.jit(
    do_not_specialize=["first_row", "num_rows"],
    do_not_specialize_on_alignment=["query_start", "positions", "seq_lens"],
)
def cut_queries(
    query_start, positions, seq_lens, pieces, first_row, num_rows, OVERLAP: tl.constexpr, TOKENS: tl.constexpr,
    ROWS: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Cut the new tokens of rows `first_row` to `num_rows` into pieces of TOKENS, a row's last and longest first.

    Behind the last line come how many were taken so far, how many programs have ended, and how many pieces there are.
    """
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
    if tl.program_id(0) == 0:
        last = pieces + tl.num_programs(0) * PIECES * PIECE
        tl.store(last + tl.arange(0, 2), 0)
        tl.store(last + 2, tl.sum(count, 0))
    held = row < num_rows
    tl.store(line, tl.where(held, row, -1))
    tl.store(line + 1, begin)
    tl.store(line + 2, tl.minimum(begin + TOKENS, _pick(here, stop)))
    tl.store(line + 3, tl.load(positions + begin, mask=held, other=0))
    tl.store(line + 4, tl.load(seq_lens + row, mask=held, other=0))


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


@triton.jit(
    do_not_specialize=["num_rows", "num_keys", "stride_table"], do_not_specialize_on_alignment=["start", "table"]
)
def place_keys(
    start, table, slots, num_rows, num_keys, stride_table, OVERLAP: tl.constexpr, PAGE: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Where all keys of some rows lie, row after row: block * PAGE + entry. start [R+1]: where each row begins."""
    take_turn(OVERLAP)
    key = tl.program_id(0) * KEYS + tl.arange(0, KEYS)
    rows = tl.arange(0, ROWS)
    row, position = _locate(key, tl.load(start + 1 + rows, mask=rows < num_rows, other=2147483647))
    valid = (key < num_keys) & (row < num_rows)
    block = tl.load(table + row.to(tl.int64) * stride_table + position // PAGE, mask=valid, other=0)
    tl.store(slots + key, block.to(tl.int64) * PAGE + position % PAGE, mask=key < num_keys)


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
