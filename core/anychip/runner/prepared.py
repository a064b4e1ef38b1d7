"""Graphs of steps that are captured before a request needs them, in moments without work, the likeliest first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np
import torch

from anychip.engine.batch import Batch, RowSampling
from anychip.plugin.contract import KVPlan, Memory
from anychip.runner.inputs import Computed, RunBatch
from anychip.runner.warmup import fresh_batch

SPARE = 50
"""Nothing is made ahead when less than one part in so many of the device's memory is free."""
STEP = 64
"""Tokens by which the prompts of likely steps differ."""
APART = 8
"""Rows by which likely decoding steps differ above `MORE`."""
FEW, MORE = 16, 64
"""Decoding rows beside which prompts come, on a server with little to do and with some."""
LONG = 2048
"""Tokens of prompts above which a step itself takes longer than capturing it."""


class Prepared(ABC):
    """Runs batches by what is made once for each shape, such as a graph: ahead, or when a batch first has it."""

    @abstractmethod
    def __call__(self, batch: Batch, greedy: bool) -> Computed:
        """See `RunBatch`."""

    @abstractmethod
    def prepare(self, batch: Batch, greedy: bool) -> bool:
        """Make what such a batch would run by, and run nothing; False where it is there, or none is needed."""


class LikelySteps:
    """What is still to be made for the steps that a server is likely to run."""

    def __init__(self, run: RunBatch, plan: KVPlan, memory: Callable[[], Memory]) -> None:
        self._run = run
        self._left = likely_batches(plan)
        self._memory = memory

    @torch.inference_mode()
    def prepare_next(self) -> bool:
        """Make what the next of them needs, unless memory is short; False if nothing was made."""
        run = self._run
        if not isinstance(run, Prepared) or self._short:
            return False
        return any(run.prepare(batch, greedy) for batch, greedy in self._left)

    @property
    def _short(self) -> bool:
        memory = self._memory()
        return memory.free * SPARE < memory.total


def likely_batches(plan: KVPlan) -> Iterator[tuple[Batch, bool]]:
    """Batches of likely steps, the likeliest first, each with and without `greedy` of `RunBatch`; shapes may repeat."""
    table = np.zeros((1, 1), np.int32)
    for lengths in likely_lengths(plan):
        batch = fresh_batch(lengths, table.repeat(len(lengths), 0), len(plan.groups), RowSampling(seed=0))
        yield batch, False
        yield batch, True


def likely_lengths(plan: KVPlan) -> Iterator[list[int]]:
    """Tokens of each row of a step: decoding rows, prompts alone, prompts beside such rows, more decoding rows.

    Prompts come one at a time and two at a time, for which other graphs may be captured.
    """
    rows, tokens = plan.max_num_seqs, min(plan.max_num_batched_tokens, plan.max_model_len)
    yield from ([1] * count for count in range(1, min(MORE, rows) + 1))
    for beside in (0, FEW, MORE):
        for length in range(STEP, min(LONG, tokens - beside) + 1, STEP):
            for prompts in range(1, min(2, rows - beside) + 1):
                yield [1] * beside + [length // prompts] * prompts
    yield from ([1] * count for count in (*range(MORE + APART, rows, APART), rows))
