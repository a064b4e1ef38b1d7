"""The sampler: logits of the rows that sample -> one token each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from anychip.engine.batch import Int32, Masks
from anychip.sample.logprobs import DeviceLogprobs, score
from anychip.sample.masks import add_bias, forbid, keep_allowed, keep_only
from anychip.sample.op import SampleOps
from anychip.sample.penalties import apply_penalties
from anychip.sample.plan import Draws, SamplePlan, make_plan
from anychip.sample.state import SamplerState


@dataclass(frozen=True, slots=True)
class Sampled:
    """Tokens of S rows on the device; ids below 0 are NOT_FINITE or NOTHING_LEFT."""

    token_ids: torch.Tensor
    logprobs: DeviceLogprobs | None


class Sampler:
    """Samples for the rows in `state`, with the ops a platform brought, and notes each row's token in `newest` [R]."""

    def __init__(self, state: SamplerState, ops: SampleOps, newest: torch.Tensor) -> None:
        self.state = state
        self.ops = ops
        self.newest = newest
        self._plan: SamplePlan | None = None

    def plan(self, rows: Int32) -> SamplePlan:
        """The plan for `rows` [S]; the last one again while nothing has changed."""
        if self._plan is None or not self._plan.serves(rows, self.state.version):
            self._plan = make_plan(self.state, rows)
        return self._plan

    def sample(
        self, plan: SamplePlan, logits: torch.Tensor, positions: torch.Tensor, masks: Masks | None = None
    ) -> Sampled:
        """Choose a token for each row of the plan and note it in the rows' histories.

        logits [S, V] are overwritten; positions [S] are those of the tokens to come. Rows of `masks` sample only what
        these allow.
        """
        raw = logits
        output_positions = positions - plan.prompt_length
        if plan.edits_logits or masks is not None:
            # Log-probabilities are of the model's own logits, so those must survive.
            keep = plan.num_logprobs is not None or logits.dtype != torch.float32
            logits = self._edit(plan, logits.to(torch.float32, copy=keep), output_positions)
        if masks is not None:
            self._mask(plan, logits, masks)
        token_ids = self._choose(plan, logits, output_positions)
        self._remember(plan, token_ids)
        logprobs = None if plan.num_logprobs is None else score(raw, token_ids, plan.num_logprobs)
        return Sampled(token_ids, logprobs)

    def _edit(self, plan: SamplePlan, logits: torch.Tensor, output_positions: torch.Tensor) -> torch.Tensor:
        if plan.allowed is not None and plan.restricted is not None:
            keep_only(logits, plan.allowed, plan.restricted)
        if plan.bad_words is not None:
            forbid(logits, plan.bad_words.entries, plan.bad_words.matches(self.state.bad_words.tails[plan.rows]))
        if plan.stop is not None:
            forbid(logits, plan.stop, (output_positions < plan.min_tokens)[plan.stop.index])
        if plan.bias is not None:
            add_bias(logits, plan.bias)
        if plan.penalized is not None:
            part, counts = plan.penalized, self.state.counts
            logits[part.index] = apply_penalties(
                logits[part.index],
                counts.output[part.slots],
                counts.seen[part.slots],
                part.presence,
                part.frequency,
                part.repetition,
            )
        return logits

    def _mask(self, plan: SamplePlan, logits: torch.Tensor, masks: Masks) -> None:
        order = np.argsort(plan.host_rows)
        index = order[np.searchsorted(plan.host_rows, masks.rows, sorter=order)]
        bits = self.state.send(masks.bits)
        if len(index) == len(logits) and (index[1:] > index[:-1]).all():
            keep_allowed(logits, bits)
        else:
            at = self.state.send(index)
            logits[at] = keep_allowed(logits[at], bits)

    def _choose(self, plan: SamplePlan, logits: torch.Tensor, output_positions: torch.Tensor) -> torch.Tensor:
        draws = plan.draws
        if draws is None:
            return self.ops.take_highest(logits, plan.rows, self.newest)
        if draws.index is None:
            return self._draw(draws, logits, output_positions, plan.rows)
        assert plan.greedy is not None
        token_ids = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
        token_ids[plan.greedy] = self.ops.take_highest(logits[plan.greedy], plan.rows[plan.greedy], self.newest)
        drawn = self._draw(draws, logits[draws.index], output_positions[draws.index], plan.rows[draws.index])
        token_ids[draws.index] = drawn
        return token_ids

    def _draw(
        self, draws: Draws, logits: torch.Tensor, output_positions: torch.Tensor, rows: torch.Tensor
    ) -> torch.Tensor:
        parameters = draws.temperature, draws.top_k, draws.top_p, draws.min_p, draws.candidates
        return self.ops.take_drawn(logits.float(), draws.keys, output_positions, *parameters, rows, self.newest)

    def _remember(self, plan: SamplePlan, token_ids: torch.Tensor) -> None:
        if plan.penalized is None and plan.bad_words is None:
            return
        valid = token_ids.clamp(min=0)
        if plan.penalized is not None:
            self.state.counts.count(plan.penalized.slots, valid[plan.penalized.index])
        if plan.bad_words is not None:
            self.state.bad_words.append(plan.rows, valid)
