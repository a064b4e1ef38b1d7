"""The CPU platform: torch's own operators, chosen and combined for the host's processors."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from anychip.ops.op import Kernel, OpSpec
from anychip.plugin.contract import Capabilities, Memory
from anychip.runner import TorchPlatform
from anychip.runner.host_memory import host_memory
from anychip.weights.weight import Weight
from anychip_cpu.kernels import cpu_kernels
from anychip_cpu.linear import prepare_weight
from anychip_cpu.processor import has_bfloat16


class CpuPlatform(TorchPlatform):
    """The processors that this process may use, as one device."""

    @property
    def capabilities(self) -> Capabilities:
        """A step's budget is small: more tokens make no product faster here, and each delays the running requests."""
        return Capabilities(
            dtypes=("bfloat16", "float32") if has_bfloat16() else ("float32", "bfloat16"),
            block_sizes=(16, 32, 8, 64, 128),
            batched_tokens=512,
            memory_utilization=0.5,
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

    def kernels(self, spec: OpSpec) -> Mapping[str, Kernel]:
        """A kernel for every op."""
        return cpu_kernels()

    def prepare_weight(self, weight: Weight, out: Weight | None = None) -> Weight:
        """Pack for oneDNN; a reload packs anew and lets go of `out`."""
        return prepare_weight(weight)
