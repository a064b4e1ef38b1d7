"""Behind the last layer's attention only the tokens that are asked for are computed, and their logits are the same."""

from __future__ import annotations

from dataclasses import replace

import torch
from tests.runner.driver import GREEDY, admit, batch, prompt, run, started

from anychip.engine.batch import RowSampling
from anychip.reference.platform import ReferencePlatform


class Both(ReferencePlatform):
    """Runs each step a second time for all tokens, and keeps what both left."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = []

    def compile(self, step, plan):
        def twice(inputs):
            everything = step(replace(inputs, states=True))
            self.seen.append((inputs, step(inputs), everything))
            return self.seen[-1][1]

        return super().compile(twice, plan)


def test_logits_of_sampled_tokens_are_those_of_a_whole_pass() -> None:
    platform = Both()
    runner = started(platform, dtype="float32")
    prompts = [prompt(length, length) for length in (1, 7, 12)]
    admitted = [admit(row, ids, GREEDY) for row, ids in enumerate(prompts)]
    run(runner, batch([(row, ids, 0) for row, ids in enumerate(prompts)], admitted))
    inputs, computed, everything = platform.seen[-1]
    assert len(computed.hidden) == len(inputs.sampled_at) == 3
    assert len(everything.hidden) == len(inputs.token_ids) == 20
    torch.testing.assert_close(computed.logits, everything.logits, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(computed.logits[:2], everything.logits[1:], rtol=1e-2)  # it could tell rows apart


def test_scored_prompts_have_all_their_states() -> None:
    platform = Both()
    runner = started(platform, dtype="float32")
    ids = prompt(9, 3)
    scoring = RowSampling(seed=0, temperature=0.0, prompt_logprobs=1)
    result = run(runner, batch([(0, ids, 0)], [admit(0, ids, scoring)], scored=[0]))
    assert len(result.prompt_logprobs.positions) == len(ids) - 1
    assert len(platform.seen[-1][1].hidden) == len(ids)


def test_a_chunk_after_which_nothing_is_sampled_computes_one_token_a_row() -> None:
    platform = Both()
    runner = started(platform, dtype="float32")
    ids = prompt(20, 5)
    whole = run(runner, batch([(0, ids, 0)], [admit(0, ids, GREEDY)])).token_ids
    part = batch([(0, ids[:11], 0)], [admit(0, ids, GREEDY)], retired=[0])
    nothing = part.logits_at[:0]
    run(runner, replace(part, logits_at=nothing, targets=nothing))
    assert len(platform.seen[-1][1].hidden) == 1
    assert run(runner, batch([(0, ids[11:], 11)])).token_ids.tolist() == whole.tolist()
