"""Timing a request's tokens, for metrics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from anychip.engine.outputs import Delta
from anychip_api.metrics import Metrics

if TYPE_CHECKING:
    from anychip.engine.stream import RequestStream


class RequestClock:
    """Times one prompt's choices and counts its tokens. Times are of `time.monotonic`."""

    def __init__(self, metrics: Metrics, stream: RequestStream, arrived: float) -> None:
        self.generated = 0
        self.first = 0.0
        self.reason = "abort"
        self._metrics = metrics
        self._stream = stream
        self._arrived = arrived
        self._last: dict[int, float] = {}
        self._counts: dict[int, int] = {}

    def on_delta(self, delta: Delta, now: float) -> None:
        """Note that a choice gained tokens, or ended, at `now`."""
        count = len(delta.token_ids)
        metrics = self._metrics
        if not self.first:
            self.first = now
            metrics.first_token.observe(now - self._arrived)
            metrics.prompt_tokens += len(self._stream.prompt_token_ids)
            metrics.prompt_tokens_cached += self._stream.num_cached_tokens
        if count:
            last = self._last.get(delta.index)
            if last is not None:
                metrics.inter_token.observe((now - last) / count, count)
            self._last[delta.index] = now
            self._counts[delta.index] = self._counts.get(delta.index, 0) + count
            self.generated += count
            metrics.generation_tokens += count
        if delta.finish_reason:
            self.reason = delta.finish_reason

    def close(self) -> None:
        """Note that the request ended, well or not, in the histograms of whole requests."""
        now = time.monotonic()
        metrics = self._metrics
        metrics.finished[self.reason] += 1
        params = self._stream.params
        metrics.params_n.observe(params.n)
        if params.max_tokens is not None:
            metrics.params_max_tokens.observe(params.max_tokens)
        if not self.first:
            return
        started = self._arrived + self._stream.waited
        metrics.prefill.observe(max(0.0, self.first - started))
        metrics.decode.observe(now - self.first)
        metrics.inference.observe(max(0.0, now - started))
        metrics.end_to_end.observe(now - self._arrived)
        metrics.request_prompt.observe(len(self._stream.prompt_token_ids))
        metrics.request_generation.observe(self.generated)
        metrics.longest_generation.observe(max(self._counts.values(), default=0))
        if self.generated > 1:
            metrics.per_output_token.observe((now - self.first) / (self.generated - 1))
