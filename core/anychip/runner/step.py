"""A forward pass under way, and what to do with its hidden states."""

from __future__ import annotations

from collections.abc import Callable

import torch

from anychip.engine.batch import StepResult
from anychip.plugin.contract import Late, Pending, Ready, Step
from anychip.runner.inputs import DeviceBatch, Wanted
from anychip.runner.results import FetchTensor, PendingResult
from anychip.sample.logprobs import DeviceLogprobs, score
from anychip.sample.sampler import Sampled, Sampler

MAX_SCORED = 128
"""Prompt tokens scored at once: their logits are the largest tensors there are."""

Logits = Callable[[torch.Tensor], torch.Tensor]


class EmptyStep(Step):
    """A step without tokens."""

    def finish(self, late: Late | None = None) -> Pending[StepResult]:
        """Nothing came of it."""
        return Ready(StepResult())


class TorchStep(Step):
    """Hidden states that wait for their logits to be taken and sampled from."""

    def __init__(
        self,
        hidden: torch.Tensor,
        inputs: DeviceBatch,
        wanted: Wanted,
        logits: Logits,
        sampler: Sampler,
        last_tokens: torch.Tensor,
        fetch: FetchTensor,
    ) -> None:
        self._hidden = hidden
        self._inputs = inputs
        self._wanted = wanted
        self._logits = logits
        self._sampler = sampler
        self._last_tokens = last_tokens
        self._fetch = fetch
        self.finished = False

    @torch.inference_mode()
    def finish(self, late: Late | None = None) -> Pending[StepResult]:
        """Sample a token for each row that asks, and score the prompt tokens that are to be scored."""
        assert not self.finished, "a step was finished twice"
        self.finished = True
        sampled = self._sample(late) if len(self._wanted.sampled_rows) else None
        scored = self._score() if len(self._wanted.scored_rows) else []
        return PendingResult(self._wanted, sampled, scored, self._fetch)

    def _sample(self, late: Late | None) -> Sampled:
        at = self._inputs.sampled_at
        plan = self._sampler.plan(self._wanted.sampled_rows)
        logits = self._logits(self._hidden[at])
        masks = late.masks if late else None
        sampled = self._sampler.sample(plan, logits, self._inputs.positions[at] + 1, masks)
        self._last_tokens[plan.rows] = sampled.token_ids.clamp(min=0).int()
        return sampled

    def _score(self) -> list[DeviceLogprobs]:
        count = int(self._sampler.state.prompt_logprobs[self._wanted.scored_rows].max())
        places = self._inputs.scored_at.split(MAX_SCORED)
        targets = self._inputs.targets.split(MAX_SCORED)
        return [
            score(self._logits(self._hidden[at]), target, count) for at, target in zip(places, targets, strict=True)
        ]
