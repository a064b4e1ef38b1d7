"""Steps captured at a few fixed shapes, once each, and replayed: one call launches all kernels of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from anychip.engine.batch import SAMPLE, Batch
from anychip.plugin.contract import KVPlan
from anychip.runner.bucket import Bucket, Capture, Room, Shape
from anychip.runner.inputs import Computed, Forward, RunBatch
from anychip.runner.prepared import Prepared
from anychip.sample.send import Send


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Shapes that are captured, each list ascending. A batch is padded up to the next; a larger one is not captured."""

    single: tuple[int, ...]
    """Rows of decoding steps, in which each row brings one token and samples."""
    tokens: tuple[int, ...] = ()
    """Other steps: tokens of their rows with several tokens. No number may also be in `rows`."""
    rows: tuple[int, ...] = ()
    """Other steps: rows with several tokens, one of which is padding."""
    beside: tuple[int, ...] = ()
    """Other steps: rows with one token beside those. Empty: such rows are counted among `rows`."""

    def __post_init__(self) -> None:
        """As many tokens as rows would mean one each."""
        assert not {*self.tokens} & {*self.rows}, "a number of tokens is also one of rows"


class CapturedSteps(Prepared):
    """Runs a batch by a captured step if it fits one and its rows only sample, else by `otherwise`."""

    def __init__(
        self,
        step: Forward,
        plan: KVPlan,
        device: torch.device,
        send: Send,
        capture: Capture,
        otherwise: RunBatch,
        sizes: Sizes,
        room: Room | None = None,
    ) -> None:
        """`capture` records a step, `send` copies arrays to the device. `room`: memory to share with larger steps."""
        self.otherwise = otherwise
        self.buckets: dict[Shape, Bucket] = {}
        """Captured steps; each is captured when it is first needed."""
        self.sizes = sizes
        self._step, self._plan, self._send, self._capture, self._device = step, plan, send, capture, device
        beside = max((0, *sizes.beside))
        rows = max((0, *sizes.single, *(beside + count for count in sizes.rows)))
        tokens = max((rows, *(beside + count for count in sizes.tokens)))
        self._room = room or Room(tokens, rows, plan, device)

    def others(self, around: Callable[[Forward], Forward], sizes: Sizes) -> CapturedSteps:
        """Captured steps of another kind: `around` wraps the forward pass, and `sizes` are at most those of these.

        Both share memory, as they never run at the same time.
        """
        step, plan, device = around(self._step), self._plan, self._device
        return CapturedSteps(step, plan, device, self._send, self._capture, self.otherwise, sizes, self._room)

    def __call__(self, batch: Batch, greedy: bool) -> Computed:
        """See `RunBatch`."""
        shape = self._shape(batch, greedy)
        if shape is None:
            return self.otherwise(batch, greedy)
        if shape not in self.buckets:
            self._add(shape)
        return self.buckets[shape].run(batch)

    def prepare(self, batch: Batch, greedy: bool) -> bool:
        """See `Prepared`."""
        shape = self._shape(batch, greedy)
        if shape is None or shape in self.buckets:
            return False
        self._add(shape)
        return True

    def _add(self, shape: Shape) -> None:
        self.buckets[shape] = Bucket(shape, self._step, self._plan, self._room, self._send, self._capture)

    def _shape(self, batch: Batch, greedy: bool) -> Shape | None:
        """The shape to pad a batch to; None if it fits none or asks for more than samples."""
        if not (batch.targets == SAMPLE).all():
            return None
        sizes, single = self.sizes, batch.num_single
        if single == batch.num_rows == len(batch.targets):
            count = _at_least(single, sizes.single)
            return None if count is None else Shape(count, count, count, greedy)
        apart = single if sizes.beside else 0
        beside = _at_least(apart, sizes.beside or (0,))
        tokens = _at_least(batch.num_tokens - apart, sizes.tokens)
        rows = _at_least(batch.num_rows - apart + 1, sizes.rows)
        if beside is None or tokens is None or rows is None:
            return None
        return Shape(beside + tokens, beside + rows, beside, greedy)


def sizes_up_to(limit: int, apart: int = 8) -> tuple[int, ...]:
    """Ascending sizes up to `limit`: multiples of `apart`, further on an eighth apart, so that padding stays small."""
    sizes, size = [1, 2, 4] if apart == 8 else [], apart
    while size < limit:
        sizes.append(size)
        size += max(apart, 1 << (size.bit_length() - 4))
    return (*(size for size in sizes if size < limit), limit)


def _at_least(count: int, sizes: Sequence[int]) -> int | None:
    return next((size for size in sizes if size >= count), None)
