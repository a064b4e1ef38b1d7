"""Deltas joined to the whole output that `LLM` and `AsyncEngine.generate` return."""

from __future__ import annotations

from anychip.engine.collect import Collected
from anychip.engine.outputs import CompletionOutput, Delta, RequestOutput


class Gathered:
    """One request's output so far."""

    def __init__(self, collected: Collected) -> None:
        self._collected = collected
        params = collected.prepared.params
        wants = params.logprobs is not None
        self.choices = [
            CompletionOutput(index, logprobs=[] if wants else None, cumulative_logprob=0.0 if wants else None)
            for index in range(params.n)
        ]

    def add(self, delta: Delta) -> None:
        """Take in a delta."""
        choice = self.choices[delta.index]
        choice.text += delta.text
        choice.token_ids += delta.token_ids
        if delta.logprobs and choice.logprobs is not None and choice.cumulative_logprob is not None:
            choice.logprobs += delta.logprobs
            sampled = zip(delta.logprobs, delta.token_ids, strict=True)
            choice.cumulative_logprob += sum(entry[token].logprob for entry, token in sampled)
        if delta.finish_reason is not None:
            choice.finish_reason, choice.stop_reason = delta.finish_reason, delta.stop_reason

    def output(self) -> RequestOutput:
        """A snapshot."""
        collected = self._collected
        return RequestOutput(
            request_id=collected.request_id,
            prompt=collected.prepared.text,
            prompt_token_ids=collected.prepared.token_ids,
            outputs=self.choices,
            prompt_logprobs=collected.prompt_logprobs,
            finished=all(choice.finish_reason is not None for choice in self.choices),
            num_cached_tokens=collected.num_cached_tokens,
        )
