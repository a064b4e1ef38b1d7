"""When a request's tokens came."""

from __future__ import annotations

import time

from anychip.engine.outputs import Delta
from anychip_api.metrics import Metrics


class RequestClock:
    """Times one prompt's choices and counts its tokens."""

    def __init__(self, metrics: Metrics, prompt_tokens: int, arrived: float) -> None:
        self.generated = 0
        self._metrics = metrics
        self._prompt_tokens = prompt_tokens
        self._arrived = arrived
        self._first = 0.0
        self._last: dict[int, float] = {}
        self._reason = "abort"

    def on_delta(self, delta: Delta, now: float) -> None:
        """A choice gained tokens, or ended."""
        count = len(delta.token_ids)
        metrics = self._metrics
        if not self._first:
            self._first = now
            metrics.first_token.observe(now - self._arrived)
            metrics.prompt_tokens += self._prompt_tokens
        if count:
            last = self._last.get(delta.index)
            if last is not None:
                metrics.inter_token.observe((now - last) / count, count)
            self._last[delta.index] = now
            self.generated += count
            metrics.generation_tokens += count
        if delta.finish_reason:
            self._reason = delta.finish_reason

    def close(self) -> None:
        """The request ended, well or not."""
        now = time.monotonic()
        metrics = self._metrics
        metrics.finished[self._reason] += 1
        if not self._first:
            return
        metrics.end_to_end.observe(now - self._arrived)
        metrics.request_prompt.observe(self._prompt_tokens)
        metrics.request_generation.observe(self.generated)
        if self.generated > 1:
            metrics.per_output_token.observe((now - self._first) / (self.generated - 1))
