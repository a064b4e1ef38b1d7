"""The CPU platform: native kernels where their library is there, torch's own operators elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from anychip.config import EngineConfig
from anychip.ops.op import Kernel, OpSpec
from anychip.plugin.contract import Capabilities, KVPlan, Memory, Pending, Ready, Runner
from anychip.runner import TorchPlatform
from anychip.runner.host_memory import host_memory
from anychip.runner.inputs import Forward, RunBatch
from anychip.weights.weight import Weight
from anychip_cpu.experts import prepare_experts
from anychip_cpu.kernels import cpu_kernels
from anychip_cpu.linear import prepare_weight
from anychip_cpu.native.kernels import native_kernels
from anychip_cpu.native.library import NONE, Search, build_missing
from anychip_cpu.native.linear import NativeLinear
from anychip_cpu.native.program import NotedSteps
from anychip_cpu.native.stack import lower_stack
from anychip_cpu.pages import Pages
from anychip_cpu.processor import has_bfloat16

if TYPE_CHECKING:
    import numpy.typing as npt


class CpuPlatform(TorchPlatform):
    """The processors that this process may use, as one device, with the native library of `search`."""

    def __init__(self, search: Search = NONE) -> None:
        self._native = search
        self._pages = Pages()

    @property
    def capabilities(self) -> Capabilities:
        """A step's budget is small: more tokens make no product faster here, and each delays the running requests."""
        return Capabilities(
            token_masks=True,
            dtypes=("bfloat16", "float32") if has_bfloat16() or self._native.library else ("float32", "bfloat16"),
            block_sizes=(16, 32, 8, 64, 128),
            batched_tokens=512,
            memory_utilization=0.5,
            kv_cache_dtypes=("int8",),
            weight_formats=("int4", "int8", "kquant") if self._native.library else (),
            collective_backend="gloo",
        )

    @property
    def device(self) -> torch.device:
        """The host."""
        return torch.device("cpu")

    def memory(self) -> Memory:
        """See `host_memory`."""
        return host_memory()

    def synchronize(self) -> None:
        """Nothing runs behind our back."""
        return

    def runner(self, config: EngineConfig) -> Runner:
        """See `TorchPlatform.runner`; a native library that is missing is built meanwhile, and not waited for."""
        self._native = build_missing(self._native, config.cache_path / "native")
        return super().runner(config)

    def notes(self) -> tuple[str, ...]:
        """Whether native kernels run."""
        return (self._native.note,) if self._native.note else ()

    def kernels(self, spec: OpSpec) -> Mapping[str, Kernel]:
        """A kernel for every op."""
        library = self._native.library
        return {**cpu_kernels(), **(native_kernels(library, spec) if library else {})}

    def lower(self, module: nn.Module, spec: OpSpec) -> nn.Module | None:
        """A decoder stack becomes one native call."""
        library = self._native.library
        return lower_stack(module, spec, library) if library else None

    def compile(self, step: Forward, plan: KVPlan) -> RunBatch:
        """Steps as native programs; from now on there is time to join the pages of weights."""
        self._pages.join_later()
        library = self._native.library
        return NotedSteps(step, plan, self.send, library) if library else super().compile(step, plan)

    def send(self, array: npt.NDArray[Any], out: torch.Tensor | None = None) -> torch.Tensor:
        """A copy, in fewer words than torch's."""
        return torch.from_numpy(array.copy()) if out is None else super().send(array, out)

    def fetch(self, tensor: torch.Tensor) -> Pending[npt.NDArray[Any]]:
        """A copy: it is there already."""
        return Ready(tensor.numpy().copy())

    def prepare_weight(self, weight: Weight, out: Weight | None = None) -> Weight:
        """Pack for the native kernels or for oneDNN; a reload packs anew and lets go of `out`."""
        library = self._native.library
        prepare = NativeLinear(library, self._pages).prepare_weight if library else prepare_weight
        return prepare(weight) if weight.matrices == 1 else prepare_experts(weight, prepare)
