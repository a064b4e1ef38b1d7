"""How steps with long prompts are run: as graphs captured for one prompt or for any rows, or kernel by kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from anychip.engine.batch import Batch
from anychip.plugin.contract import KVPlan
from anychip.runner.captured import CapturedSteps
from anychip.runner.inputs import Computed, RunBatch
from anychip.runner.prepared import Prepared
from anychip_cuda.libraries import Library
from anychip_cuda.prompts import ROOM, first_taken, key_bytes
from anychip_cuda.recorded import recording

LONG = 4096
"""Tokens of the library's prompts from which its attention is worth launching the step kernel by kernel."""
SHORT = 256
"""Tokens of a step up to which Triton attends all of it."""
SEVERAL = 2048
"""Tokens of a step of several rows below which Triton attends all of it, too few to capture graphs for them."""
KEYS = (1, 2)
"""Graphs are captured for steps whose rows of several tokens have up to so many keys for each of them."""


@dataclass(frozen=True, slots=True)
class PromptSteps(Prepared):
    """Runs batches most of whose tokens a library attends in graphs captured for that, all others in the usual ones."""

    captured: CapturedSteps
    """The usual graphs, in which Triton attends all rows."""
    library: Library
    alone: CapturedSteps | None = None
    """Graphs of one fresh prompt that the library attends; None where its launches cannot be captured."""
    by_keys: Mapping[int, CapturedSteps] = field(default_factory=dict)
    """Graphs of any rows, of which the library attends long prompts, by the most keys for each of their tokens."""

    def __call__(self, batch: Batch, greedy: bool) -> Computed:
        """See `RunBatch`."""
        return self._chosen(batch)(batch, greedy)

    def prepare(self, batch: Batch, greedy: bool) -> bool:
        """See `Prepared`."""
        steps = self._chosen(batch)
        return isinstance(steps, Prepared) and steps.prepare(batch, greedy)

    def _chosen(self, batch: Batch) -> RunBatch:
        if batch.num_tokens <= SHORT:
            return self.captured
        row = max(first_taken(batch.query_start, batch.seq_lens, self.library), batch.num_single)
        tokens, keys = batch.num_tokens - int(batch.query_start[row]), int(batch.seq_lens[row:].sum())
        if 2 * tokens < batch.num_tokens:
            return self.captured
        if self.alone is not None and batch.num_rows == 1 and tokens == keys:
            return self.alone
        if batch.num_tokens < SEVERAL:
            return self.captured
        several = batch.num_tokens - batch.num_single
        for most, steps in self.by_keys.items():
            if most * several >= keys:
                return steps
        return self.captured.otherwise if tokens >= LONG else self.captured


def prompt_steps(captured: RunBatch, plan: KVPlan, library: Library | None) -> RunBatch:
    """`captured`, but steps with long prompts run as `library` can; unchanged without one or if nothing is captured."""
    if library is None or not isinstance(captured, CapturedSteps):
        return captured
    specs = [group.spec for group in plan.groups]
    if not library.capturable or any(spec.window for spec in specs):
        return PromptSteps(captured, library)
    most, any_rows = captured.sizes.tokens[-1], replace(captured.sizes, single=())
    alone = captured.others(partial(recording, keys=0), replace(any_rows, rows=(2,), beside=()))
    by_keys = {
        keys: captured.others(partial(recording, keys=keys), any_rows)
        for keys in KEYS
        if all(key_bytes(keys * most, spec) <= ROOM for spec in specs)
    }
    return PromptSteps(captured, library, alone, by_keys)
