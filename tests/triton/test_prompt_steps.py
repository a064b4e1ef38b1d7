"""Which way a step with long prompts is run, on the host's memory: nothing is computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.triton.mode import require_triton

require_triton(interpreted=True)

from anychip.engine.batch import Batch, RowSampling
from anychip.plugin.contract import KVGroup, KVPlan, KVSpec, Plane
from anychip.runner.captured import CapturedSteps, sizes_up_to
from anychip.runner.inputs import Computed, DeviceBatch, uploading
from anychip.runner.prepared import Prepared
from anychip.runner.warmup import fresh_batch
from anychip.triton.sizes import Sizes
from anychip_cuda.cudnn import Cudnn
from anychip_cuda.flash import PACKAGES, Flash
from anychip_cuda.libraries import Library
from anychip_cuda.recorded import RecordedInputs
from anychip_cuda.steps import prompt_steps

FLASH, CUDNN = Flash(PACKAGES[0], "0.0.3", ("bfloat16",), 256), Cudnn()
CPU = torch.device("cpu")
Rows = tuple[tuple[int, int], ...]


def send(array: np.ndarray, out: torch.Tensor | None = None) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    return tensor.clone() if out is None else out.copy_(tensor)


def batch(rows: Rows) -> Batch:
    """Rows of (cached, new) tokens."""
    lengths = [new for _, new in rows]
    fresh = fresh_batch(lengths, np.zeros((len(rows), 4), np.int32), 1, RowSampling(seed=0))
    cached = np.array([before for before, _ in rows], np.int32)
    return replace(fresh, positions=fresh.positions + np.repeat(cached, lengths), seq_lens=fresh.seq_lens + cached)


def way(library: Library, rows: Rows, window: int | None = None, head_dim: int = 128) -> str:
    """How a step was run."""
    ways: list[str] = []
    planes = tuple(Plane(name, (8, head_dim), "bfloat16") for name in "kv")
    spec = KVSpec("sliding" if window else "full", planes, window)
    plan = KVPlan((KVGroup(spec, (0,), 16),), 64, 300, 64 * 300, 8192)

    def step(inputs: DeviceBatch) -> Computed:
        given, rows = inputs.groups[0], len(inputs.sampled_at)
        kind = "captured" if given.max_seq == plan.max_model_len else "launched"
        ways.append(f"recorded, {given.keys} keys" if isinstance(given, RecordedInputs) else kind)
        if isinstance(given, RecordedInputs) and given.alone:
            ways[-1] = "recorded alone"
        states, chosen = torch.zeros(rows, 2), torch.zeros(rows, dtype=torch.int64)
        return Computed(inputs, states, chosen=chosen, selected=states)

    sizes = Sizes(single=sizes_up_to(300), tokens=sizes_up_to(8192, 64), rows=(8, 40, 257), beside=(0, 64, 300))
    captured = CapturedSteps(step, plan, CPU, send, lambda step: step, uploading(step, send), sizes)
    run, made = prompt_steps(captured, plan, library), batch(rows)
    assert isinstance(run, Prepared)
    prepared = run.prepare(made, True)
    steps = len(ways)
    run(made, True)
    assert prepared == (ways[-1] != "launched")
    assert not run.prepare(made, True)
    assert len(ways) == steps + 1, "what was prepared is not made again"
    return ways[-1]


@pytest.mark.parametrize(
    ("rows", "flash", "cudnn"),
    [
        (((300, 1),) * 280, "captured", "captured"),
        (((0, 200),), "captured", "captured"),
        (((0, 1000),), "recorded alone", "captured"),
        (((0, 8192),), "recorded alone", "launched"),
        (((1024, 7168),), "recorded, 14336 keys", "captured"),
        (((0, 512),) * 16, "recorded, 8192 keys", "captured"),
        (((0, 512),) * 3, "captured", "captured"),
        (((4000, 1),) * 30 + ((4094, 2), (0, 4096), (0, 4000)), "recorded, 8192 keys", "launched"),
        (((90, 1), (0, 4096)), "recorded, 4096 keys", "launched"),
        (((30000, 8192),), "launched", "captured"),
        (((9000, 1000), (9000, 1500)), "captured", "captured"),
        (((90, 1),) * 200 + ((4000, 3000), (0, 100)), "captured", "captured"),
    ],
)
def test_a_step_is_run_as_its_library_allows(rows: Rows, flash: str, cudnn: str) -> None:
    assert (way(FLASH, rows), way(CUDNN, rows)) == (flash, cudnn)


def test_windows_and_large_keys_are_not_recorded() -> None:
    assert way(FLASH, ((0, 8192),), window=9000) == "launched"
    assert way(FLASH, ((1024, 7168),), head_dim=1024) == "launched"
