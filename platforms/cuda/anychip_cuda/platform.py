"""The NVIDIA platform: Triton's and cuBLAS's kernels, captured decoding steps, copies that nobody waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from anychip.config import EngineConfig
from anychip.engine.batch import Batch
from anychip.errors import UserError
from anychip.ops.op import Kernel, OpSpec
from anychip.plugin.contract import Capabilities, KVPlan, Memory, Pending, Runner
from anychip.runner import TorchPlatform
from anychip.runner.captured import CapturedSteps, Sizes, sizes_up_to
from anychip.runner.inputs import Computed, Forward, RunBatch
from anychip.triton.codes import prepare_codes
from anychip.weights.weight import Weight
from anychip_cuda.copies import Fetched, send
from anychip_cuda.graphs import Graphs
from anychip_cuda.kernels import cuda_kernels, formats_of, reads_paged
from anychip_cuda.prompts import long_and_fresh

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_CAPTURED_ROWS = 512
"""A larger decoding step is long enough for the host to launch it kernel by kernel."""
MAX_CAPTURED_TOKENS = 8192
"""The same for steps that compute prompts."""
LONG = 4096
"""Tokens of a step of long prompts alone from which the attention that no graph holds is worth more than the graph."""
ROWS = (8, 40)
"""Rows of captured steps that compute prompts, beside the most there can be."""
_APART = 64


class CudaPlatform(TorchPlatform):
    """One GPU, by CUDA's number. Raises `UserError` where CUDA has none of that number."""

    def __init__(self, index: int) -> None:
        count = torch.cuda.device_count()
        if index >= count:
            raise UserError(
                f"CUDA offers {count} device(s) to this process, so there is no cuda:{index}.",
                "CUDA_VISIBLE_DEVICES may hide some; or choose another --device.",
            )
        self._device = torch.device("cuda", index)
        # Triton launches on the current device, and so do streams and events.
        torch.cuda.set_device(self._device)

    @property
    def capabilities(self) -> Capabilities:
        """Large steps, because a long prompt is worth a large product; one step ahead, because launches take time."""
        return Capabilities(
            dtypes=("bfloat16", "float16", "float32"),
            block_sizes=(64, 16, 32, 128),
            steps_in_flight=2,
            batched_tokens=8192,
            memory_utilization=0.9,
            weight_formats=formats_of(torch.cuda.get_device_capability(self._device)),
            token_masks=True,
            collective_backend="nccl",
        )

    @property
    def device(self) -> torch.device:
        """The GPU."""
        return self._device

    def memory(self) -> Memory:
        """What the driver has left, and what torch holds beyond the most that was ever in use."""
        free, total = torch.cuda.mem_get_info(self._device)
        held = torch.cuda.memory_reserved(self._device) - torch.cuda.max_memory_allocated(self._device)
        return Memory(free + max(0, held), total)

    def synchronize(self) -> None:
        """Wait for all streams."""
        torch.cuda.synchronize(self._device)

    def runner(self, config: EngineConfig) -> Runner:
        """See `TorchPlatform.runner`; what an earlier model needed at its peak is forgotten."""
        torch.cuda.reset_peak_memory_stats(self._device)
        return super().runner(config)

    def notes(self) -> tuple[str, ...]:
        """The GPU and the libraries in use."""
        return (f"{torch.cuda.get_device_name(self._device)}, torch {torch.__version__}",)

    def kernels(self, spec: OpSpec) -> Mapping[str, Kernel]:
        """Triton's, which leave large products to cuBLAS."""
        return cuda_kernels(spec, self._device)

    def prepare_weight(self, weight: Weight, out: Weight | None = None) -> Weight:
        """Codes are packed; a reload packs anew and lets go of `out`."""
        return prepare_codes(weight)

    def send(self, array: npt.NDArray[Any], out: torch.Tensor | None = None) -> torch.Tensor:
        """By way of pinned memory."""
        return send(array, self._device, out)

    def fetch(self, tensor: torch.Tensor) -> Pending[npt.NDArray[Any]]:
        """Into pinned memory, behind what was submitted so far."""
        return Fetched(tensor)

    def compile(self, step: Forward, plan: KVPlan) -> RunBatch:
        """Steps as graphs, where attention does its index work on the device; long prompts have enough of the host."""
        launched = super().compile(step, plan)
        if not all(reads_paged(group.spec) for group in plan.groups):
            return launched
        sizes = captured_sizes(plan)
        captured = CapturedSteps(step, plan, self.device, self.send, Graphs(self.device), launched, sizes)
        return Steps(launched, captured)


@dataclass(frozen=True, slots=True)
class Steps:
    """Runs batches of long prompts alone kernel by kernel, all others captured."""

    launched: RunBatch
    captured: CapturedSteps

    def __call__(self, batch: Batch, greedy: bool) -> Computed:
        """See `RunBatch`."""
        long = batch.num_tokens >= LONG and long_and_fresh(batch.query_start, batch.seq_lens, batch.num_single)
        return (self.launched if long else self.captured)(batch, greedy)


def captured_sizes(plan: KVPlan) -> Sizes:
    """Shapes of graphs: decoding steps, and others while the host may take longer to launch than the GPU to run."""
    most = plan.max_num_seqs + 1
    return Sizes(
        single=sizes_up_to(min(plan.max_num_seqs, MAX_CAPTURED_ROWS)),
        tokens=sizes_up_to(min(_padded(plan.max_num_batched_tokens), MAX_CAPTURED_TOKENS), _APART),
        rows=tuple(sorted({*(rows for rows in ROWS if rows < most), most + (most % _APART == 0)})),
    )


def _padded(tokens: int) -> int:
    return -(-tokens // _APART) * _APART
