"""A platform whose kernels run in Triton's interpreter, on the host."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from anychip.ops.op import Kernel, OpSpec
from anychip.plugin.contract import Capabilities, Memory
from anychip.runner.host_memory import host_memory
from anychip.runner.platform import TorchPlatform
from anychip.triton.chip import Chip
from anychip.triton.provider import TritonKernels
from anychip.triton.tuning import Tuning

PROCESSORS = 6
"""Few, so that short contexts are cut too."""


class InterpretedPlatform(TorchPlatform):
    """In float32, whose tolerance is the tightest; what the interpreter makes of bfloat16 is wrong."""

    def __init__(self, heads: tuple[int, ...] = (), caches: tuple[str, ...] = ()) -> None:
        self.caches = caches
        self.heads = heads
        """Kernels only for models with so many heads; empty: for all."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(dtypes=("float32",), kv_cache_dtypes=self.caches)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def memory(self) -> Memory:
        return host_memory()

    def synchronize(self) -> None:
        return

    def kernels(self, spec: OpSpec) -> Mapping[str, Kernel]:
        if self.heads and spec.num_heads not in self.heads:
            return {}
        return TritonKernels(Chip(PROCESSORS, tuning=Tuning(context_blocks=True))).kernels(spec)
