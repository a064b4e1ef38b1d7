"""Steps on a device that compiles each shape: a fixed list of them, to which batches are padded on the host.

A step brings its arrays in one copy, those of `anychip.runner.padding` at the beginning:

    padding's arrays | text_ids [T], of a model that tells texts apart | table [R, B] | table of the next KV group ..

It leaves hidden states [T, H], and where the model generates, logits [R, V] after each row's last token, with the
highest one's token [R]. Only what is wanted of these travels to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from anychip.engine.batch import Batch
from anychip.plugin.contract import KVPlan, Progress
from anychip.runner.compiler import Compiler, Outputs, Program
from anychip.runner.inputs import Computed, DeviceBatch, Forward, aligned, upload
from anychip.runner.padding import Padding
from anychip.runner.pooler import TextStarts
from anychip.runner.step import Launched
from anychip.sample.send import Send, plain_send

COMPILING = "compiling"
HOST = torch.device("cpu")
to_host = plain_send(HOST)


class Shape(NamedTuple):
    """Up to `tokens` tokens in `rows` rows with `blocks` columns in their tables; one token a row where both agree."""

    tokens: int
    rows: int
    blocks: int

    def holds(self, batch: Batch, blocks: int) -> bool:
        """Whether a batch can be padded to it. Where rows bring several tokens, padding tokens need a row."""
        single = batch.num_single == batch.num_rows
        rows = batch.num_rows if single else batch.num_rows + 1
        fits = batch.num_tokens <= self.tokens and rows <= self.rows and blocks <= self.blocks
        return fits and single == (self.tokens == self.rows)


class Uses(NamedTuple):
    """What a model takes and gives."""

    texts: bool
    """It reads which text a token is of."""
    logits: bool
    """It generates."""


class CompiledSteps:
    """Runs every batch in the smallest of some shapes that holds it."""

    def __init__(
        self, step: Forward, plan: KVPlan, shapes: Sequence[Shape], compiler: Compiler, send: Send, uses: Uses
    ) -> None:
        self._step, self._plan, self._compiler, self._send, self._uses = step, plan, compiler, send, uses
        self.shapes = sorted(shapes)
        self._programs: dict[Shape, _ShapedStep] = {}

    def warm_up(self, progress: Progress) -> None:
        """Compile every shape by a step of nothing but padding."""
        for done, shape in enumerate(self.shapes):
            progress(COMPILING, done, len(self.shapes))
            self._program(shape).run_padding()
            self._compiler.synchronize()
        progress(COMPILING, len(self.shapes), len(self.shapes))

    def launch(self, batch: Batch, greedy: bool, texts: TextStarts | None) -> Launched:
        """Start a step; its inputs are on the host too, for whoever samples there."""
        inputs = upload(batch, to_host, greedy)
        text_ids = None if texts is None else texts.text_ids(inputs)
        return _Left(inputs, self._program(self._shape(batch)).run(batch, text_ids)).computed

    def _shape(self, batch: Batch) -> Shape:
        blocks = -(-int(batch.seq_lens.max()) // self._plan.block_size)
        fitting = (shape for shape in self.shapes if shape.holds(batch, blocks))
        shape = next(fitting, None)
        assert shape is not None, f"no shape holds {batch.num_tokens} tokens in {batch.num_rows} rows, {blocks} blocks"
        return shape

    def _program(self, shape: Shape) -> _ShapedStep:
        if shape not in self._programs:
            self._programs[shape] = _ShapedStep(shape, self._step, self._plan, self._compiler, self._send, self._uses)
        return self._programs[shape]


class _ShapedStep:
    """One shape's program."""

    def __init__(self, shape: Shape, step: Forward, plan: KVPlan, compiler: Compiler, send: Send, uses: Uses) -> None:
        self._shape, self._step, self._send = shape, step, send
        self._padding = Padding(shape.tokens, shape.rows, plan.max_num_seqs)
        self._groups, self._longest = len(plan.groups), min(shape.blocks * plan.block_size, plan.max_model_len)
        self._tables_at = self._padding.size + (aligned(shape.tokens) if uses.texts else 0)
        self._size = self._tables_at + self._groups * shape.rows * shape.blocks
        self._uses = uses
        self._program: Program = compiler.compile(self._traced)

    def run_padding(self) -> None:
        """A step that brings nothing."""
        packed = np.zeros(self._size, np.int32)
        self._padding.pack(packed)
        self._program(self._send(packed))

    def run(self, batch: Batch, text_ids: torch.Tensor | None) -> Outputs:
        """Start a batch that fits; what it leaves."""
        packed = np.zeros(self._size, np.int32)
        self._padding.fill(batch)
        self._padding.pack(packed)
        if text_ids is not None:
            packed[self._padding.size :][: batch.num_tokens] = text_ids.numpy()
        tables = packed[self._tables_at :].reshape(self._groups, self._shape.rows, self._shape.blocks)
        for target, table in zip(tables, batch.block_tables, strict=True):
            # Columns behind the longest sequence's are padding of the batch's own.
            target[: len(table), : table.shape[1]] = table[:, : self._shape.blocks]
        return self._program(self._send(packed))

    def _traced(self, packed: torch.Tensor) -> Outputs:
        tables = packed[self._tables_at :].view(self._groups, self._shape.rows, self._shape.blocks)
        inputs = self._padding.inputs(packed, tables.unbind(), self._longest)
        texts = packed[self._padding.size :][: self._shape.tokens] if self._uses.texts else None
        sampled_at = inputs.sampled_at if self._uses.logits else inputs.scored_at
        computed = self._step(replace(inputs, pending=False, text_ids=texts, sampled_at=sampled_at, states=True))
        if computed.logits is None or computed.chosen is None:
            return (computed.hidden,)
        return computed.hidden, computed.logits, computed.chosen


@dataclass(frozen=True, slots=True)
class _Left:
    """What a step leaves on the device, and its inputs on the host."""

    inputs: DeviceBatch
    outputs: Outputs

    def computed(self, masked: bool) -> Computed:
        """What is wanted of it, on the host."""
        inputs, (hidden, *rest) = self.inputs, self.outputs
        states = len(inputs.scored_at) > 0 or not rest
        host_hidden = hidden.cpu()[: len(inputs.token_ids)] if states else torch.empty(0)
        if not rest or not len(inputs.sampled_at):
            return Computed(inputs, host_hidden, None, None)
        logits, chosen = rest
        at = torch.bucketize(inputs.sampled_at, inputs.ragged.start[1:], right=True)
        if inputs.greedy and not masked:
            return Computed(inputs, host_hidden, None, chosen.cpu()[at])
        return Computed(inputs, host_hidden, logits.cpu()[at], None)
