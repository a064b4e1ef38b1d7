"""A forward pass under way, and its result on the way to the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import anychip.plugin as core
from anychip_jax.model import logits
from anychip_jax.rows import bucket, padded
from anychip_jax.sampling import sample, score

if TYPE_CHECKING:
    from anychip_jax.runner import JaxRunner

AT_ONCE = 32  # prompt tokens whose logits are there together
BROKEN = "The model produced logits that are not finite numbers."


class JaxStep(core.Step, core.Pending[core.StepResult]):
    """What `finish` needs of the batch is copied at once; then it is the result as well."""

    def __init__(self, runner: JaxRunner, batch: core.Batch, hidden: Any) -> None:
        self.runner, self.hidden = runner, hidden
        rows = batch.rows[np.searchsorted(batch.query_start, batch.logits_at, side="right") - 1]
        columns = (rows, batch.logits_at, batch.positions[batch.logits_at] + 1, batch.targets)
        self.errors = runner.rows.refused(batch.rows.tolist())
        self.rows, self.at, self.positions = (column[batch.targets == core.SAMPLE] for column in columns[:3])
        self.scored = [column[batch.targets >= 0] for column in columns]

    def finish(self, late: core.Late | None = None) -> core.Pending[core.StepResult]:
        """See `Step.finish`."""
        known, self.chosen = self.runner.rows, ()
        self.count = max((known.requests[row].sampling.logprobs or 0 for row in self.rows.tolist()), default=0)
        if len(self.rows):
            masks = late.masks if late else None
            plan, *wants = known.plan(self.rows, self.positions, bucket(len(self.rows)), masks)
            known.state, *self.chosen = sample(known.state, self._logits(self.at), plan, *wants)
        self.scores = self._score(*self.scored)
        for array in jax.tree.leaves((self.chosen, self.scores)):
            array.copy_to_host_async()
        return self

    def _score(self, rows: Any, at: Any, positions: Any, targets: Any) -> list[Any]:
        """Prompt tokens, a few at a time as their logits are large."""
        asked = (self.runner.rows.requests[row].sampling.prompt_logprobs or 0 for row in set(rows.tolist()))
        count, parts = max(asked, default=0), [slice(first, first + AT_ONCE) for first in range(0, len(at), AT_ONCE)]
        return [score(self._logits(at[part]), padded(targets[part], bucket(len(at[part]))), count) for part in parts]

    def _logits(self, at: Any) -> jax.Array:
        return logits(self.runner.shape, self.runner.weights, self.hidden, padded(at, bucket(len(at))))

    def result(self) -> core.StepResult:
        """Wait, and sort out the rows that failed."""
        rows, _, positions, _ = self.scored
        prompt = _logprobs(self.scores, np.ones(len(rows), bool)) if self.scores else None
        scores = core.PromptLogprobs(rows, positions, prompt) if prompt else None
        if not len(self.rows):
            return core.StepResult(prompt_logprobs=scores, errors=self.errors)
        tokens, highest = (np.asarray(part)[: len(self.rows)] for part in self.chosen[:2])
        for row, value in zip(self.rows.tolist(), highest.tolist(), strict=True):
            if not np.isfinite(value):
                self.errors[row] = core.NOTHING_ALLOWED if value == -np.inf else BROKEN
        good = ~np.isin(self.rows, list(self.errors))
        logprobs = None if self.chosen[2] is None else _logprobs([self.chosen[2]], good, self.count + 1)
        start = np.arange(good.sum() + 1, dtype=np.int32)
        return core.StepResult(self.rows[good], start, tokens[good], logprobs, scores, None, self.errors)


def _logprobs(parts: list[Any], good: Any, columns: int | None = None) -> core.Logprobs:
    """Of the good ones of N tokens, which come in parts; the last part is padded."""
    ids, values, ranks = (np.concatenate(column)[: len(good)][good] for column in zip(*parts, strict=True))
    return core.Logprobs(ids[:, :columns], values[:, :columns], ranks.astype(np.int32))
