"""A step under way: a forward pass, and sampling, scoring or pooling what it leaves."""

from __future__ import annotations

from collections.abc import Callable

import torch

from anychip.engine.batch import Batch, Masks, StepResult
from anychip.plugin.contract import Late, Pending, Ready, Step
from anychip.runner.inputs import Computed, Wanted
from anychip.runner.pooler import Pooler
from anychip.runner.results import FetchTensor, PendingResult, sampled_result
from anychip.sample.logprobs import DeviceLogprobs
from anychip.sample.plan import SamplePlan
from anychip.sample.sampler import Sampled, Sampler

MAX_SCORED = 128
"""Prompt tokens scored at once: their logits are the largest tensors there are."""

Logits = Callable[[torch.Tensor], torch.Tensor]
"""Hidden states [M, H] -> logits [M, V]."""
Launched = Callable[[bool], Computed]
"""A forward pass under way. Called once, it returns what the pass left; True asks for logits, as tokens are masked."""


class EmptyStep(Step):
    """A step without tokens: it only admitted and retired rows."""

    def finish(self, late: Late | None = None) -> Pending[StepResult]:
        """An empty result, at once."""
        return Ready(StepResult())


class TorchStep(Step):
    """A step of a torch model. `plan` is None where no row samples, `pooler` where the model generates.

    When the same `Batch` object comes again, this object serves its next step too: `launch_again`.
    """

    def __init__(
        self,
        batch: Batch,
        launched: Launched,
        wanted: Wanted,
        plan: SamplePlan | None,
        logits: Logits,
        sampler: Sampler,
        fetch: FetchTensor,
        pooler: Pooler | None = None,
    ) -> None:
        self.batch = batch
        self._launched = launched
        self._wanted = wanted
        self._plan = plan
        self._logits = logits
        self._sampler = sampler
        self._fetch = fetch
        self._pooler = pooler
        self.finished = False
        self.masked = False
        """Whether the last `finish` was given masks."""

    @property
    def greedy(self) -> bool:
        """Whether every row that samples takes its highest logit, as it is."""
        return self._plan is not None and self._plan.takes_highest

    def launch_again(self, launched: Launched) -> None:
        """Take over another forward pass of the same batch; the one before has to be finished."""
        self._launched, self.finished = launched, False

    def finish(self, late: Late | None = None) -> Pending[StepResult]:
        """Sample tokens, score prompt tokens and pool vectors, as the batch asks; the result comes later."""
        assert not self.finished, "a step was finished twice"
        masks = late.masks if late else None
        self.masked = masks is not None
        computed = self._launched(self.masked)
        self.finished, self._launched = True, _finished  # what it left is nobody's from here on
        if computed.on_host is not None:
            return Ready(sampled_result(self._wanted, computed.on_host))
        if computed.chosen is not None and masks is None and self._wanted.nothing_else:
            return PendingResult(self._wanted, Sampled(computed.chosen, None), [], None, self._fetch)
        return self._chosen_now(computed, masks)

    @torch.inference_mode()
    def _chosen_now(self, computed: Computed, masks: Masks | None) -> Pending[StepResult]:
        sampled = None if self._plan is None else self._sample(self._plan, computed, masks)
        scored = self._score(computed) if len(self._wanted.scored_rows) else []
        vectors = self._pooler.pool(computed.hidden, computed.inputs) if self._pooler else None
        return PendingResult(self._wanted, sampled, scored, vectors, self._fetch)

    def _sample(self, plan: SamplePlan, computed: Computed, masks: Masks | None) -> Sampled:
        if computed.chosen is not None and masks is None:
            return Sampled(computed.chosen, None)
        inputs, logits = computed.inputs, computed.logits
        if logits is None:
            assert computed.selected is not None, "rows sample and there is nothing to take logits from"
            logits = self._logits(computed.selected)
        return self._sampler.sample(plan, logits, inputs.positions[inputs.sampled_at] + 1, masks)

    def _score(self, computed: Computed) -> list[DeviceLogprobs]:
        inputs, hidden = computed.inputs, computed.hidden
        count = int(self._sampler.state.prompt_logprobs[self._wanted.scored_rows].max())
        places, targets = inputs.scored_at.split(MAX_SCORED), inputs.targets.long().split(MAX_SCORED)
        score = self._sampler.score
        return [score(self._logits(hidden[at]), target, count) for at, target in zip(places, targets, strict=True)]


def _finished(masked: bool) -> Computed:
    raise AssertionError("a step was finished twice")
