"""The NVIDIA platform: Triton's, cuBLAS's and cuDNN's kernels, captured steps, copies that nobody waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from anychip.engine.batch import Batch
from anychip.plugin.communicator import Communicator
from anychip.plugin.contract import KVPlan
from anychip.runner.captured import CapturedSteps
from anychip.runner.inputs import Computed, Forward, RunBatch
from anychip.triton.ahead import Helpers
from anychip.triton.graphs import GraphKind
from anychip.triton.platform import TritonPlatform, gpu_capabilities, use_device
from anychip.triton.provider import triton_kernels
from anychip_cuda.chips import caches_of, chip_of, formats_of
from anychip_cuda.kernels import cuda_kernels
from anychip_cuda.prompts import cudnn_attends, long_and_fresh

GRAPHS = GraphKind(torch.cuda.CUDAGraph, {"capture_error_mode": "thread_local"})
"""Steps under way elsewhere in the process are none of a capture's business."""
LONG = 4096
"""Tokens of a step of long prompts alone from which the attention that no graph holds is worth more than the graph."""


class CudaPlatform(TritonPlatform):
    """One GPU, by CUDA's number. Raises `UserError` where CUDA has none of that number."""

    def __init__(self, index: int, early: Helpers | None = None) -> None:
        device = use_device("cuda", index, "CUDA", "CUDA_VISIBLE_DEVICES")
        level = torch.cuda.get_device_capability(device)
        memory = torch.cuda.get_device_properties(device).total_memory
        capabilities = gpu_capabilities(formats_of(level), caches_of(level), "nccl", memory)
        self._cudnn = cudnn_attends(device)
        kernels = cuda_kernels if self._cudnn else triton_kernels
        super().__init__(device, chip_of(device), capabilities, GRAPHS, kernels, early)

    def notes(self) -> tuple[str, ...]:
        """Also by what long prompts attend."""
        attends = f"cuDNN {torch.backends.cudnn.version()}" if self._cudnn else "Triton: cuDNN cannot on this GPU"
        return *super().notes(), f"long prompts: {attends}"

    def communicator(self, group: Sequence[int]) -> Communicator:
        """NCCL's collectives, with small sums over peer memory where that is faster."""
        from anychip_cuda.communicator import CudaCommunicator

        return CudaCommunicator(group, self.device, self.chip)

    def compile(self, step: Forward, plan: KVPlan) -> RunBatch:
        """Captured, but for long prompts: they have enough of the host."""
        captured = super().compile(step, plan)
        if not self._cudnn or not isinstance(captured, CapturedSteps):
            return captured
        return Steps(captured.otherwise, captured)


@dataclass(frozen=True, slots=True)
class Steps:
    """Runs batches of long prompts alone kernel by kernel, all others captured."""

    launched: RunBatch
    captured: CapturedSteps

    def __call__(self, batch: Batch, greedy: bool) -> Computed:
        """See `RunBatch`."""
        long = batch.num_tokens >= LONG and long_and_fresh(batch.query_start, batch.seq_lens, batch.num_single)
        return (self.launched if long else self.captured)(batch, greedy)
