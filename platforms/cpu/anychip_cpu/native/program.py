"""Steps as programs: from token ids to the chosen tokens in one native call."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from anychip.engine.batch import SAMPLE, Batch
from anychip.log import logger
from anychip.plugin.contract import KVPlan
from anychip.runner.inputs import Computed, DeviceBatch, Forward, upload
from anychip.sample.send import Send
from anychip_cpu.native.compile import namespace
from anychip_cpu.native.library import Library
from anychip_cpu.native.notes import NotedCall, Notes

if TYPE_CHECKING:
    import numpy.typing as npt


class Program:
    """Noted calls in the library's hands. It keeps all that they refer to."""

    def __init__(self, library: Library, calls: Sequence[NotedCall], results: list[int]) -> None:
        ops = library.ops
        self._number: int = ops.new_program.default()
        weakref.finalize(self, ops.drop_program.default, self._number)
        for call in calls:
            ops.note_call.default(self._number, call.name, call.tensors, call.words, call.numbers)
        ops.end_program.default(self._number, results)
        self._run = ops.run_program.default
        self._library = library

    def __call__(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """What the calls leave on other inputs."""
        left: list[torch.Tensor] = self._run(self._number, inputs)
        return left

    def bind(self, inputs: list[torch.Tensor], chosen: torch.Tensor) -> None:
        """Have `run_bound` read `inputs` where they are, and write the tokens that it chooses to `chosen` [S] int32."""
        self._library.ops.bind_program.default(self._number, inputs, chosen)

    def run_bound(self) -> None:
        """Make the calls on what is bound. No tensor is made for it, and nothing of torch's own runs."""
        failure = self._library.run_bound(self._number)
        if failure is not None:
            raise RuntimeError(failure.decode())

    def left(self) -> list[torch.Tensor]:
        """What the last `run_bound` left."""
        left: list[torch.Tensor] = self._library.ops.program_left.default(self._number)
        return left


class Repeated:
    """A batch of rows that each take the highest logit, run again and again by a program: see `Computed.again`."""

    def __init__(self, program: Program, batch: Batch) -> None:
        self._program, self._batch = program, batch
        self._computed: Computed | None = None

    def __call__(self, masked: bool) -> Computed:
        """Run it on what its arrays hold now."""
        if self._computed is None:
            self._computed = self._bind()
        self._program.run_bound()
        if not masked:
            return self._computed
        hidden, logits, _ = self._program.left()
        return replace(self._computed, hidden=hidden, logits=logits, on_host=None)

    def _bind(self) -> Computed:
        inputs = upload(self._batch, _where_it_is, greedy=True, apart=True)
        chosen = np.zeros(self._batch.num_rows, np.int32)
        self._program.bind(_arrays(inputs), torch.from_numpy(chosen))
        return Computed(inputs, _NOTHING, on_host=chosen)


_NOTHING = torch.zeros(0)


@dataclass(frozen=True, slots=True)
class _Noted:
    """What became of a step that was watched, and why it is no program, if it is none."""

    computed: Computed
    calls: list[NotedCall]
    results: list[int]
    obstacle: str


@dataclass(frozen=True, slots=True)
class NotedSteps:
    """Runs batches by programs, of which there is one for each kind of step; others by `step`, an operator at a time.

    The first step of a kind is watched while it runs, and so is one of another size that nobody asked for: where both
    make the same calls, these do not depend on the batch but through its arrays.
    """

    step: Forward
    plan: KVPlan
    send: Send
    library: Library
    programs: dict[tuple[bool, ...], Program | None] = field(default_factory=dict)

    def __call__(self, batch: Batch, greedy: bool) -> Computed:
        """See `RunBatch`."""
        inputs = upload(batch, self.send, greedy, apart=True)
        if inputs.pending or len(inputs.scored_at) or len(inputs.pooled_at):
            return self.step(inputs)
        samples, everywhere = len(inputs.sampled_at) > 0, inputs.sampled_at.shape == inputs.token_ids.shape
        kind = greedy, samples, everywhere
        if kind not in self.programs:
            return self._first(kind, inputs)
        program = self.programs[kind]
        if program is None:
            return self.step(inputs)
        left: list[torch.Tensor | None] = [*program(_arrays(inputs)), None, None]
        hidden, logits, chosen = left[:3]
        assert hidden is not None, "every program leaves hidden states"
        again = Repeated(program, batch) if chosen is not None and everywhere else None
        return Computed(inputs, hidden, logits, chosen, again=again)

    def _first(self, kind: tuple[bool, ...], inputs: DeviceBatch) -> Computed:
        greedy, samples, everywhere = kind
        rows = 3 if len(inputs.rows) == 2 else 2
        other = self._watched(upload(_padding(self.plan, rows, samples, everywhere), self.send, greedy, apart=True))
        noted = self._watched(inputs)
        obstacle = noted.obstacle or other.obstacle or _difference(noted, other)
        if obstacle:
            logger.info("native steps: operator by operator, because of %s", obstacle)
        self.programs[kind] = None if obstacle else Program(self.library, noted.calls, noted.results)
        return noted.computed

    def _watched(self, inputs: DeviceBatch) -> _Noted:
        with Notes(namespace(self.library.variant), _arrays(inputs)) as notes:
            computed = self.step(inputs)
        left = (computed.hidden, computed.logits, computed.chosen)
        words = notes.words_of(tensor for tensor in left if tensor is not None)
        return _Noted(
            computed, notes.calls, words or [], notes.stranger or ("" if words else "a result of no operator")
        )


def _where_it_is(array: npt.NDArray[Any], out: torch.Tensor | None = None) -> torch.Tensor:
    """The same memory as a tensor."""
    assert out is None, "a batch that comes again is copied nowhere"
    return torch.from_numpy(array)


def _arrays(inputs: DeviceBatch) -> list[torch.Tensor]:
    """What differs from step to step."""
    fixed = (inputs.token_ids, inputs.positions, inputs.ragged.start, inputs.groups[0].seq_lens, inputs.rows)
    sampled = (inputs.newest, inputs.sampled_at, inputs.sampled_rows)
    return [*fixed, *sampled, *(group.block_table for group in inputs.groups)]


def _difference(one: _Noted, other: _Noted) -> str:
    if len(one.calls) != len(other.calls) or one.results != other.results:
        return "steps of two sizes that make different calls"
    differing = [a.name for a, b in zip(one.calls, other.calls, strict=True) if not a.repeats(b)]
    return f"arguments of {differing[0]} that differ from batch to batch" if differing else ""


def _padding(plan: KVPlan, rows: int, samples: bool, everywhere: bool) -> Batch:
    """A batch that leaves nothing behind: written to the null block, noted in the spare row behind the last."""
    lengths = np.ones(rows, np.int32)
    lengths[-1] += not everywhere
    start = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
    positions = np.zeros(start[-1], np.int32)
    positions[-1] = lengths[-1] - 1
    last = start[1:] - 1 if samples else start[:0]
    return Batch(
        step=0,
        token_ids=np.zeros(start[-1], np.int32),
        positions=positions,
        query_start=start,
        seq_lens=lengths,
        block_tables=(np.zeros((rows, 1), np.int32),) * len(plan.groups),
        rows=np.full(rows, plan.max_num_seqs, np.int32),
        logits_at=last,
        targets=np.full(len(last), SAMPLE, np.int32),
        num_single=rows if everywhere else rows - 1,
    )
