"""The NVIDIA platform: kernels in Triton and from libraries, steps captured in CUDA graphs, asynchronous copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial

import torch

from anychip.ops.op import Kernel, OpSpec
from anychip.plugin.communicator import Communicator
from anychip.plugin.contract import KVPlan
from anychip.runner.inputs import Forward, RunBatch
from anychip.runner.platform import TorchPlatform
from anychip.triton.ahead.process import Helpers, marker, programs_hash
from anychip.triton.graphs import GraphKind
from anychip.triton.keys import has_gluon
from anychip.triton.platform import TritonPlatform, gpu_capabilities, use_device
from anychip_cuda.chips import caches_of, chip_of, formats_of
from anychip_cuda.choice import Choice, Found, choose, find, remembered
from anychip_cuda.kernels import cuda_kernels
from anychip_cuda.steps import prompt_steps
from anychip_cuda.trial import timer

GRAPHS = GraphKind(torch.cuda.CUDAGraph, {"capture_error_mode": "thread_local"})
"""thread_local: what other threads of the process do on the GPU meanwhile does not make a capture fail."""

NO_GLUON = (
    "long prompts and 4-bit weights by Triton's older ways: only Triton 3.6 and 3.7 are known to read the newer ones"
)


class CudaPlatform(TritonPlatform):
    """One GPU, by CUDA's index. Raises `UserError` where CUDA offers none of that index."""

    def __init__(self, index: int, early: Helpers | None = None) -> None:
        device = use_device("cuda", index, "CUDA", "CUDA_VISIBLE_DEVICES")
        level = torch.cuda.get_device_capability(device)
        memory = torch.cuda.get_device_properties(device).total_memory
        capabilities = gpu_capabilities(formats_of(level), caches_of(level), "nccl", memory)
        chip = chip_of(device)
        self._found = find(device, chip)
        machine = f"{torch.cuda.get_device_name(device)} {programs_hash()}"
        self._timed = remembered(timer(device, chip), marker("libraries"), machine)
        self._choices: dict[OpSpec, Choice] = {}
        self._choice: Choice | None = None
        likely = next((each.library for each in self._found if each.library is not None and each.library.likely), None)
        kernels, steps = partial(cuda_kernels, library=likely), partial(prompt_steps, library=likely)
        super().__init__(device, chip, capabilities, GRAPHS, kernels, early, steps)

    def kernels(self, spec: OpSpec) -> Mapping[str, Kernel]:
        """Triton's, with attention of long prompts by whatever is fastest for such a model."""
        if spec not in self._choices:
            self._choices[spec] = choose(self._found, spec, self._timed)
        self._choice = self._choices[spec]
        return cuda_kernels(self.chip, spec, self._choice.library)

    def choices(self, spec: OpSpec) -> Mapping[str, TorchPlatform]:
        """Triton's attention, and each library that serves such a model, for all long prompts."""
        able = [each for each in self._found if each.library is not None and not each.library.refuses(spec)]
        fixed = {each.line: self._with((each,)) for each in able}
        return {"Triton": self._with(()), **fixed} if fixed else {}

    def _with(self, found: tuple[Found, ...]) -> CudaPlatform:
        """The same where a library that is found is chosen untimed."""
        other = copy(self)
        other._found, other._choices, other._choice = found, {}, None
        other._timed = lambda library, spec: float(library is None)
        return other

    def notes(self) -> tuple[str, ...]:
        """Also what attends long prompts; before a model is loaded, what could."""
        offers = "; ".join(each.line for each in self._found)
        chosen = f"for long prompts: {offers}" if self._choice is None else self._choice.note
        older = () if has_gluon() else (NO_GLUON,)
        return *super().notes(), chosen, *older

    def communicator(self, group: Sequence[int]) -> Communicator:
        """NCCL's collectives; sums of small messages over peer memory where that is measured to be faster."""
        from anychip_cuda.communicator import CudaCommunicator

        return CudaCommunicator(group, self.device, self.chip)

    def compile(self, step: Forward, plan: KVPlan) -> RunBatch:
        """Steps as CUDA graphs; those with long prompts as the chosen library allows."""
        return prompt_steps(super().compile(step, plan), plan, None if self._choice is None else self._choice.library)
