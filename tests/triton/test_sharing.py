"""Contexts that begin in the same blocks: who reads them together, that every key is read once, and what comes out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.triton.mode import require_triton

require_triton(interpreted=True)

from tests.triton.interpreted import PROCESSORS

from anychip.cache.storage import stored_as
from anychip.engine.batch import Int32
from anychip.errors import UserError
from anychip.ops.attention import AttentionInputs, kv_write, new_cache, plan_attention
from anychip.ops.attention_cases import batch_inputs, shuffled_table
from anychip.ops.bind import bind
from anychip.ops.op import OpSpec
from anychip.ops.parts import Ops
from anychip.ops.shapes import normal
from anychip.plugin.contract import KVSpec, Plane
from anychip.testing.compare import normalized_error
from anychip.triton.attention.attention import Attention
from anychip.triton.attention.plan import CROWD, LEAST_SHARED, ROW_CLASSES, UNIT, Contexts
from anychip.triton.chip import Chip
from anychip.triton.programs.sharing import find_sharing, order_sharers
from anychip.triton.provider import TritonKernels
from anychip.triton.tuning import Tile, Tuning

PAGE = 16
LEAST = LEAST_SHARED // PAGE
HEADS, CACHED = 6, 2


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[int], Int32]:
    """Lengths and a block table of rows in any order, some of which begin as others do, for some of their blocks."""
    count = draw(st.integers(CROWD, 14))
    lengths = [draw(st.integers(1, 45 * PAGE)) for _ in range(count)]
    table, _ = shuffled_table(torch.Generator().manual_seed(draw(st.integers(0, 9))), [45 * PAGE] * count, PAGE)
    for row in range(1, count):
        other, blocks = draw(st.integers(0, row - 1)), draw(st.sampled_from([0, 3, 17, 20, 20, 33, 45]))
        table[row, :blocks] = table[other, :blocks]
    order = np.array(draw(st.permutations(range(count))))
    table = table[order]
    table[:, 40:][np.array(lengths) < 40 * PAGE] = 0  # what lies behind a row may be anything
    return lengths, table


def in_common(lengths: list[int], table: Int32) -> np.ndarray:
    """[R, R] leading blocks that two rows have in common, each one's newest token apart."""
    limits = (np.array(lengths) - 1) // PAGE
    equal = np.cumprod(table[:, None] == table[None], axis=2).sum(2)
    return np.minimum(equal, np.minimum(limits[:, None], limits[None, :]))


def sharers_of(lengths: list[int], table: Int32, columns: int) -> list[tuple[int, int, int, int]]:
    """(row, keys it shares, its number in its group, rows of the group), found `columns` blocks at a time."""
    rows, on_device = len(lengths), torch.from_numpy(table)
    groups, sharers = (torch.full((rows, width), -7, dtype=torch.int32) for width in (2, 4))
    find_sharing[(rows,)](
        torch.tensor(lengths, dtype=torch.int32), on_device, groups, rows, on_device.stride(0), OVERLAP=False,
        PAGE=PAGE, LEAST=LEAST, ROWS=16, COLUMNS=columns,
    )  # fmt: skip
    order_sharers[(-(-rows // 4),)](groups, sharers, rows, OVERLAP=False, PAGE=PAGE, ROWS=16, LINES=4)
    return [(line[0], line[1], line[2], line[3]) for line in sharers.tolist()]


@settings(max_examples=30, deadline=None)
@given(batches(), st.sampled_from([2, 8, 64]))
def test_rows_of_a_group_have_what_saves_each_most(batch: tuple[list[int], Int32], columns: int) -> None:
    common, found = in_common(*batch), sharers_of(*batch, columns)
    assert sorted(row for row, *_ in found) == list(range(len(common)))
    for place, (row, keys, number, size) in enumerate(found):
        mates = [mate for mate, *_ in found[place - number : place - number + size]]
        assert mates[number] == row
        assert keys % PAGE == 0
        assert all(common[row, mate] * PAGE >= keys for mate in mates)
        if keys:
            assert size > 1
            assert [other[1] for other in found[place - number : place - number + size]] == [keys] * size
            assert abs(saved(common[row], keys // PAGE) - most_saved(common[row])) < 1e-5


def saved(common: np.ndarray, blocks: int) -> float:
    """Blocks that a row saves reading if all that have `blocks` in common with it read them once."""
    return blocks * (1 - 1 / np.count_nonzero(common >= blocks))


def most_saved(common: np.ndarray) -> float:
    return max((saved(common, blocks) for blocks in range(LEAST, common.max() + 1)), default=0.0)


def test_one_crowd_shares_all_it_can_and_several_share_apart() -> None:
    table, _ = shuffled_table(torch.Generator(), [800] * 16, PAGE)
    table[::2, :30], table[1::4, :20] = table[0, :30], table[1, :20]
    found = {row: (keys, size) for row, keys, _, size in sharers_of([800] * 16, table, 8)}
    assert [found[row] for row in range(0, 16, 2)] == [(480, 8)] * 8
    assert [found[row] for row in range(1, 16, 4)] == [(320, 4)] * 4
    assert [found[row] for row in range(3, 16, 4)] == [(0, 1)] * 4


@settings(max_examples=20, deadline=None)
@given(batches(), st.sampled_from([16, 32, 64]), st.sampled_from([None, 100]))
def test_every_key_is_read_once(batch: tuple[list[int], Int32], lines: int, window: int | None) -> None:
    read_once(*batch, lines, window)


def test_more_groups_than_there_are_tiles_for_are_read_alone() -> None:
    lengths = [700] * 40
    table, _ = shuffled_table(torch.Generator(), lengths, PAGE)
    table[20:, :40] = table[:20, :40]
    contexts = read_once(lengths, table, 16, None)
    assert 0 < sum(piece[6] > 1 and piece[1] == 0 for piece in contexts.pieces.tolist()) < 20


def read_once(lengths: list[int], table: Int32, lines: int, window: int | None) -> Contexts:
    """Check that the pieces hold each row's keys once, and that each has a place of its own for its sums."""
    inputs = batch_inputs(tuple((length - 1, 1) for length in lengths), table)
    contexts = planned(inputs, lines, window)
    pieces, places = contexts.pieces.tolist(), contexts.row_pieces.tolist()
    assert all(piece[0] < 0 for piece in pieces[contexts.programs :])
    read: list[list[tuple[int, int, int]]] = [[] for _ in lengths]
    for first, begin, end, part, parts, place, members, _ in (piece for piece in pieces if piece[0] >= 0):
        rows = [first]
        if members > 1:
            assert contexts.sharers is not None
            rows = contexts.sharers[first : first + members, 0].tolist()
            assert len({tuple(table[row, : end // PAGE]) for row in rows}) == 1
        for row in rows:
            read[row].append((part, begin, end))
            assert members > 1 or (place, parts) == (places[row][0] + part, places[row][1])
    for row, length in enumerate(lengths):
        parts = sorted(read[row])
        assert [part for part, *_ in parts] == list(range(places[row][1]))
        low = max(0, length - window) if window else 0
        assert [begin for _, begin, _ in parts] == [low, *(end for _, _, end in parts[:-1])]
        assert parts[-1][2] == length
    taken = sorted(first + part for first, count in places for part in range(count))
    assert taken == list(range(len(taken)))
    assert len(taken) <= contexts.sums
    return contexts


def planned(inputs: AttentionInputs, lines: int, window: int | None = None) -> Contexts:
    layer = KVSpec("sliding" if window else "full", tuple(Plane(n, (CACHED, 48), "float32") for n in "kv"), window)
    contexts = Attention(chip(lines), HEADS, torch.float32).plan_attention(inputs, layer, PAGE).contexts
    assert contexts is not None
    return contexts


def chip(lines: int) -> Chip:
    return Chip(PROCESSORS, tuning=Tuning(context_float32=Tile(lines, 16, 4, 2)))


def test_a_row_is_cut_into_pieces_of_equal_length() -> None:
    lengths = [656, 656, 700]
    table, _ = shuffled_table(torch.Generator(), lengths, PAGE)
    contexts = planned(batch_inputs(tuple((length - 1, 1) for length in lengths), table), 16)
    spans = [(row, end - begin) for row, begin, end, *_ in contexts.pieces.tolist() if row >= 0]
    for row in range(3):
        mine = [span for which, span in spans if which == row]
        assert len({*mine[:-1]}) <= 1
        assert mine[0] - mine[-1] < UNIT * len(mine)
        assert all(span % UNIT == 0 for span in mine[:-1])


class Crowd:
    """A dozen rows with one token, four of which share 592 keys and three 320, by these kernels and the reference."""

    LENGTHS = (700, 650, 900, 330, 600, 40, 1000, 1, 800, 420, 555, 610)

    def __init__(self, window: int | None = None, cache: str = "") -> None:
        generator = torch.Generator().manual_seed(5)
        self.spec = OpSpec("float32", 96, HEADS, CACHED, 48, 100, windows=(window,) if window else (), kv_dtype=cache)
        planes = tuple(Plane(name, (CACHED, 48), "float32") for name in "kv")
        self.layer = stored_as(KVSpec("sliding" if window else "full", planes, window), cache or "auto")
        table, self.blocks = shuffled_table(generator, [*self.LENGTHS], PAGE)
        for row in (0, 1, 6, 8):
            table[row, :37] = table[0, :37]
        for row in (2, 4, 10):
            table[row, :20] = table[2, :20]
        self.inputs = batch_inputs(tuple((length - 1, 1) for length in self.LENGTHS), table)
        self.q = normal(generator, len(self.LENGTHS), HEADS, 48, dtype="float32")
        k, v = (normal(generator, self.blocks * PAGE, CACHED, 48, dtype="float32") for _ in range(2))
        self.sinks = normal(generator, HEADS, dtype="float32")

        self.written = new_cache(self.layer, self.blocks, PAGE, "cpu")
        everything = batch_inputs(((0, self.blocks * PAGE),), np.arange(self.blocks, dtype=np.int32)[None])
        kv_write(k, v, self.written, plan_attention(everything, self.layer, PAGE))

    def attend(self, ops: Ops, sinks: bool, softcap: float, forge: bool = False) -> torch.Tensor:
        """Attend over what was written; `forge` moves a row into another's group."""
        cache = ops.new_cache(self.layer, self.blocks, PAGE, "cpu")
        for there, here in zip(cache.planes, self.written.planes, strict=True):
            there.copy_(here if there.shape == here.shape else here.transpose(1, 2))
        plan = ops.plan_attention(self.inputs, self.layer, PAGE)
        if forge:
            sharers = plan.contexts.sharers.clone()
            sharers[[1, 4], 0] = sharers[[4, 1], 0]
            plan = replace(plan, contexts=replace(plan.contexts, sharers=sharers))
        return ops.paged_attention(self.q, cache, plan, 0.2, softcap, self.sinks if sinks else None)

    def error(self, lines: int, sinks: bool = False, softcap: float = 0.0, forge: bool = False) -> float:
        ours, right = (bind(kernels, self.spec) for kernels in (TritonKernels(chip(lines)).kernels(self.spec), {}))
        return normalized_error(self.attend(ours, sinks, softcap, forge), self.attend(right, sinks, softcap))


@pytest.mark.parametrize(
    ("lines", "options", "how"),
    [
        (16, {}, {}),
        (32, {}, {"softcap": 3.0, "sinks": True}),
        (16, {"cache": "int8"}, {"sinks": True}),
        (16, {"window": 100}, {}),
    ],
    ids=["plain", "softcap and sinks", "codes and sinks", "window"],
)
def test_what_is_read_together_comes_out_as_if_read_alone(
    lines: int, options: dict[str, Any], how: dict[str, Any]
) -> None:
    assert Crowd(**options).error(lines, **how) < 3e-6


def test_the_check_sees_a_row_in_the_wrong_group() -> None:
    assert Crowd().error(16, forge=True) > 1e-3


def test_a_few_rows_and_wide_groups_of_heads_ask_for_nothing() -> None:
    inputs = Crowd().inputs
    assert planned(inputs, 16).tile is not None
    few = replace(
        inputs, num_single=7, seq_lens=inputs.seq_lens[:7], positions=inputs.positions[:7],
        query_start=inputs.query_start[:8], block_table=inputs.block_table[:7],
    )  # fmt: skip
    assert planned(few, 16).sharers is None
    layer = KVSpec("full", tuple(Plane(name, (1, 48), "float32") for name in "kv"))
    wide = Attention(chip(16), 9, torch.float32).plan_attention(inputs, layer, PAGE)
    assert wide.contexts is not None
    assert wide.contexts.sharers is None


def test_more_rows_than_are_planned_at_once_name_the_flag() -> None:
    rows = ROW_CLASSES[-1] + 1
    inputs = batch_inputs(((0, 1),) * rows, np.zeros((rows, 1), np.int32))
    with pytest.raises(UserError, match=f"--max-num-seqs {rows - 1}"):
        planned(inputs, 16)
