"""The runner of GPUs on a device that keeps what it is called with: which steps take highest logits at once."""

from __future__ import annotations

import numpy as np
import torch
from tests.runner.driver import CONFIG, admit, batch, prompt, run, started
from tests.triton.mode import require_triton

require_triton(interpreted=False)

from anychip.engine.batch import PENDING, Masks
from anychip.plugin.contract import Late
from anychip.reference.platform import ReferencePlatform
from anychip.runner.bucket import Shape
from anychip.runner.captured import CapturedSteps, Sizes
from anychip.triton.runner import TritonRunner


class Device(ReferencePlatform):
    """Its captured steps are called again."""

    made_current = 0

    def captures(self, specs: object) -> bool:
        return False

    def begin_steps(self) -> None:
        return

    def make_current(self) -> None:
        self.made_current += 1

    def runner(self, config: object) -> TritonRunner:
        return TritonRunner(self, config, lambda config, source: None)

    def compile(self, step: object, plan: object) -> CapturedSteps:
        otherwise = super().compile(step, plan)
        self.steps = CapturedSteps(
            step, plan, torch.device("cpu"), self.send, lambda run: run, otherwise, Sizes(single=(1,))
        )
        return self.steps


def test_each_step_is_launched_on_the_runner_s_own_gpu() -> None:
    """Whatever another engine of the process has made the current one since."""
    platform, ids = Device(), prompt(9)
    runner, before = started(platform, dtype="float32"), platform.made_current
    run(runner, batch([(0, ids, 0)], [admit(0, ids)]))
    for later in range(2):
        run(runner, batch([(0, [PENDING], 9 + later)]))
    assert platform.made_current == before + 3
    runner.prepare()
    assert platform.made_current == before + 4


def test_behind_masked_tokens_logits_are_taken_once() -> None:
    """The first masked step has taken highest logits already, and takes logits again; those behind it do not."""
    platform, ids = Device(), prompt(9)
    runner = started(platform, dtype="float32")
    bits = np.zeros((1, -(-CONFIG["vocab_size"] // 32)), np.int32)
    bits[0, 0] = 1 << 7
    masks = Late(Masks(np.zeros(1, np.int32), bits))
    run(runner, batch([(0, ids, 0)], [admit(0, ids)]))
    greedy, left = Shape(1, 1, 1, True), Shape(1, 1, 1, False)
    seen = []
    for later in range(3):
        step = runner.submit(batch([(0, [PENDING], 9 + later)]))
        seen.append(set(platform.steps.buckets))
        assert step.finish(masks).result().token_ids.tolist() == [7]
    assert seen == [{greedy}, {greedy, left}, {greedy, left}]
    free = int(run(runner, batch([(0, [PENDING], 12)])).token_ids[0])
    assert free == int(run(runner, batch([(0, [7], 12)])).token_ids[0])
