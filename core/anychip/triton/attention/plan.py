"""A step's index work for one KV group, done once for all of the group's layers.

Work is cut into pieces by programs on the device, from lengths that are there. Of the host's numbers only those are
read that say how large a launch is: tokens, rows, how many rows bring one token, and the most that any brings. So a
plan in a captured step stays right whatever batch it is replayed for.

T tokens, R rows, P pieces; a piece is a line of FIELDS int32, described in programs/plan.py.
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
"""int32 of a piece."""
UNIT = 64
"""Pieces of a context are multiples of so many keys, apart from its last."""
ROW_CLASSES = (32, 128, 512, 2048)
"""Numbers of rows that the planning programs are compiled for; a step has no more rows than the last."""
KEY_ROWS = 512
"""Least number of rows that the program that places keys is compiled for."""
LEAST_SHARED = 256
"""Fewest common keys for which rows are read together."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """How contexts of the rows with one token are cut into pieces, each read by one program for each key head."""

    pieces: torch.Tensor
    """[P, FIELDS] int32."""
    row_pieces: torch.Tensor
    """[R, 2] int32: for each row where its partial sums begin, and of how many pieces they are."""
    sharers: torch.Tensor | None
    """[R, SHARER] int32: rows, ordered so that those with a common prefix are neighbours; see programs/sharing.py.
    None: each row is read alone."""
    programs: int
    """Upper bound of the pieces, as only the device knows their number."""
    sums: int
    """Upper bound of the partial sums."""
    tile: Tile
    """For pieces of one row."""
    shared: Tile | None
    """For pieces that several rows share; None: each row is read alone."""


@dataclass(frozen=True, slots=True)
class Queries:
    """How the new tokens of rows with several are cut into pieces, each computed by one program for each key head."""

    pieces: torch.Tensor
    """[P, FIELDS] int32."""
    tokens: int
    """Most tokens of a piece; times their query heads for one key head they fit the tile's rows."""
    tile: Tile
    way: Way
    taken: torch.Tensor
    """[3] int32 for programs that take piece after piece: how many were taken, how many programs have ended, and how
    many pieces there are."""


@dataclass(frozen=True, slots=True)
class PagedPlan:
    """A plan: what all layers of one KV group need of a step."""

    inputs: AttentionInputs
    block_size: int
    window: int
    """Keys that a query sees, its own included; 0: all up to its own."""
    slots: torch.Tensor
    """[T] int64 where each token's key and value go: block * block_size + place in the block."""
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
    """Plan a step.

    `pieces`: how many the contexts are cut into, about. `group`: query heads that share a key head. `way`: how rows
    with several tokens read the cache, and their tile. `tiles`: for one token alone, and for several that share keys.
    Raises `UserError` for more rows than the planning programs take.
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
    """[K] int64 slots in the cache of all `count` keys of some rows, row after row.

    start [R+1] int32: where each row's keys begin among them. table [R, B] int32: their blocks.
    """
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
    """Pieces or tokens that a planning program works out: a table of these by rows has to fit in registers."""
    return min(64, 4096 // row_class)


def _few_lines(row_class: int) -> int:
    """The same for programs that keep many such tables."""
    return max(2, min(32, 1024 // row_class))


def _blocks(count: int, size: int) -> int:
    return -(-count // size)
