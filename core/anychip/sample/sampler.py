"""The sampler: logits of the rows that sample -> one token each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from anychip.engine.batch import Int32, Masks
from anychip.sample.logit_ops import LogitOps
from anychip.sample.logprobs import DeviceLogprobs
from anychip.sample.masks import Entries, forbid, keep_only
from anychip.sample.op import SampleOps
from anychip.sample.plan import Draws, Penalized, SamplePlan, make_plan
from anychip.sample.state import SamplerState


@dataclass(frozen=True, slots=True)
class Sampled:
    """Tokens of S rows on the device; ids below 0 are NOT_FINITE or NOTHING_LEFT."""

    token_ids: torch.Tensor
    logprobs: DeviceLogprobs | None


class Sampler:
    """Samples for the rows in `state`, with the ops a platform brought, and notes each row's token in `newest` [R]."""

    def __init__(self, state: SamplerState, ops: SampleOps, logit_ops: LogitOps, newest: torch.Tensor) -> None:
        self.state = state
        self.ops = ops
        self.logit_ops = logit_ops
        self.newest = newest
        self._plan: SamplePlan | None = None

    def plan(self, rows: Int32) -> SamplePlan:
        """The plan for `rows` [S]; the last one again while nothing has changed."""
        if self._plan is None or not self._plan.serves(rows, self.state.version):
            self.state.bring()
            self._plan = make_plan(self.state, rows)
        return self._plan

    def takes_highest(self, rows: Int32) -> bool:
        """What `SamplePlan.takes_highest` will be, known without the device."""
        return not self.state.features[rows].any()

    def sample(
        self, plan: SamplePlan, logits: torch.Tensor, positions: torch.Tensor, masks: Masks | None = None
    ) -> Sampled:
        """Choose a token for each row of the plan and note it in the rows' histories.

        logits [S, V] are overwritten; positions [S] are those of the tokens to come. Rows of `masks` sample only what
        these allow.
        """
        raw = logits
        # Log-probabilities are of the model's own logits, so those must survive.
        keep = plan.num_logprobs is not None
        output_positions = positions - plan.prompt_length
        if plan.edits_tokens:
            logits, keep = logits.to(torch.float32, copy=keep), False
            self._edit_tokens(plan, logits, output_positions)
        if plan.penalized is not None:
            logits, keep = self._penalize(plan.penalized, logits, keep), False
        if masks is not None:
            logits = logits.to(torch.float32, copy=keep)
            self._mask(plan, logits, masks)
        token_ids = self._choose(plan, logits, output_positions)
        self._remember(plan, token_ids)
        return Sampled(token_ids, None if plan.num_logprobs is None else self.score(raw, token_ids, plan.num_logprobs))

    def score(self, logits: torch.Tensor, token_ids: torch.Tensor, count: int) -> DeviceLogprobs:
        """Log-probabilities of a token a row and of the `count` best. logits [N, V], token_ids [N]."""
        return DeviceLogprobs(*self.logit_ops.gather_logprobs(logits, token_ids, count))

    def _edit_tokens(self, plan: SamplePlan, logits: torch.Tensor, output_positions: torch.Tensor) -> None:
        if plan.allowed is not None and plan.restricted is not None:
            keep_only(logits, plan.allowed, plan.restricted)
        if plan.bad_words is not None:
            spelled = plan.bad_words.matches(self.state.bad_words.tails[plan.rows])
            self._add(logits, plan.bad_words.entries, forbid(spelled))
        if plan.stop is not None:
            early = (output_positions < plan.min_tokens)[plan.stop.index]
            self._add(logits, plan.stop, forbid(early))
        if plan.bias is not None:
            self._add(logits, plan.bias, plan.bias.value)

    def _add(self, logits: torch.Tensor, entries: Entries, values: torch.Tensor) -> None:
        self.logit_ops.add_bias(logits, entries.index, entries.token, values)

    def _penalize(self, part: Penalized, logits: torch.Tensor, keep: bool) -> torch.Tensor:
        history = part.index, part.slots, self.state.counts.output, self.state.counts.seen
        return self.logit_ops.apply_penalties(logits, *history, part.presence, part.frequency, part.repetition, keep)

    def _mask(self, plan: SamplePlan, logits: torch.Tensor, masks: Masks) -> None:
        order = np.argsort(plan.host_rows)
        index = order[np.searchsorted(plan.host_rows, masks.rows, sorter=order)]
        self.logit_ops.mask_tokens(logits, self.state.send(index), self.state.send(masks.bits))

    def _choose(self, plan: SamplePlan, logits: torch.Tensor, output_positions: torch.Tensor) -> torch.Tensor:
        draws, greedy = plan.draws, plan.greedy
        if draws is None:
            return self.ops.take_highest(logits, plan.rows, self.newest)
        if draws.index is None:
            return self._draw(draws, logits, output_positions)
        assert greedy is not None and plan.greedy_rows is not None
        token_ids = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
        token_ids[greedy] = self.ops.take_highest(logits[greedy], plan.greedy_rows, self.newest)
        token_ids[draws.index] = self._draw(draws, logits[draws.index], output_positions[draws.index])
        return token_ids

    def _draw(self, draws: Draws, logits: torch.Tensor, output_positions: torch.Tensor) -> torch.Tensor:
        parameters = draws.temperature, draws.top_k, draws.top_p, draws.min_p, draws.candidates
        return self.ops.take_drawn(logits, draws.keys, output_positions, *parameters, draws.rows, self.newest)

    def _remember(self, plan: SamplePlan, token_ids: torch.Tensor) -> None:
        if plan.penalized is not None:
            part, counts = plan.penalized, self.state.counts
            self.logit_ops.count_tokens(token_ids, part.index, part.slots, counts.output, counts.seen)
        if plan.bad_words is not None:
            self.state.bad_words.append(plan.rows, token_ids.clamp(min=0))
