"""How steps with long prompts are run: recorded for one prompt, recorded for any rows, or kernel by kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from anychip.engine.batch import Batch
from anychip.plugin.contract import KVPlan
from anychip.runner.captured import CapturedSteps
from anychip.runner.inputs import Computed, RunBatch
from anychip_cuda.libraries import Library
from anychip_cuda.prompts import ROOM, first_taken, key_bytes
from anychip_cuda.recorded import recording

LONG = 4096
"""Tokens of a step's prompts from which an attention that cannot be recorded is worth more than the recording."""
SHORT = 256
"""Tokens of a step up to which all goes to Triton's attention."""
SEVERAL = 2048
"""The same where there are several rows: fewer tokens are not worth recordings of their own."""
KEYS = (1, 2)
"""Keys for each token of rows with several, at most, for which a step is recorded."""


@dataclass(frozen=True, slots=True)
class PromptSteps:
    """Runs batches most of whose tokens are a library's in ways of their own, all others as they are captured."""

    captured: CapturedSteps
    library: Library
    recorded: Mapping[int, CapturedSteps]
    """By keys for each token; 0: one fresh prompt."""

    def __call__(self, batch: Batch, greedy: bool) -> Computed:
        """See `RunBatch`."""
        return self._way(batch)(batch, greedy)

    def _way(self, batch: Batch) -> RunBatch:
        if batch.num_tokens <= SHORT:
            return self.captured
        row = max(first_taken(batch.query_start, batch.seq_lens, self.library), batch.num_single)
        tokens, keys = batch.num_tokens - int(batch.query_start[row]), int(batch.seq_lens[row:].sum())
        if 2 * tokens < batch.num_tokens:
            return self.captured
        if self.recorded and batch.num_rows == 1 and tokens == keys:
            return self.recorded[0]
        several = batch.num_tokens - batch.num_single
        ways = (steps for each, steps in self.recorded.items() if each * several >= keys)
        if batch.num_tokens < SEVERAL:
            return self.captured
        return next(ways, self.captured.otherwise if tokens >= LONG else self.captured)


def prompt_steps(captured: RunBatch, plan: KVPlan, library: Library | None) -> RunBatch:
    """With ways of their own for long prompts, where there is a library for them."""
    if library is None or not isinstance(captured, CapturedSteps):
        return captured
    specs = [group.spec for group in plan.groups]
    if not library.captures or any(spec.window for spec in specs):
        return PromptSteps(captured, library, {})
    most, recorded = captured.sizes.tokens[-1], {0: _recorded(captured, 0)}
    for keys in KEYS:
        if all(key_bytes(keys * most, spec) <= ROOM for spec in specs):
            recorded[keys] = _recorded(captured, keys)
    return PromptSteps(captured, library, recorded)


def _recorded(captured: CapturedSteps, keys: int) -> CapturedSteps:
    sizes = replace(captured.sizes, single=())
    sizes = sizes if keys else replace(sizes, rows=(2,), beside=())
    return captured.others(partial(recording, keys=keys), sizes)
