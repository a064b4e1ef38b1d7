"""Steps of the null platform: answered at once, or when a device would have done them."""

from __future__ import annotations

import time

import numpy as np

from anychip.engine.batch import Int32, Pooled, StepResult
from anychip.plugin.contract import Late, Pending, Ready, Step


def next_token(position: Int32, vocab_size: int) -> Int32:
    """The token at a position: the same for every sequence, and never one of the first two, often ends of sequence."""
    token: Int32 = (2 + position.astype(np.int64) * 7919 % max(vocab_size - 2, 1)).astype(np.int32)
    return token


def next_allowed(token: int, bits: Int32, vocab_size: int) -> int:
    """The first token from `token` on, beginning again behind the last one, that a mask allows."""
    allowed = np.unpackbits(bits.view(np.uint8), count=vocab_size, bitorder="little").view(np.bool_)
    later = token + int(allowed[token:].argmax())
    return later if allowed[later] else int(allowed.argmax())


class NullStep(Step):
    """The tokens that are certain, or the first allowed ones after them."""

    def __init__(
        self, rows: Int32, tokens: Int32, pooled: Pooled | None, errors: dict[int, str], vocab_size: int
    ) -> None:
        self._rows, self._tokens, self._pooled = rows, tokens, pooled
        self._errors, self._vocab_size = errors, vocab_size

    def finish(self, late: Late | None = None) -> Pending[StepResult]:
        """See `Step.finish`."""
        if late is not None:
            for row, bits in zip(late.masks.rows.tolist(), late.masks.bits, strict=True):
                index = np.flatnonzero(self._rows == row)
                self._tokens[index] = next_allowed(int(self._tokens[index[0]]), bits, self._vocab_size)
        if self._errors:
            good = ~np.isin(self._rows, list(self._errors))
            self._rows, self._tokens = self._rows[good], self._tokens[good]
        start = np.arange(len(self._rows) + 1, dtype=np.int32)
        return Ready(StepResult(self._rows, start, self._tokens, pooled=self._pooled, errors=self._errors))


class TimedStep(Step):
    """A step whose result takes its time."""

    def __init__(self, step: Step, due: float) -> None:
        self._step, self._due = step, due

    def finish(self, late: Late | None = None) -> Pending[StepResult]:
        """See `Step.finish`."""
        return _Timed(self._step.finish(late), self._due)


class _Timed(Pending[StepResult]):
    def __init__(self, pending: Pending[StepResult], due: float) -> None:
        self._pending, self._due = pending, due

    def result(self) -> StepResult:
        time.sleep(max(0.0, self._due - time.monotonic()))
        return self._pending.result()
