"""Running a model's steps without its GPU: on meta tensors, with launches that are compiled and do nothing.

The code that serves is what runs here: the same runner, the same launching functions, the same arguments. So a launch
that would not compile fails here, and what is compiled here is found in Triton's cache by whoever launches it later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from anychip.config import EngineConfig
from anychip.engine.batch import Batch, RowSampling
from anychip.engine.sizing import plan_cache, resolve_config
from anychip.ops.op import Kernel, OpSpec
from anychip.plugin.contract import Capabilities, KVPlan, Memory, ModelSource, Pending, Ready
from anychip.runner.bucket import Replay
from anychip.runner.captured import CapturedSteps
from anychip.runner.inputs import Forward, RunBatch
from anychip.runner.platform import TorchPlatform
from anychip.runner.torch_runner import TorchRunner
from anychip.runner.warmup import fresh_batch
from anychip.triton.chip import Chip
from anychip.triton.packing import prepare_codes
from anychip.triton.sizes import captured_sizes, reads_paged
from anychip.weights.weight import Weight

if TYPE_CHECKING:
    import numpy.typing as npt

NOWHERE = torch.device("meta")
PLENTY = Memory(1 << 45, 1 << 45)
"""Meta tensors take none."""
ROWS = (2, 16, 17, 33, 65, 129, 257, 513)
"""Numbers of rows of decoding steps: between any two, programs in other sizes are launched."""
PROMPTS = (64, 1000, 3000, 8000)
"""Tokens of steps with prompts, likewise."""
SHORT = 100
"""Tokens of each prompt where a step has many."""
DRAWN = (RowSampling(seed=0), RowSampling(seed=0, top_k=20), RowSampling(seed=0, top_p=0.9, top_k=20))
"""Sampling parameters for which other programs draw a token."""
EDITED = RowSampling(seed=0, temperature=0.0, presence_penalty=1.0, logprobs=5)
"""Sampling parameters for which programs edit logits and score tokens."""
GREEDY = RowSampling(seed=0, temperature=0.0)

KernelsOf = Callable[[Chip, OpSpec], Mapping[str, Kernel]]
"""The kernels of a platform for one chip and model."""
StepsOf = Callable[[RunBatch, KVPlan], RunBatch]
"""Wraps captured steps as a platform does: its `compile`, but for what is captured."""


def as_captured(run: RunBatch, plan: KVPlan) -> RunBatch:
    """`StepsOf` of a platform that wraps nothing: `run` as it is."""
    return run


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What a rehearsal has to know of the platform that it stands for. Picklable."""

    chip: Chip
    capabilities: Capabilities
    kernels_of: KernelsOf
    captures: bool = True
    """Whether steps are captured in graphs."""
    steps_of: StepsOf = as_captured


class Rehearsal(TorchPlatform):
    """Stands for a platform whose GPU is not there."""

    def __init__(self, platform: Rehearsed) -> None:
        self._platform, self._chip = platform, platform.chip

    @property
    def capabilities(self) -> Capabilities:
        """Those of the platform that is rehearsed."""
        return self._platform.capabilities

    @property
    def device(self) -> torch.device:
        """The meta device."""
        return NOWHERE

    def memory(self) -> Memory:
        """As much as any model takes."""
        return PLENTY

    def synchronize(self) -> None:
        """Nothing is under way."""

    def kernels(self, spec: OpSpec) -> Mapping[str, Kernel]:
        """Those of the platform that is rehearsed."""
        return self._platform.kernels_of(self._chip, spec)

    def prepare_weight(self, weight: Weight, out: Weight | None = None) -> Weight:
        """As on a GPU."""
        return prepare_codes(weight, self._chip.float8, self._chip.fragments)

    def send(self, array: npt.NDArray[Any], out: torch.Tensor | None = None) -> torch.Tensor:
        """What an array would be on the device."""
        return torch.from_numpy(array).to(NOWHERE) if out is None else out

    def fetch(self, tensor: torch.Tensor) -> Pending[npt.NDArray[Any]]:
        """Zeros in place of what the device would have computed."""
        return Ready(torch.zeros(tensor.shape, dtype=tensor.dtype).numpy())

    def compile(self, step: Forward, plan: KVPlan) -> RunBatch:
        """Steps in the shapes of captured ones, where there would be any."""
        launched = super().compile(step, plan)
        if not self._platform.captures or not all(reads_paged(group.spec) for group in plan.groups):
            return launched
        captured = CapturedSteps(step, plan, NOWHERE, self.send, _again, launched, captured_sizes(plan))
        return self._platform.steps_of(captured, plan)


def _again(step: Replay) -> Replay:
    """`Capture` without graphs: what is replayed is launched anew each time."""
    return step


def rehearse(platform: Rehearsal, config: EngineConfig, source: ModelSource) -> Iterator[str]:
    """Run a model's steps with random weights, and yield a name after each; "start" once a start would be over.

    Raises what a real start would raise.
    """
    config = resolve_config(config.replace("rehearsal", load_format="dummy"), platform.capabilities)
    runner = TorchRunner(platform, config)
    info = runner.load(source, _silent)
    yield "weights"
    plan = plan_cache(info, runner.measure(), config)
    runner.start(plan)
    yield "start"
    if info.vector_size:
        return
    for batch in _batches(plan):
        runner.submit(batch).finish().result()
        yield f"{batch.num_tokens} tokens in {batch.num_rows} rows"


def _batches(plan: KVPlan) -> Iterator[Batch]:
    """Steps of many kinds, the likeliest first."""
    for rows in (count for count in ROWS if count <= plan.max_num_seqs):
        yield _batch([1] * rows, plan, GREEDY)
    longest = min(plan.max_model_len, plan.max_num_batched_tokens)
    for tokens in (count for count in PROMPTS if count <= longest):
        yield _batch([tokens], plan, GREEDY)
        if tokens > SHORT:
            yield _batch([SHORT] * min(tokens // SHORT, plan.max_num_seqs), plan, GREEDY)
        yield _batch([1] * min(8, plan.max_num_seqs - 1) + [tokens // 2], plan, GREEDY)
    for sampling in (*DRAWN, EDITED):
        yield _batch([1] * min(32, plan.max_num_seqs), plan, sampling)


def _batch(lengths: list[int], plan: KVPlan, sampling: RowSampling) -> Batch:
    table = np.zeros((len(lengths), -(-max(lengths) // plan.block_size)), np.int32)
    return fresh_batch(lengths, table, len(plan.groups), sampling)


def _silent(what: str, done: int, total: int) -> None:
    return
