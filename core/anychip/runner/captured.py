"""Steps captured at a few fixed shapes, once each, and replayed: one call launches them, however many kernels it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from anychip.engine.batch import SAMPLE, Batch
from anychip.plugin.contract import KVPlan
from anychip.runner.bucket import Bucket, Capture, Room
from anychip.runner.inputs import Computed, Forward, RunBatch
from anychip.sample.send import Send


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Which shapes are captured, all ascending; a batch is padded to the next one, and a larger one is not captured."""

    single: tuple[int, ...]
    """Rows of steps in which each brings one token and samples."""
    tokens: tuple[int, ...] = ()
    """Tokens of other steps; none of them also stands in `rows`."""
    rows: tuple[int, ...] = ()
    """Rows of other steps, one of them for padding."""

    def __post_init__(self) -> None:
        """As many tokens as rows would mean one each."""
        assert not {*self.tokens} & {*self.rows}, "a number of tokens is also one of rows"


class CapturedSteps:
    """Runs a batch by a captured step where it fits one and only samples, else by `otherwise`."""

    def __init__(
        self,
        step: Forward,
        plan: KVPlan,
        device: torch.device,
        send: Send,
        capture: Capture,
        otherwise: RunBatch,
        sizes: Sizes,
    ) -> None:
        self.otherwise = otherwise
        self.buckets: dict[tuple[int, int, bool], Bucket] = {}
        """Those captured so far, by tokens, rows, and whether highest logits are taken; each when first needed."""
        self._step, self._plan, self._send, self._capture, self._sizes = step, plan, send, capture, sizes
        rows = max((0, *sizes.single, *sizes.rows))
        self._room = Room(max((rows, *sizes.tokens)), rows, plan, device)

    def __call__(self, batch: Batch, greedy: bool) -> Computed:
        """See `RunBatch`."""
        shape = self._shape(batch)
        if shape is None:
            return self.otherwise(batch, greedy)
        kind = (*shape, greedy)
        if kind not in self.buckets:
            self.buckets[kind] = Bucket(*kind, self._step, self._plan, self._room, self._send, self._capture)
        return self.buckets[kind].run(batch)

    def _shape(self, batch: Batch) -> tuple[int, int] | None:
        """(tokens, rows) of the bucket for a batch; None where there is none."""
        if not (batch.targets == SAMPLE).all():
            return None
        if batch.num_single == batch.num_rows == len(batch.targets):
            rows = _at_least(batch.num_rows, self._sizes.single)
            return None if rows is None else (rows, rows)
        tokens = _at_least(batch.num_tokens, self._sizes.tokens)
        rows = _at_least(batch.num_rows + 1, self._sizes.rows)
        return None if tokens is None or rows is None else (tokens, rows)


def sizes_up_to(limit: int, apart: int = 8) -> tuple[int, ...]:
    """Sizes to `limit` that leave little to padding: multiples of `apart`, then an eighth more."""
    sizes, size = [1, 2, 4] if apart == 8 else [], apart
    while size < limit:
        sizes.append(size)
        size += max(apart, 1 << (size.bit_length() - 4))
    return (*(size for size in sizes if size < limit), limit)


def _at_least(count: int, sizes: Sequence[int]) -> int | None:
    return next((size for size in sizes if size >= count), None)
