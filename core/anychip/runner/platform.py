"""The wide door to the engine: name a torch device, and override what your chip does better."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from anychip.config import EngineConfig
from anychip.ops.op import Kernel, OpSpec
from anychip.ops.parts import Ops
from anychip.plugin.communicator import Communicator
from anychip.plugin.contract import Capabilities, KVPlan, Pending, Platform, Runner
from anychip.runner.host_pool import start_pool
from anychip.runner.inputs import Forward, RunBatch, uploading
from anychip.sample.send import plain_send
from anychip.weights.weight import Weight

if TYPE_CHECKING:
    import numpy.typing as npt


class Fetch(Pending["npt.NDArray[Any]"]):
    """A tensor copied to the host when it is asked for."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def result(self) -> npt.NDArray[Any]:
        """The tensor as an array; waits for the device."""
        array: npt.NDArray[Any] = np.asarray(self._tensor.cpu().numpy())
        return array


class TorchPlatform(Platform):
    """A torch device. `device`, `memory()` and `synchronize()` are enough to serve."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device of this rank."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; the default runner honours masks on any torch device, the reference keeps int8 caches."""
        return Capabilities(token_masks=True, kv_cache_dtypes=("int8", "fp8"))

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the device has done all that was submitted."""

    def kernels(self, spec: OpSpec) -> Mapping[str, Kernel]:
        """Implementations by op name; an op that is missing runs by its reference."""
        return {}

    def choices(self, spec: OpSpec) -> Mapping[str, TorchPlatform]:
        """By name, this platform with fixed what `kernels` chooses for a model, as by timing: the kit tries all."""
        return {}

    def notes(self) -> tuple[str, ...]:
        """Lines for the start-up log, once a model is loaded: which library is in use."""
        return ()

    def lower(self, module: nn.Module, spec: OpSpec) -> nn.Module | None:
        """A faster module for `module`, or None to keep it. Offered from the root down, weights loaded."""
        return None

    def prepare_weight(self, weight: Weight, out: Weight | None = None) -> Weight:
        """Repack a weight for this chip's GEMM; into `out` for a reload. The bound `linear` must read the result."""
        return weight

    def allocate_kv(self, plan: KVPlan, ops: Ops) -> tuple[Any, ...]:
        """One cache a layer, in order of layers."""
        caches = {
            layer: ops.new_cache(group.spec, group.num_blocks, plan.block_size, self.device)
            for group in plan.groups
            for layer in group.layers
        }
        return tuple(caches[layer] for layer in sorted(caches))

    def send(self, array: npt.NDArray[Any], out: torch.Tensor | None = None) -> torch.Tensor:
        """Copy an array to the device, into `out` if given, keeping none of it; better without anyone waiting."""
        return plain_send(self.device)(array, out)

    def fetch(self, tensor: torch.Tensor) -> Pending[npt.NDArray[Any]]:
        """Start copying a result to the host; a device that can, does so without anyone waiting."""
        return Fetch(tensor)

    def compile(self, step: Forward, plan: KVPlan) -> RunBatch:
        """How a batch is run, say by captured graphs; by default `step` on an upload. Called once caches are there."""
        return uploading(step, self.send)

    def communicator(self, group: Sequence[int]) -> Communicator:
        """torch.distributed with the backend that the capabilities declare."""
        backend = self.capabilities.collective_backend
        if backend is None:
            return super().communicator(group)
        from anychip.parallel.communicator import TorchCommunicator

        return TorchCommunicator(group, backend)

    def runner(self, config: EngineConfig) -> Runner:
        """The default step loop."""
        from anychip.runner.torch_runner import TorchRunner

        start_pool(config)
        return TorchRunner(self, config)
