"""Index work of a step, done once for all layers of a KV group; host arrays and device arrays are the same memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from anychip.engine.batch import Int32
from anychip.ops.attention import AttentionInputs
from anychip.plugin.contract import KVSpec
from anychip_cpu.rope import rotation

MAX_GATHERED = 1 << 18
"""Tokens of context that one group of decoding rows gathers, unless a single row has more."""
MAX_PADDING = 1.25
"""Gathered tokens over useful ones from which rows are grouped by length."""

_Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Rows with one token each and contexts of similar length, gathered to `width` blocks."""

    tokens: torch.Tensor | None
    """[R] their tokens in the batch; None when they are the first R."""
    count: int
    heads: torch.Tensor
    """[M * R * width] int64: lines of the cache's heads, head by head, then row by row."""
    mask: torch.Tensor
    """[R, 1, S] float32, 0 or -inf, for S = width * block_size."""


@dataclass(frozen=True, slots=True)
class PrefillRow:
    """A row with several tokens: query tokens first to last, against `length` tokens of gathered context."""

    first: int
    last: int
    heads: torch.Tensor
    """[M * blocks] int64, as in DecodeGroup."""
    length: int
    mask: torch.Tensor | None
    """[t, length] float32, 0 or -inf; None where plain causal order holds."""


@dataclass(frozen=True, slots=True)
class CpuPlan:
    """What the layers of one KV group share in a step."""

    slots: torch.Tensor
    """[T * M] int64: where each head of each token's key and value goes."""
    groups: tuple[DecodeGroup, ...]
    rows: tuple[PrefillRow, ...]
    _rotations: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def rotation(self, positions: torch.Tensor, cos_sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`rotation`, worked out for the first layer and kept."""
        key = cos_sin.data_ptr()
        if key not in self._rotations:
            self._rotations[key] = rotation(positions, cos_sin)
        return self._rotations[key]


def plan_attention(inputs: AttentionInputs, spec: KVSpec, block_size: int) -> CpuPlan:
    """See anychip.ops.attention.plan_attention."""
    start, lengths = inputs.query_start.numpy(), inputs.seq_lens.numpy()
    table, positions = inputs.block_table.numpy(), inputs.positions.numpy()
    rows = np.repeat(np.arange(len(lengths)), np.diff(start))
    num_heads = spec.planes[0].shape[0]
    lines = table[rows, positions // block_size, None].astype(np.int64) * num_heads + np.arange(num_heads)
    slots = lines * block_size + (positions % block_size)[:, None]
    singles = inputs.num_single
    first = _first_blocks(lengths, np.diff(start), spec.window, block_size)
    groups = _decode_groups(lengths[:singles], first[:singles], table[:singles], spec, block_size)
    return CpuPlan(
        slots=torch.from_numpy(slots.ravel()),
        groups=tuple(groups),
        rows=tuple(
            _prefill_row(start[row : row + 2], int(lengths[row]), int(first[row]), table[row], spec, block_size)
            for row in range(singles, len(lengths))
        ),
    )


def _first_blocks(lengths: Int32, new: Int32, window: int | None, block_size: int) -> Int32:
    """[R] the first block that any of a row's new tokens sees."""
    if window is None:
        return np.zeros_like(lengths)
    first: Int32 = np.maximum(lengths - new - window + 1, 0) // block_size
    return first


def _decode_groups(lengths: Int32, first: Int32, table: Int32, spec: KVSpec, block_size: int) -> Iterator[DecodeGroup]:
    if not len(lengths):
        return
    widths = (lengths + block_size - 1) // block_size - first
    for rows in _similar(widths, block_size):
        width = int(widths[rows].max())
        columns = np.minimum(first[rows, None] + np.arange(width), table.shape[1] - 1)
        positions = first[rows, None] * block_size + np.arange(width * block_size)
        visible = _visible(lengths[rows, None] - 1 - positions, spec.window)
        in_order = len(rows) == len(lengths)
        yield DecodeGroup(
            tokens=None if in_order else torch.from_numpy(rows),
            count=len(rows),
            heads=_head_lines(np.take_along_axis(table[rows], columns, 1), spec),
            mask=torch.from_numpy(_additive(visible)).unsqueeze(1),
        )


def _similar(widths: Int32, block_size: int) -> list[_Indices]:
    """Row indices in groups whose padding and size are bounded; all rows in order if one group does."""
    padded = int(widths.max()) * len(widths)
    everything = np.arange(len(widths))
    if padded * block_size <= MAX_GATHERED and padded <= MAX_PADDING * int(widths.sum()) + len(widths):
        return [everything]
    order = np.argsort(-widths, kind="stable")
    halvings = np.floor(np.log2(widths.max() / widths[order])).astype(np.int64)
    groups: list[_Indices] = []
    for rows in np.split(order, np.flatnonzero(np.diff(halvings)) + 1):
        count = max(1, MAX_GATHERED // (int(widths[rows[0]]) * block_size))
        groups += [rows[i : i + count] for i in range(0, len(rows), count)]
    return [everything] if len(groups) == 1 else groups


def _prefill_row(span: Int32, length: int, first: int, table: Int32, spec: KVSpec, block_size: int) -> PrefillRow:
    begin, end = int(span[0]), int(span[1])
    heads = _head_lines(table[first : -(-length // block_size)], spec)
    seen = length - first * block_size
    if seen == end - begin and (spec.window is None or spec.window >= seen):
        return PrefillRow(begin, end, heads, seen, None)
    distance = np.arange(seen - (end - begin), seen)[:, None] - np.arange(seen)
    visible = _visible(distance, spec.window)
    return PrefillRow(begin, end, heads, seen, torch.from_numpy(_additive(visible)))


def _head_lines(blocks: Int32, spec: KVSpec) -> torch.Tensor:
    """The lines of every cached head in `blocks`, head by head."""
    num_heads = spec.planes[0].shape[0]
    lines = blocks.ravel().astype(np.int64) * num_heads + np.arange(num_heads)[:, None]
    return torch.from_numpy(lines.ravel())


def _visible(distance: npt.NDArray[np.int64], window: int | None) -> npt.NDArray[np.bool_]:
    seen: npt.NDArray[np.bool_] = distance >= 0 if window is None else (distance >= 0) & (distance < window)
    return seen


def _additive(visible: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    return np.where(visible, np.float32(0), np.float32(-np.inf))
