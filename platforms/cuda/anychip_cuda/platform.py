"""The NVIDIA platform: Triton's and libraries' kernels, captured steps, copies that nobody waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from anychip.engine.batch import Batch
from anychip.ops.op import Kernel, OpSpec
from anychip.plugin.communicator import Communicator
from anychip.plugin.contract import KVPlan
from anychip.runner.captured import CapturedSteps
from anychip.runner.inputs import Computed, Forward, RunBatch
from anychip.triton.ahead import Helpers
from anychip.triton.graphs import GraphKind
from anychip.triton.platform import TritonPlatform, gpu_capabilities, use_device
from anychip_cuda.chips import caches_of, chip_of, formats_of
from anychip_cuda.choice import Choice, choose, find, timer
from anychip_cuda.kernels import cuda_kernels
from anychip_cuda.libraries import Library
from anychip_cuda.prompts import tokens_taken

GRAPHS = GraphKind(torch.cuda.CUDAGraph, {"capture_error_mode": "thread_local"})
"""Steps under way elsewhere in the process are none of a capture's business."""
LONG = 4096
"""Tokens of a step's prompts from which the attention that no graph holds is worth more than the graph."""


class CudaPlatform(TritonPlatform):
    """One GPU, by CUDA's number. Raises `UserError` where CUDA has none of that number."""

    def __init__(self, index: int, early: Helpers | None = None) -> None:
        device = use_device("cuda", index, "CUDA", "CUDA_VISIBLE_DEVICES")
        level = torch.cuda.get_device_capability(device)
        memory = torch.cuda.get_device_properties(device).total_memory
        capabilities = gpu_capabilities(formats_of(level), caches_of(level), "nccl", memory)
        self._found = find(device)
        self._choices: dict[OpSpec, Choice] = {}
        self._choice: Choice | None = None
        likely = next((each.library for each in self._found if each.library is not None), None)
        kernels = partial(cuda_kernels, library=likely)
        super().__init__(device, chip_of(device), capabilities, GRAPHS, kernels, early)

    def kernels(self, spec: OpSpec) -> Mapping[str, Kernel]:
        """With the library that is fastest for prompts of such a model."""
        if spec not in self._choices:
            self._choices[spec] = choose(self._found, spec, timer(self.device))
        self._choice = self._choices[spec]
        return cuda_kernels(self.chip, spec, self._choice.library)

    def notes(self) -> tuple[str, ...]:
        """Also by what long prompts attend; before a model is loaded, what there is for them."""
        offers = "; ".join(each.line for each in self._found)
        chosen = f"for long prompts: {offers}" if self._choice is None else self._choice.note
        return *super().notes(), chosen

    def communicator(self, group: Sequence[int]) -> Communicator:
        """NCCL's collectives, with small sums over peer memory where that is faster."""
        from anychip_cuda.communicator import CudaCommunicator

        return CudaCommunicator(group, self.device, self.chip)

    def compile(self, step: Forward, plan: KVPlan) -> RunBatch:
        """Captured, but for long prompts: they have enough of the host."""
        captured = super().compile(step, plan)
        library = None if self._choice is None else self._choice.library
        if library is None or not isinstance(captured, CapturedSteps):
            return captured
        return Steps(captured.otherwise, captured, library)


@dataclass(frozen=True, slots=True)
class Steps:
    """Runs batches with long prompts kernel by kernel, all others captured."""

    launched: RunBatch
    captured: CapturedSteps
    library: Library
    """Attends them."""

    def __call__(self, batch: Batch, greedy: bool) -> Computed:
        """See `RunBatch`."""
        long = batch.num_tokens >= LONG and tokens_taken(batch.query_start, batch.seq_lens, self.library) >= LONG
        return (self.launched if long else self.captured)(batch, greedy)
