"""A step's arrays on the device: one upload for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from anychip.engine.batch import SAMPLE, Batch, Int32
from anychip.ops.attention import AttentionInputs


@dataclass(frozen=True, slots=True)
class DeviceBatch:
    """What a forward pass reads. T tokens, R rows; views into one int32 buffer on the device."""

    token_ids: torch.Tensor
    """[T]; PENDING where `pending` says so, until the runner fills them in."""
    positions: torch.Tensor
    """[T]."""
    sampled_at: torch.Tensor
    """[S] indices of the tokens after which a row samples."""
    scored_at: torch.Tensor
    """[M] indices of the tokens after which a given token is scored."""
    targets: torch.Tensor
    """[M] the tokens to score."""
    pending: torch.Tensor
    """[P] indices of the tokens still on the device."""
    pending_rows: torch.Tensor
    """[P] stable rows whose last sample they are."""
    groups: tuple[AttentionInputs, ...]
    """One a KV group."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which logits a step needs, on the host."""

    sampled_rows: Int32
    """[S] stable rows."""
    scored_rows: Int32
    """[M] stable rows."""
    scored_positions: Int32
    """[M] positions of the scored tokens in their requests."""

    @classmethod
    def of(cls, batch: Batch) -> Wanted:
        """Read a batch's `logits_at` and `targets`."""
        rows = batch.rows[np.searchsorted(batch.query_start, batch.logits_at, side="right") - 1]
        scored = batch.targets != SAMPLE
        return cls(rows[~scored], rows[scored], batch.positions[batch.logits_at[scored]] + 1)


def upload(batch: Batch, device: torch.device) -> DeviceBatch:
    """Copy a batch to `device`; the batch's own arrays are not kept."""
    scored = batch.targets != SAMPLE
    awaited = np.flatnonzero(batch.token_ids < 0)
    arrays = (
        batch.token_ids,
        batch.positions,
        batch.query_start,
        batch.seq_lens,
        batch.logits_at[~scored],
        batch.logits_at[scored],
        batch.targets[scored],
        awaited,
        batch.rows[np.searchsorted(batch.query_start, awaited, side="right") - 1],
        *batch.block_tables,
    )
    packed = np.concatenate([array.ravel() for array in arrays], dtype=np.int32, casting="same_kind")
    views = _views(torch.from_numpy(packed).to(device), arrays)
    token_ids, positions, query_start, seq_lens, sampled_at, scored_at, targets, pending, pending_rows, *tables = views
    shared = _SharedInputs(batch, positions, query_start, seq_lens)
    return DeviceBatch(
        token_ids=token_ids,
        positions=positions,
        sampled_at=sampled_at,
        scored_at=scored_at,
        targets=targets,
        pending=pending,
        pending_rows=pending_rows,
        groups=tuple(shared.group(table) for table in tables),
    )


class _SharedInputs:
    """Attention inputs but for the block table, which differs by group."""

    def __init__(
        self, batch: Batch, positions: torch.Tensor, query_start: torch.Tensor, seq_lens: torch.Tensor
    ) -> None:
        self.device_arrays = positions, query_start, seq_lens
        self.query_start, self.seq_lens = batch.query_start.copy(), batch.seq_lens.copy()
        self.num_single = batch.num_single
        all_single = batch.num_single == batch.num_rows
        self.max_query = min(1, batch.num_tokens) if all_single else int(np.diff(batch.query_start).max())
        self.max_seq = int(batch.seq_lens.max(initial=0))

    def group(self, table: torch.Tensor) -> AttentionInputs:
        """The inputs of one group."""
        positions, query_start, seq_lens = self.device_arrays
        return AttentionInputs(
            positions=positions,
            query_start=query_start,
            seq_lens=seq_lens,
            block_table=table,
            host_query_start=self.query_start,
            host_seq_lens=self.seq_lens,
            num_single=self.num_single,
            max_query=self.max_query,
            max_seq=self.max_seq,
        )


def _views(packed: torch.Tensor, arrays: tuple[np.ndarray, ...]) -> Iterator[torch.Tensor]:
    start = 0
    for array in arrays:
        yield packed[start : start + array.size].view(array.shape)
        start += array.size
