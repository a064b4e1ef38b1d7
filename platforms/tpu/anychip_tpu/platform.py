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

PALLAS = "pallas"
GATHERED = "gathered by XLA, slow for long contexts"


class TpuPlatform(TorchPlatform):
    """One device of a runtime."""

    def __init__(self, runtime: Runtime, kernels: str = "auto") -> None:
        self.runtime = runtime
        self._pallas = kernels == PALLAS or (kernels == "auto" and runtime.is_tpu)
        self._attention = GATHERED

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
        """The runtime in use, and that it is no TPU where it is none; how attention runs."""
        runtime = self.runtime.description + ("" if self.runtime.is_tpu else ": for tests, no TPU is used")
        return runtime, f"attention: {self._attention}"

    def kernels(self, spec: OpSpec) -> Mapping[str, Kernel]:
        """What XLA compiles, and attention in Pallas where that is wanted and serves the model."""
        self._attention = GATHERED
        if not self._pallas:
            return KERNELS
        from anychip_tpu.paged import PallasAttention, unsupported

        if reasons := unsupported(spec):
            self._attention = f"{GATHERED}, because the Pallas kernel has {', '.join(reasons)}"
            return KERNELS
        self._attention = "Pallas" if self.runtime.is_tpu else "Pallas, interpreted"
        return {**KERNELS, **PallasAttention(self.runtime, not self.runtime.is_tpu).kernels()}

    def runner(self, config: EngineConfig) -> Runner:
        """The step loop of a device that compiles each shape."""
        return CompiledRunner(self, config, self.runtime, shapes_up_to)
