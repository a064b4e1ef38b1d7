"""Long fresh prompts in Triton's interpreter, with plain attention in the place of cuDNN's, which needs a GPU."""

from __future__ import annotations

import pytest
import torch
from tests.triton.mode import require_triton

require_triton(interpreted=True)

from torch.nn.attention import SDPBackend

from anychip.cache.storage import stored_as
from anychip.engine.batch import NULL_BLOCK
from anychip.ops.attention_cases import batch_inputs, shuffled_table
from anychip.ops.bind import bind
from anychip.ops.op import OpSpec
from anychip.ops.parts import Ops
from anychip.ops.shapes import normal
from anychip.plugin.contract import KVSpec, Plane
from anychip.testing.compare import normalized_error
from anychip.triton.chip import Chip
from anychip.triton.provider import TritonKernels
from anychip.triton.rotary import Heads
from anychip_cuda.prompts import GRAIN, MIN_TOKENS, PromptAttention, only_fresh, takes_heads

CHIP, KV_HEADS, DIM = Chip(6), 1, 16
SPEC = OpSpec("float16", 64, 4, KV_HEADS, DIM, 100)
STEPS = {
    "one": ((0, MIN_TOKENS + 3),),
    "of one length": ((0, MIN_TOKENS), (0, MIN_TOKENS)),
    "beside single tokens": ((0, 1), (0, 1), (0, MIN_TOKENS), (0, MIN_TOKENS + 21)),
}


class Step:
    """Prompts in a shuffled cache."""

    def __init__(self, rows: tuple[tuple[int, int], ...], cache: str) -> None:
        generator = torch.Generator().manual_seed(3)
        table, self.blocks = shuffled_table(generator, [sum(row) for row in rows], 16)
        self.inputs = batch_inputs(rows, table)
        planes = tuple(Plane(name, (KV_HEADS, DIM), SPEC.dtype) for name in "kv")
        self.layer, tokens = stored_as(KVSpec("full", planes), cache), sum(new for _, new in rows)
        self.q = normal(generator, tokens, SPEC.num_heads, DIM, dtype=SPEC.dtype)
        self.k, self.v = (normal(generator, tokens, KV_HEADS, DIM, dtype=SPEC.dtype) for _ in range(2))

    def attend(self, ops: Ops) -> torch.Tensor:
        cache, plan = ops.new_cache(self.layer, self.blocks, 16, "cpu"), ops.plan_attention(self.inputs, self.layer, 16)
        ops.kv_write(self.k, self.v, cache, plan)
        return ops.paged_attention(self.q, cache, plan, 0.3)


@pytest.mark.parametrize(("rows", "cache"), [*((rows, "auto") for rows in STEPS), ("one", "int8")])
def test_fresh_prompts_see_their_own_tokens(rows: str, cache: str) -> None:
    step, plain = Step(STEPS[rows], cache), bind(TritonKernels(CHIP).kernels(SPEC), SPEC)
    ours = PromptAttention(plain.paged_attention, Heads(CHIP), SDPBackend.MATH)
    held, plan = plain.new_cache(step.layer, step.blocks, 16, "cpu"), plain.plan_attention(step.inputs, step.layer, 16)
    plain.kv_write(step.k, step.v, held, plan)
    assert only_fresh(plan)
    got, wanted = ours.paged_attention(step.q, held, plan, 0.3), step.attend(bind({}, SPEC))
    assert normalized_error(got, wanted) < 3e-3
    assert normalized_error(got.roll(1, 0), wanted) > 0.1


def test_what_lies_behind_a_prompt_does_not_matter() -> None:
    """Numbers that are none, in the memory that its length is rounded up by."""
    step, plain = Step(STEPS["one"], "auto"), bind(TritonKernels(CHIP).kernels(SPEC), SPEC)
    ours = PromptAttention(plain.paged_attention, Heads(CHIP), SDPBackend.MATH)
    held, plan = plain.new_cache(step.layer, step.blocks, 16, "cpu"), plain.plan_attention(step.inputs, step.layer, 16)
    plain.kv_write(step.k, step.v, held, plan)
    for plane in held.planes:
        plane[NULL_BLOCK] = torch.nan
    memory = torch.full((len(step.q) + GRAIN, *step.q.shape[1:]), torch.nan, dtype=step.q.dtype)
    memory[: len(step.q)] = step.q
    there = ours.paged_attention(memory[: len(step.q)], held, plan, 0.3)
    assert torch.equal(there, ours.paged_attention(step.q, held, plan, 0.3))
    assert torch.isfinite(there).all()


def test_a_prompt_that_goes_on_is_not_fresh() -> None:
    for rows in (((16, MIN_TOKENS),), ((0, MIN_TOKENS), (0, MIN_TOKENS - 1))):
        step, ops = Step(rows, "auto"), bind(TritonKernels(CHIP).kernels(SPEC), SPEC)
        assert not only_fresh(ops.plan_attention(step.inputs, step.layer, 16))


def test_heads_that_cudnn_refuses_are_left_to_the_others() -> None:
    assert [dim for dim in (16, 20, 100, 96, 128, 136) if takes_heads(dim)] == [16, 96, 128]
