"""Whole prompts in Triton's interpreter, with plain attention in the place of libraries', which need a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.triton.mode import require_triton

require_triton(interpreted=True)

from anychip.cache.storage import stored_as
from anychip.engine.batch import NULL_BLOCK
from anychip.ops.attention import AttentionInputs
from anychip.ops.attention_cases import batch_inputs, shuffled_table
from anychip.ops.bind import bind
from anychip.ops.op import OpSpec
from anychip.ops.parts import Ops
from anychip.ops.shapes import normal
from anychip.plugin.contract import KVSpec, Plane
from anychip.runner.padding import Padding
from anychip.testing.compare import normalized_error
from anychip.triton.chip import Chip
from anychip_cuda.cudnn import GRAIN, Cudnn
from anychip_cuda.kernels import cuda_kernels
from anychip_cuda.libraries import Keys, Library, Prompts
from anychip_cuda.prompts import ROOM, PromptPlan, first_taken
from anychip_cuda.recorded import recording

CHIP, KV_HEADS, DIM, LONG = Chip(6), 1, 16, 1024
SPEC = OpSpec("float16", 64, 4, KV_HEADS, DIM, 100)
CUDNN = Cudnn(backend="MATH")


@dataclass(frozen=True, slots=True)
class Masked(Library):
    """One product over all prompts, most of which is hidden; it takes keys as they were computed."""

    takes_computed = True
    capturable = True
    max_keys_per_token = 5

    @property
    def name(self) -> str:
        return "Masked"

    def refuses(self, spec: OpSpec) -> list[str]:
        return []

    def attend(
        self, q: torch.Tensor, keys: Keys, prompts: Prompts, scale: float, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        assert (keys.computed is not None) == (prompts.alike and prompts.fresh)
        count = prompts.key_start[-1]
        k, v = keys.computed or keys.read(0, count, count)
        scores = torch.einsum("tnd,sd->nts", q.float(), k[:, 0].float()) * scale
        mask = seen(prompts)
        shares = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        attended = torch.einsum("nts,sd->tnd", shares, v[:, 0].float()).to(q.dtype)
        if out is None:
            return attended
        rows = mask.any(1)
        out[rows] = attended[rows]
        return out


def seen(prompts: Prompts) -> torch.Tensor:
    """[t, K] which keys a token sees."""
    mask = torch.zeros(prompts.query_start[-1], prompts.key_start[-1], dtype=torch.bool)
    starts = (prompts.device_query_start.tolist(), prompts.device_key_start.tolist())
    pairs = (pairwise(each) for each in ((prompts.query_start, prompts.key_start) if prompts.alike else starts))
    for (first, last), (key, end) in zip(*pairs, strict=True):
        tokens, keys = last - first, end - key
        mask[first:last, key:end] = torch.ones(tokens, keys, dtype=torch.bool).tril(keys - tokens)
    return mask


STEPS: dict[str, tuple[Library, tuple[tuple[int, int], ...]]] = {
    "one, cuDNN": (CUDNN, ((0, LONG + 3),)),
    "of one length, cuDNN": (CUDNN, ((0, LONG), (0, LONG))),
    "beside single tokens, cuDNN": (CUDNN, ((0, 1), (0, 1), (0, LONG), (0, LONG + 21))),
    "one": (Masked(), ((0, 40),)),
    "of one length": (Masked(), ((0, 33), (0, 33))),
    "of several lengths": (Masked(), ((0, 5), (0, 70), (0, 33))),
    "beside single tokens": (Masked(), ((0, 1), (30, 1), (0, 40))),
    "behind one that has few": (Masked(), ((20, 1), (17, 3), (0, 40), (0, 19))),
    "after what is cached": (Masked(), ((20, 1), (17, 30), (0, 40), (5, 9))),
    "alike, after what is cached": (Masked(), ((33, 10), (33, 10))),
}


class Step:
    """Rows of (cached, new) tokens in a shuffled cache."""

    def __init__(self, rows: tuple[tuple[int, int], ...], cache: str = "auto") -> None:
        generator = torch.Generator().manual_seed(3)
        table, self.blocks = shuffled_table(generator, [sum(row) for row in rows], 16)
        self.inputs = batch_inputs(rows, table)
        cached = tuple((0, before) for before, _ in rows if before)
        self.history = batch_inputs(cached, table[[before > 0 for before, _ in rows]]) if cached else None
        planes = tuple(Plane(name, (KV_HEADS, DIM), SPEC.dtype) for name in "kv")
        self.layer, tokens = stored_as(KVSpec("full", planes), cache), sum(new for _, new in rows)
        self.q = normal(generator, tokens, SPEC.num_heads, DIM, dtype=SPEC.dtype)
        before = sum(row[0] for row in rows)
        self.k, self.v = (normal(generator, before + tokens, KV_HEADS, DIM, dtype=SPEC.dtype) for _ in range(2))
        self.before = before

    def attend(self, ops: Ops, spoil: float | None = None) -> torch.Tensor:
        cache = ops.new_cache(self.layer, self.blocks, 16, "cpu")
        if spoil is not None:
            for plane in cache.planes:
                plane[NULL_BLOCK] = spoil
        if self.history is not None:
            plan = ops.plan_attention(self.history, self.layer, 16)
            ops.kv_write(self.k[: self.before], self.v[: self.before], cache, plan)
        plan = ops.plan_attention(self.inputs, self.layer, 16)
        ops.kv_write(self.k[self.before :], self.v[self.before :], cache, plan)
        return ops.paged_attention(self.q, cache, plan, 0.3)


def given_singles(rows: tuple[tuple[int, int], ...]) -> int:
    return sum(new == 1 for _, new in rows)


def ops_with(library: Library) -> Ops:
    return bind(cuda_kernels(CHIP, SPEC, library), SPEC)


@pytest.mark.parametrize(("step", "cache"), [*((step, "auto") for step in STEPS), ("one, cuDNN", "int8")])
def test_whole_prompts_see_their_own_tokens(step: str, cache: str) -> None:
    library, rows = STEPS[step]
    ours, given = ops_with(library), Step(rows, cache)
    assert isinstance(ours.plan_attention(given.inputs, given.layer, 16), PromptPlan)
    got, wanted = given.attend(ours), given.attend(bind({}, SPEC))
    assert normalized_error(got, wanted) < 3e-3
    assert normalized_error(got.roll(1, 0), wanted) > 0.1


@pytest.mark.parametrize(
    ("rows", "keys"),
    [
        (((0, 40),), 0),
        (((0, 40),), 1),
        (((0, 40), (0, 70)), 1),
        (((3, 1), (30, 1), (0, 40), (0, 19)), 1),
        (((20, 1), (17, 3), (17, 30), (0, 40), (5, 9)), 2),
        (((20, 1), (33, 1), (17, 3)), 1),
    ],
)
@pytest.mark.parametrize("room", [0, 1, 13])
def test_a_recorded_step_serves_whatever_rows_come(rows: tuple[tuple[int, int], ...], keys: int, room: int) -> None:
    """Padded to more tokens and rows, of which the host knows no more than how many there are at most.

    It may know how many bring one token, or count these with all others.
    """
    singles = 0 if room == 1 else given_singles(rows)
    given, ours = Step(rows), ops_with(Masked())
    wanted = given.attend(bind({}, SPEC))
    padding = Padding(len(given.q) + room, len(rows) + (1 if room else 0) + (3 if keys else 0), 99)
    real, start = given.inputs, given.inputs.host_query_start
    padding.fill(
        SimpleNamespace(
            token_ids=np.zeros(start[-1], np.int32),
            positions=real.positions.numpy(),
            query_start=start,
            seq_lens=real.host_seq_lens,
            logits_at=start[1:] - 1,
            rows=np.arange(len(rows), dtype=np.int32),
        )
    )
    packed = np.zeros(padding.size, np.int32)
    padding.pack(packed)
    table = torch.zeros(padding.rows, real.block_table.shape[1], dtype=torch.int32)
    table[: len(rows)] = real.block_table
    held = padding.inputs(torch.from_numpy(packed), [table], 4096)
    apart = tuple(replace(group, num_single=singles) for group in held.groups)
    planned: list[AttentionInputs] = []
    recording(lambda inputs: planned.extend(inputs.groups), keys)(replace(held, groups=apart))
    given.inputs = planned[0]
    more = torch.zeros(room, *given.q.shape[1:], dtype=given.q.dtype)
    given.q = torch.cat([given.q, more])
    for name in ("k", "v"):
        setattr(given, name, torch.cat([getattr(given, name), more[:, :1]]))
    got = given.attend(ours)[: len(wanted)]
    assert normalized_error(got, wanted) < 3e-3
    assert normalized_error(got.roll(1, 0), wanted) > 0.1


@pytest.mark.parametrize("rows", [((0, 40),), ((11, 1), (0, 40)), ((0, 21), (0, 40))])
def test_turned_keys_are_attended_to(rows: tuple[tuple[int, int], ...]) -> None:
    """Beside the cache or out of it: what the composite has written."""
    given, table = Step(rows), torch.rand(64, DIM)
    found = []
    for ops in (ops_with(Masked()), bind({}, SPEC)):
        cache, plan = ops.new_cache(given.layer, given.blocks, 16, "cpu"), None
        if given.history is not None:
            plan = ops.plan_attention(given.history, given.layer, 16)
            ops.kv_write(given.k[: given.before], given.v[: given.before], cache, plan)
        plan = ops.plan_attention(given.inputs, given.layer, 16)
        k, v = given.k[given.before :], given.v[given.before :]
        norm = torch.rand(DIM, dtype=k.dtype)
        norm[:] = torch.linspace(0.5, 1.5, DIM)
        q = ops.qk_norm_rope_kv_write(
            given.q, k, v, norm, norm, 1e-5, given.inputs.positions, table, cache, plan
        )  # fmt: skip
        found.append(ops.paged_attention(q, cache, plan, 0.3))
    assert normalized_error(*found) < 3e-3


def test_what_lies_behind_a_prompt_does_not_matter() -> None:
    """Numbers that are none, in the memory that its length is rounded up by."""
    library, rows = STEPS["one, cuDNN"]
    given, ours = Step(rows), ops_with(library)
    alone = given.attend(ours, torch.nan)
    memory = torch.full((len(given.q) + GRAIN, *given.q.shape[1:]), torch.nan, dtype=given.q.dtype)
    memory[: len(given.q)] = given.q
    given.q = memory[: len(given.q)]
    there = given.attend(ours, torch.nan)
    assert torch.equal(there, alone)
    assert torch.isfinite(there).all()


def test_what_is_no_number_in_one_prompt_stays_there() -> None:
    """A library multiplies values that a row does not see by zero, which makes them none of its own."""
    given, ours = Step(((0, 9), (0, 30), (0, 12))), ops_with(Masked())
    wanted = given.attend(ours)
    for value in (torch.nan, torch.inf):
        given.v[9 + 20] = value
        got = given.attend(ours)
        assert torch.equal(got[: 9 + 20], wanted[: 9 + 20])
        assert torch.equal(got[9 + 30 :], wanted[9 + 30 :])
        assert torch.isnan(got[9 + 20 : 9 + 30]).all()


def test_rows_are_a_library_s_from_the_last_other_one_on() -> None:
    for rows, row in (
        (((0, 40),), 0),
        (((300, 40),), 1),
        (((100, 40),), 0),
        (((30, 1), (0, 40), (0, 9)), 1),
        (((0, 40), (70, 2), (0, 40)), 2),
        (((0, 40), (0, 1)), 2),
    ):
        inputs = Step(rows).inputs
        assert first_taken(inputs.host_query_start, inputs.host_seq_lens, Masked()) == row
    for second, row in (((0, LONG), 0), ((0, LONG - 1), 2), ((1, LONG), 2)):
        inputs = Step(((0, LONG), second)).inputs
        assert first_taken(inputs.host_query_start, inputs.host_seq_lens, CUDNN) == row


def test_a_window_smaller_than_a_prompt_leaves_it_to_triton() -> None:
    given, ours = Step(((0, 40),)), ops_with(Masked())
    planes = given.layer.planes
    for window, whole in ((39, False), (40, True)):
        plan = ours.plan_attention(given.inputs, KVSpec("sliding", planes, window), 16)
        assert isinstance(plan, PromptPlan) == whole


def test_more_keys_than_there_is_room_for_are_left_to_triton() -> None:
    given = Step(((0, 40),))
    for dim, taken in ((DIM, True), (ROOM, False)):
        planes = tuple(Plane(name, (KV_HEADS, dim), SPEC.dtype) for name in "kv")
        plan = ops_with(Masked()).plan_attention(given.inputs, KVSpec("full", planes), 16)
        assert isinstance(plan, PromptPlan) == taken


def test_models_that_a_library_refuses_are_left_to_triton() -> None:
    refused = OpSpec("float16", 64, 4, KV_HEADS, DIM, 100, softcap=True)
    ours = bind(cuda_kernels(CHIP, refused, CUDNN), refused)
    given = Step(((0, LONG),))
    assert not isinstance(ours.plan_attention(given.inputs, given.layer, 16), PromptPlan)
