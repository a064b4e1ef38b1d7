"""The base of platforms whose GPU both torch and Triton know. A vendor's package names it and describes the chip."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from anychip.config import EngineConfig
from anychip.errors import UserError
from anychip.ops.op import Kernel, OpSpec
from anychip.plugin.contract import Capabilities, KVPlan, KVSpec, Memory, ModelSource, Pending, Runner
from anychip.runner.captured import CapturedSteps
from anychip.runner.host_pool import start_pool
from anychip.runner.inputs import Forward, RunBatch
from anychip.runner.platform import TorchPlatform
from anychip.triton.ahead.absent import current_target
from anychip.triton.ahead.process import Helpers, start_helpers
from anychip.triton.ahead.rehearsal import KernelsOf, Rehearsed, StepsOf, as_captured
from anychip.triton.ahead.work import Work
from anychip.triton.chip import Chip
from anychip.triton.copies import Fetched, send
from anychip.triton.graphs import GraphKind, Graphs
from anychip.triton.packing import prepare_codes
from anychip.triton.provider import triton_kernels
from anychip.triton.runner import TritonRunner
from anychip.triton.sizes import captured_sizes, reads_paged
from anychip.weights.weight import Weight

if TYPE_CHECKING:
    import numpy.typing as npt


LARGE = 70 << 30
"""Bytes of a GPU's memory from which caches and logits of `MANY_ROWS` requests fit."""
FEW_ROWS, MANY_ROWS = 256, 1024
"""Requests at once unless the user says otherwise, on small and on large GPUs."""
GAPS = 1.25
"""Factor on the memory of the worst step: the graphs' pool is fragmented by steps of other sizes."""
SHARED_MEMORY = 1 << 20
"""Bytes that a program may take where it is compiled ahead: no limit, as its launch finds out what is too much."""


class TritonPlatform(TorchPlatform):
    """One GPU: kernels in Triton, steps captured in graphs, asynchronous copies.

    Memory, streams and events are asked of torch's module for the type of device, such as torch.cuda.
    """

    def __init__(
        self,
        device: torch.device,
        chip: Chip,
        capabilities: Capabilities,
        graphs: GraphKind | None = None,
        kernels_of: KernelsOf = triton_kernels,
        early: Helpers | None = None,
        steps_of: StepsOf = as_captured,
    ) -> None:
        """Nothing is asked of the device yet.

        `graphs`: None launches every step kernel by kernel. `kernels_of`: the platform's kernels, `steps_of`: what its
        `compile` wraps captured steps in; both also for helpers that rehearse, so they have to be picklable. `early`:
        a helper that was started before torch was imported, for the first runner.
        """
        self.chip, self._device, self._graphs = chip, device, graphs
        self._described = Rehearsed(chip, capabilities, kernels_of, graphs is not None, steps_of)
        self._torch = torch.get_device_module(device)
        self._early = early
        self._largest_step = 0
        """Bytes that a captured step takes at its peak: the size of the graphs' pool."""
        self._before_steps = 0
        """Bytes in use before the first step."""

    @property
    def capabilities(self) -> Capabilities:
        """What the vendor's package says of this chip."""
        return self._described.capabilities

    @property
    def device(self) -> torch.device:
        """The GPU."""
        return self._device

    def memory(self) -> Memory:
        """What the driver has free, and what torch has reserved beyond the peak of its use."""
        free, total = self._torch.mem_get_info(self._device)
        held = self._torch.memory_reserved(self._device) - self._torch.max_memory_allocated(self._device)
        return Memory(free + max(0, held), total)

    def measured(self, measure: Callable[[], Memory], padded: float) -> Memory:
        """What is left once `measure` has run the worst step, less the pool of captured steps.

        The pool is as large as what the worst step took, times `padded`: tokens of a padded step by those of the worst
        one.
        """
        self._torch.reset_peak_memory_stats(self._device)
        memory = measure()
        taken = self._torch.max_memory_allocated(self._device) - self._before_steps
        self._largest_step = int(taken * padded * GAPS)
        return Memory(max(0, memory.free - self._largest_step), memory.total)

    def begin_steps(self) -> None:
        """Note what is in use once caches are allocated: what is used beyond that is the steps' own."""
        self._before_steps = self._torch.memory_allocated(self._device)

    def make_current(self) -> None:
        """Make the GPU the calling thread's current device: there Triton launches, and streams and events are made."""
        self._torch.set_device(self._device)

    def captures(self, specs: Iterable[KVSpec]) -> bool:
        """Whether steps of a model with such caches are captured."""
        return self._graphs is not None and all(reads_paged(spec) for spec in specs)

    def synchronize(self) -> None:
        """Wait for all streams."""
        self._torch.synchronize(self._device)

    def runner(self, config: EngineConfig) -> Runner:
        """See `TorchPlatform.runner`; what an earlier model needed at its peak is forgotten."""
        self._torch.reset_peak_memory_stats(self._device)
        start_pool(config)
        return TritonRunner(self, config, self._helpers)

    def _helpers(self, config: EngineConfig, source: ModelSource) -> Helpers | None:
        """A helper that compiles ahead; None for a GGUF file, as only its weights tell which kernels it needs."""
        early, self._early = self._early, None
        if source.kind == "gguf" and config.quantization is None:
            if early is not None:
                early.close()
            return None
        return start_helpers(Work(current_target(SHARED_MEMORY), self._described, config, source), early)

    def notes(self) -> tuple[str, ...]:
        """The GPU and the library in use."""
        return (f"{self._torch.get_device_name(self._device)}, torch {torch.__version__}",)

    def kernels(self, spec: OpSpec) -> Mapping[str, Kernel]:
        """Triton's; its linear layers leave products of many tokens to torch's library."""
        return self._described.kernels_of(self.chip, spec)

    def prepare_weight(self, weight: Weight, out: Weight | None = None) -> Weight:
        """Pack quantized weights, see `prepare_codes`; a reload packs anew and does not reuse `out`."""
        return prepare_codes(weight, self.chip.float8, self.chip.fragments)

    def send(self, array: npt.NDArray[Any], out: torch.Tensor | None = None) -> torch.Tensor:
        """Copy asynchronously through pinned memory."""
        return send(array, self._device, out)

    def fetch(self, tensor: torch.Tensor) -> Pending[npt.NDArray[Any]]:
        """Start copying to pinned memory, after what was submitted so far."""
        return Fetched(tensor)

    def compile(self, step: Forward, plan: KVPlan) -> RunBatch:
        """Steps captured in graphs, if all of the model's attention is planned on the device."""
        launched = super().compile(step, plan)
        if self._graphs is None or not self.captures(group.spec for group in plan.groups):
            return launched
        capture = Graphs(self._device, self._graphs, self._largest_step)
        return CapturedSteps(step, plan, self._device, self.send, capture, launched, captured_sizes(plan))


def gpu_capabilities(
    weight_formats: tuple[str, ...], kv_cache_dtypes: tuple[str, ...], collective_backend: str, memory: int = 0
) -> Capabilities:
    """What these platforms can do; a vendor's package adds what depends on the chip. `memory` is the GPU's, in bytes.

    Steps are large, as long prompts make large products, and one is submitted ahead, as launches take time. A GPU with
    much memory serves more requests at once: a step reads all weights, for however many rows.
    """
    return Capabilities(
        dtypes=("bfloat16", "float16", "float32"),
        block_sizes=(64, 16, 32, 128),
        steps_in_flight=2,
        batched_tokens=8192,
        max_num_seqs=MANY_ROWS if memory >= LARGE else FEW_ROWS,
        memory_utilization=0.9,
        weight_formats=weight_formats,
        kv_cache_dtypes=kv_cache_dtypes,
        refused_references=("experts",),
        token_masks=True,
        collective_backend=collective_backend,
    )


def use_device(kind: str, index: int, library: str, hidden_by: str) -> torch.device:
    """Make one GPU the current device, where Triton launches and streams and events are made; returns it.

    `kind` is torch's name of the type of device. Raises `UserError` if `library`, such as CUDA, offers none of that
    index; `hidden_by` names the environment variable that may hide some.
    """
    module = torch.get_device_module(kind)
    count = module.device_count()
    if index >= count:
        raise UserError(
            f"{library} offers {count} device(s) to this process, none of them numbered {index}.",
            f"{hidden_by} may hide some; or choose another --device.",
        )
    device = torch.device(kind, index)
    module.set_device(device)
    return device
