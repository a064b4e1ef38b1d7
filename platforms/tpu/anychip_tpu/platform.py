"""The TPU platform: every step is one program, compiled ahead for a fixed list of shapes; caches change in place."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from anychip.config import EngineConfig
from anychip.ops.op import Kernel, OpSpec
from anychip.plugin.contract import Capabilities, Memory, Runner
from anychip.runner import TorchPlatform
from anychip.runner.compiled_runner import CompiledRunner
from anychip.runner.shapes import shapes_up_to
from anychip_tpu.choose import NAMES
from anychip_tpu.kernels import KERNELS
from anychip_tpu.runtime import Runtime


class TpuPlatform(TorchPlatform):
    """One device of a runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    @property
    def capabilities(self) -> Capabilities:
        """Large steps on a TPU, whose matrix units want them; masks are honoured because sampling is the host's."""
        return Capabilities(
            dtypes=("bfloat16", "float32"),
            block_sizes=(32, 16, 64, 128),
            batched_tokens=2048 if self.runtime.is_tpu else 256,
            kv_cache_dtypes=("int8",),
            token_masks=True,
            runtimes=NAMES,
        )

    @property
    def device(self) -> torch.device:
        """The runtime's."""
        return self.runtime.device

    def memory(self) -> Memory:
        """The device's; XLA's processor device has the host's."""
        return self.runtime.memory()

    def synchronize(self) -> None:
        """Run what was recorded, and wait."""
        self.runtime.synchronize()

    def notes(self) -> tuple[str, ...]:
        """The runtime in use, and that it is no TPU where it is none."""
        return (self.runtime.description + ("" if self.runtime.is_tpu else ": for tests, no TPU is used"),)

    def kernels(self, spec: OpSpec) -> Mapping[str, Kernel]:
        """What XLA compiles."""
        return KERNELS

    def runner(self, config: EngineConfig) -> Runner:
        """The step loop of a device that compiles each shape."""
        return CompiledRunner(self, config, self.runtime, shapes_up_to)
