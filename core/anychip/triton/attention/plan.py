"""A step's index work for one KV group. Sizes come from the host, contents from the device: captured, it stays right.

Of the host's numbers only those are read that say how large a launch is: tokens, rows, how many rows bring one token,
and the most that any brings.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.errors import UserError
from anychip.ops.attention import AttentionInputs
from anychip.plugin.contract import KVSpec
from anychip.triton.attention.tiles import Way
from anychip.triton.chip import Chip
from anychip.triton.programs.plan import SPREAD, cut_contexts, cut_queries, place_keys, place_tokens
from anychip.triton.programs.sharing import SHARER, find_sharing, order_sharers
from anychip.triton.tuning import CROWD, Tile

FIELDS = 8
UNIT = 64
"""Keys that a piece of a context is a multiple of."""
ROW_CLASSES = (32, 128, 512, 2048)
"""Numbers of rows the planning programs are compiled for; a step has no more than the last."""
KEY_ROWS = 512
"""Rows for which the program that places keys is compiled, unless there are more."""
LEAST_SHARED = 256
"""Keys that are worth sharing."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """Contexts of rows with one token: pieces [P, FIELDS], and (first sums, pieces) of each row [R, 2]."""

    pieces: torch.Tensor
    row_pieces: torch.Tensor
    sharers: torch.Tensor | None
    """[R, SHARER] rows in the order of what they share; None: nothing is read for several rows."""
    programs: int
    """More than there are pieces."""
    sums: int
    """More than there are pieces of single rows."""
    tile: Tile
    shared: Tile | None
    """For several rows; None: all are read alone."""


@dataclass(frozen=True, slots=True)
class Queries:
    """Pieces of the new tokens of other rows: pieces [P, FIELDS], at most `tokens` in each, which fit `tile`."""

    pieces: torch.Tensor
    tokens: int
    tile: Tile
    way: Way
    taken: torch.Tensor
    """[3] int32 for programs that take pieces one by one: two zeros, and how many pieces there are."""


@dataclass(frozen=True, slots=True)
class PagedPlan:
    """What the layers of one KV group share in a step."""

    inputs: AttentionInputs
    block_size: int
    window: int
    """Keys a query sees; 0: all before it."""
    slots: torch.Tensor
    """[T] int64, block * block_size + entry: where each token's key and value go."""
    contexts: Contexts | None
    queries: Queries | None


def make_plan(
    inputs: AttentionInputs,
    spec: KVSpec,
    block_size: int,
    pieces: int,
    group: int,
    way: tuple[Way, Tile],
    tiles: tuple[Tile, Tile],
    chip: Chip,
) -> PagedPlan:
    """Plan a step: contexts in about `pieces` pieces, new tokens of `group` heads each in pieces that fit a tile.

    `tiles`: one token's heads against its context, and those of several tokens that share theirs.
    """
    rows, window = inputs.seq_lens.shape[0], spec.window or 0
    several = rows > inputs.num_single
    return PagedPlan(
        inputs=inputs,
        block_size=block_size,
        window=window,
        slots=_slots(inputs, block_size, chip),
        contexts=_contexts(inputs, block_size, window, chip, pieces, group, tiles) if inputs.num_single else None,
        queries=_queries(inputs, group, way, chip) if several else None,
    )


def key_slots(start: torch.Tensor, table: torch.Tensor, count: int, block_size: int, chip: Chip) -> torch.Tensor:
    """[K] int64 slots of all `count` keys of some rows, row after row. start [R+1] int32, table [R, B] -> [K]."""
    rows = len(table)
    row_class = max(_row_class(rows), KEY_ROWS)
    keys = _lines(row_class)
    slots = torch.empty(count, dtype=torch.int64, device=table.device)
    place_keys[(_blocks(count, keys),)](
        start, table, slots, rows, count, table.stride(0), PAGE=block_size, ROWS=row_class, KEYS=keys, **chip.order
    )
    return slots


def _slots(inputs: AttentionInputs, block_size: int, chip: Chip) -> torch.Tensor:
    count, rows = inputs.positions.shape[0], inputs.seq_lens.shape[0]
    slots = torch.empty(count, dtype=torch.int64, device=inputs.positions.device)
    row_class = _row_class(rows)
    tokens = _lines(row_class)
    place_tokens[(_blocks(count, tokens),)](
        inputs.query_start, inputs.positions, inputs.block_table, slots, rows, count, inputs.block_table.stride(0),
        SINGLE=inputs.num_single == rows, PAGE=block_size, ROWS=row_class, TOKENS=tokens, **chip.order,
    )  # fmt: skip
    return slots


def _contexts(
    inputs: AttentionInputs, block_size: int, window: int, chip: Chip, target: int, group: int, tiles: tuple[Tile, Tile]
) -> Contexts:
    tile, shared = tiles
    rows, members = inputs.num_single, shared.rows // group
    several = rows >= CROWD and members > 1 and not window
    row_class, most = _row_class(rows), rows // CROWD + CROWD if several else 0
    lines = _few_lines(row_class)
    bound = rows + most + 2 * target if several else rows + target
    programs = _blocks(bound, lines)
    pieces = _pieces(inputs, programs * lines)
    contexts = Contexts(
        pieces=pieces,
        row_pieces=pieces.new_empty(rows, 2),
        sharers=_sharers(inputs, block_size, chip) if several else None,
        programs=bound,
        sums=2 * rows + (1 + SPREAD.value) * target if several else rows + target,
        tile=tile,
        shared=shared if several else None,
    )
    cut_contexts[(programs,)](
        inputs.seq_lens, contexts.sharers, contexts.pieces, contexts.row_pieces, rows, target, most, WINDOW=window,
        UNIT=UNIT, MEMBERS=members if several else 0, ROWS=row_class, PIECES=lines, **chip.order,
    )  # fmt: skip
    return contexts


def _sharers(inputs: AttentionInputs, block_size: int, chip: Chip) -> torch.Tensor:
    rows, row_class = inputs.num_single, _row_class(inputs.num_single)
    lines, table = _few_lines(row_class), inputs.block_table
    groups = torch.empty(rows, 2, dtype=torch.int32, device=table.device)
    sharers = torch.empty(rows, SHARER.value, dtype=torch.int32, device=table.device)
    find_sharing[(rows,)](
        inputs.seq_lens, table, groups, rows, table.stride(0), PAGE=block_size, LEAST=_blocks(LEAST_SHARED, block_size),
        ROWS=row_class, COLUMNS=max(8, 2048 // row_class), num_warps=chip.tuning.warps(256 if row_class > 512 else 128),
        **chip.order,
    )  # fmt: skip
    order_sharers[(_blocks(rows, lines),)](
        groups, sharers, rows, PAGE=block_size, ROWS=row_class, LINES=lines, **chip.order
    )
    return sharers


def _queries(inputs: AttentionInputs, group: int, way: tuple[Way, Tile], chip: Chip) -> Queries:
    tokens = way[1].rows // group
    rows, single = inputs.seq_lens.shape[0], inputs.num_single
    row_class = _row_class(rows)
    lines = _lines(row_class)
    bound = _blocks(inputs.positions.shape[0] - single, tokens) + rows - single
    programs = _blocks(bound, lines)
    pieces = _pieces(inputs, programs * lines + 1)
    queries = Queries(pieces[:-1], tokens, way[1], way[0], pieces[-1, :3])
    cut_queries[(programs,)](
        inputs.query_start, inputs.positions, inputs.seq_lens, pieces, single, rows, TOKENS=tokens,
        ROWS=row_class, PIECES=lines, **chip.order,
    )  # fmt: skip
    return queries


def _pieces(inputs: AttentionInputs, count: int) -> torch.Tensor:
    return torch.empty(count, FIELDS, dtype=torch.int32, device=inputs.seq_lens.device)


def _row_class(rows: int) -> int:
    if rows > ROW_CLASSES[-1]:
        raise UserError(
            f"A step of {rows} requests is more than this device's kernels plan at once.",
            f"Use --max-num-seqs {ROW_CLASSES[-1]}, or less.",
        )
    return next(size for size in ROW_CLASSES if size >= rows)


def _lines(row_class: int) -> int:
    """Lines a planning program works out: a table of them and the rows fits in registers."""
    return min(64, 4096 // row_class)


def _few_lines(row_class: int) -> int:
    """The same where much is worked out for a line."""
    return max(2, min(32, 1024 // row_class))


def _blocks(count: int, size: int) -> int:
    return -(-count // size)
