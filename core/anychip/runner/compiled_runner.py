"""The step loop of a device that compiles each shape: all are compiled before serving, and none while it serves.

The forward pass and the highest logit are the device's; whatever else sampling asks for, whose shapes differ from step
to step, is done on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from anychip.config import EngineConfig
from anychip.engine.batch import Batch, BlockCopy
from anychip.models.layers import Linear
from anychip.models.model import Model
from anychip.models.pooled import PooledModel
from anychip.plugin.contract import KVPlan, ModelInfo, ModelSource, Pending, Progress, Step
from anychip.runner.compiled import HOST, CompiledSteps, Shape, Uses, to_host
from anychip.runner.compiler import CompiledWhileServingError, Compiler, Outputs, Program
from anychip.runner.inputs import DeviceBatch
from anychip.runner.platform import Fetch
from anychip.runner.step import MAX_SCORED, Launched
from anychip.runner.torch_runner import TorchRunner
from anychip.sample.choose import greedy, sample
from anychip.sample.op import Greedy, Sample, SampleOps, TakeDrawn, TakeHighest
from anychip.sample.take import take_drawn, take_highest

if TYPE_CHECKING:
    import numpy.typing as npt

    from anychip.runner.platform import TorchPlatform

Shapes = Callable[[KVPlan], Sequence[Shape]]
MAX_COPIES = 16
"""Blocks copied at once."""


@dataclass(frozen=True, slots=True)
class _OnHost:
    """Choosing tokens by the references."""

    greedy: Greedy = greedy
    sample: Sample = sample


@dataclass(frozen=True, slots=True)
class HostChoice:
    """Choosing tokens on the host."""

    take_highest: TakeHighest
    take_drawn: TakeDrawn


HOST_CHOICE = HostChoice(partial(take_highest, _OnHost()), partial(take_drawn, _OnHost()))


class CompiledRunner(TorchRunner):
    """Runs on a platform whose device is that of `compiler`; `shapes` lists what steps of a plan are padded to."""

    def __init__(self, platform: TorchPlatform, config: EngineConfig, compiler: Compiler, shapes: Shapes) -> None:
        super().__init__(platform, config)
        self._compiler, self._shapes = compiler, shapes
        self._steps: CompiledSteps | None = None
        self._scoring: Program | None = None
        self._copying: tuple[Program, ...] = ()
        self._progress: Progress = _silent
        self._compiled: int | None = None
        """Executables after the warm-up; None before."""

    def load(self, source: ModelSource, progress: Progress) -> ModelInfo:
        """See `Runner.load`. Weights are put together on the host, then moved."""
        self._progress = progress
        info = super().load(source, progress)
        place(self.model, self.platform.device)
        self._compiler.synchronize()
        return info

    def submit(self, batch: Batch) -> Step:
        """See `Runner.submit`. Raises `CompiledWhileServingError` where the device had to compile."""
        step = super().submit(batch)
        if self._compiled is not None and self._compiler.compilations() != self._compiled:
            raise CompiledWhileServingError(
                f"a step of {batch.num_tokens} tokens in {batch.num_rows} rows was compiled while serving"
            )
        return step

    def compilations(self) -> int:
        """See `Runner.compilations`."""
        return self._compiled or 0

    @property
    def _workplace(self) -> torch.device:
        return HOST

    @property
    def _choice(self) -> SampleOps:
        return HOST_CHOICE

    def _send(self, array: npt.NDArray[Any], out: torch.Tensor | None = None) -> torch.Tensor:
        return to_host(array, out)

    def _fetch(self, tensor: torch.Tensor) -> Pending[npt.NDArray[Any]]:
        return Fetch(tensor)

    def _launch(self, batch: Batch, greedy: bool) -> Launched:
        assert self._steps is not None, "start() comes first"
        return self._steps.launch(batch, greedy, self._texts)

    def _choose(self, logits: torch.Tensor, inputs: DeviceBatch) -> torch.Tensor:
        assert self._ops is not None, "load() comes first"
        assert self._plan is not None, "start() comes first"
        nobody = logits.new_zeros(self._plan.max_num_seqs + 1, dtype=torch.int32)  # the host notes it
        return self._ops.take_highest(logits, inputs.sampled_rows, nobody)

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[M, V] on the host, of as few hidden states [M, H] as may be scored at once."""
        assert self._scoring is not None, "start() comes first"
        padded = hidden.new_zeros(MAX_SCORED, hidden.shape[1])
        padded[: len(hidden)] = hidden
        return self._scoring(padded.to(self.platform.device))[0].cpu()[: len(hidden)]

    @torch.inference_mode()
    def _prepare(self, plan: KVPlan) -> None:
        super()._prepare(plan)
        self._compiled = None
        uses = Uses(texts=self._texts is not None, logits=self._pooler is None)
        self._steps = CompiledSteps(self._forward, plan, self._shapes(plan), self._compiler, self.platform.send, uses)
        self._scoring = self._compiler.compile(self._scored)
        self._copying = tuple(self._compiler.compile(self._copied(group.layers)) for group in plan.groups)

    def _start(self, plan: KVPlan) -> None:
        self._prepare(plan)
        self._warm_up()
        self._reset_rows(plan)

    @torch.inference_mode()
    def _warm_up(self) -> None:
        assert self._steps is not None, "prepared before"
        self._steps.warm_up(self._progress)
        if self._pooler is None:
            self._logits(torch.zeros(1, self.model.hidden_size, dtype=self._dtype))
        for copy in self._copying:
            copy(self.platform.send(np.zeros((MAX_COPIES, 2), np.int64)))
        self.platform.synchronize()
        self._compiled = self._compiler.compilations()

    def _scored(self, hidden: torch.Tensor) -> Outputs:
        return (self.model.logits(hidden),)

    def _copied(self, layers: Sequence[int]) -> Program:
        """Copies pairs of blocks [C, 2] in some layers' caches."""

        def copy(pairs: torch.Tensor) -> Outputs:
            assert self._ops is not None, "load() comes first"
            for layer in layers:
                self._ops.copy_blocks(self._caches[layer], *pairs.unbind(1))
            return ()

        return copy

    def _copy_blocks(self, copies: tuple[BlockCopy, ...]) -> None:
        for number, copy in enumerate(self._copying):
            pairs = [(each.source, each.target) for each in copies if each.group == number]
            for first in range(0, len(pairs), MAX_COPIES):
                padded = np.zeros((MAX_COPIES, 2), np.int64)  # the null block onto itself
                some = pairs[first : first + MAX_COPIES]
                padded[: len(some)] = some
                copy(self.platform.send(padded))


def _silent(what: str, done: int, total: int) -> None:
    return


@torch.inference_mode()
def place(model: Model, device: torch.device) -> None:
    """Move a model's weights; those that share memory still do. The head of a pooled model stays on the host."""
    head = model.head if isinstance(model, PooledModel) else None
    kept = set() if head is None else {id(module) for module in head.modules()}
    moved: dict[tuple[int, tuple[int, ...]], torch.Tensor] = {}

    def there(tensor: torch.Tensor) -> torch.Tensor:
        key = tensor.data_ptr(), tuple(tensor.shape)
        if key not in moved:
            moved[key] = tensor.detach().to(device)
        return moved[key]

    for module in model.modules():
        if id(module) in kept:
            continue
        for name, parameter in module.named_parameters(recurse=False):
            module.register_parameter(name, torch.nn.Parameter(there(parameter), requires_grad=False))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, there(buffer))
        if isinstance(module, Linear) and module.weight.values is not None:
            module.weight = replace(module.weight, values=there(module.weight.values))
