"""The reference attention against the textbook, one row at a time; each property with a control that must fail."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from anychip.ops import attention
from anychip.ops.attention_cases import ROWS, AttentionCase, attention_cases, filled_cache, run_attention_case
from anychip.ops.bind import bind
from anychip.ops.op import OpSpec
from anychip.ops.parts import Ops
from anychip.ops.specs import case_specs

SPECS = case_specs("float32")


def cases(spec: OpSpec) -> list[AttentionCase]:
    return list(attention_cases(torch.Generator().manual_seed(5), spec))


def mixed(spec: OpSpec) -> AttentionCase:
    return next(case for case in cases(spec) if case.label == "mixed")


def textbook(case: AttentionCase) -> torch.Tensor:
    """Softmax of masked scores, in float64, from the rows' own keys and values in order."""
    start, lengths = case.inputs.host_query_start.tolist(), case.inputs.host_seq_lens.tolist()
    outputs, used = [], 0
    for row, length in enumerate(lengths):
        new = slice(start[row], start[row + 1])
        cached = length - (new.stop - new.start)
        old = slice(used, used + cached)
        used += cached
        k, v = (
            torch.cat([history[old], fresh[new]]).double().repeat_interleave(case.q.shape[1] // case.k.shape[1], 1)
            for history, fresh in ((case.history_k, case.k), (case.history_v, case.v))
        )
        scores = torch.einsum("tnd,snd->nts", case.q[new].double(), k) * case.scale
        if case.softcap:
            scores = case.softcap * torch.tanh(scores / case.softcap)
        distance = torch.arange(cached, length)[:, None] - torch.arange(length)[None]
        visible = (distance >= 0) & (distance < (case.spec.window or length))
        weights = scores.masked_fill(~visible, float("-inf")).exp()
        sink = 0.0 if case.sinks is None else case.sinks.double().exp()[:, None, None]
        outputs.append(torch.einsum("nts,snd->tnd", weights / (weights.sum(-1, keepdim=True) + sink), v))
    return torch.cat(outputs)


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.num_heads}:{spec.num_kv_heads}")
def test_equals_the_textbook(spec: OpSpec) -> None:
    ops, labels = bind({}, spec), set()
    for case in cases(spec):
        assert error(run_attention_case(ops, case), textbook(case)) < 2e-6, case.label
        labels.add(case.label)
    assert labels >= {*ROWS, "strided"}


@pytest.mark.parametrize("limit", [1, 1 << 12])
def test_memory_bound_changes_nothing(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = mixed(SPECS[1])
    whole = run_attention_case(bind({}, SPECS[1]), case)
    monkeypatch.setattr(attention, "MAX_SCORES", limit)
    assert error(run_attention_case(bind({}, SPECS[1]), case), whole) < 1e-6


def attend_with(ops: Ops, case: AttentionCase, changed: AttentionCase) -> torch.Tensor:
    """Write as `case` says, read as `changed` says."""
    cache, plan = filled_cache(ops, case)
    ops.kv_write(case.k, case.v, cache, plan)
    read = ops.plan_attention(changed.inputs, changed.spec, changed.block_size)
    return ops.paged_attention(changed.q, cache, read, changed.scale, changed.softcap, changed.sinks)


def test_a_shuffled_table_is_noticed() -> None:
    """Negative control: reading through other blocks than were written must not pass."""
    case = mixed(SPECS[0])
    table = case.inputs.block_table.flip(0)
    changed = replace(case, inputs=replace(case.inputs, block_table=table))
    assert not error(attend_with(bind({}, SPECS[0]), case, changed), textbook(case)) < 0.1


def test_a_forgotten_window_is_noticed() -> None:
    spec = SPECS[1]
    case = next(case for case in cases(spec) if case.label == "mixed, window 24")
    changed = replace(case, spec=replace(case.spec, window=None))
    assert error(attend_with(bind({}, spec), case, changed), textbook(case)) > 0.01


def test_host_lengths_are_only_upper_bounds() -> None:
    """A row whose token is still on the device is planned longer than it is."""
    case = next(case for case in cases(SPECS[0]) if case.label == "decode")
    bounds = case.inputs.host_seq_lens + 1
    bounds = bounds.clip(max=case.inputs.block_table.shape[1] * case.block_size)
    longer = replace(case, inputs=replace(case.inputs, host_seq_lens=bounds, max_seq=int(bounds.max())))
    assert error(run_attention_case(bind({}, SPECS[0]), longer), textbook(case)) < 2e-6


def test_what_others_left_in_a_block_does_no_harm() -> None:
    """NaN and infinity beyond a row's own tokens, and in the null block, stay where they are."""
    case, ops = mixed(SPECS[1]), bind({}, SPECS[1])
    dirty = ops.new_cache(case.spec, case.num_blocks, case.block_size, "cpu")
    dirty.k.fill_(float("nan"))
    dirty.v.fill_(float("inf"))
    assert case.history is not None
    ops.kv_write(case.history_k, case.history_v, dirty, ops.plan_attention(case.history, case.spec, case.block_size))
    plan = ops.plan_attention(case.inputs, case.spec, case.block_size)
    ops.kv_write(case.k, case.v, dirty, plan)
    assert error(ops.paged_attention(case.q, dirty, plan, case.scale), textbook(case)) < 2e-6


def test_copied_blocks_read_the_same() -> None:
    case, ops = mixed(SPECS[0]), bind({}, SPECS[0])
    cache, plan = filled_cache(ops, case)
    ops.kv_write(case.k, case.v, cache, plan)
    blocks = torch.arange(1, case.num_blocks)
    twice = ops.new_cache(case.spec, 2 * case.num_blocks, case.block_size, "cpu")
    twice.k[blocks], twice.v[blocks] = cache.k[blocks], cache.v[blocks]
    ops.copy_blocks(twice, blocks, blocks + case.num_blocks)
    twice.k[blocks] = float("nan")
    table = torch.where(case.inputs.block_table > 0, case.inputs.block_table + case.num_blocks, 0).int()
    moved = ops.plan_attention(replace(case.inputs, block_table=table), case.spec, case.block_size)
    assert error(ops.paged_attention(case.q, twice, moved, case.scale), textbook(case)) < 2e-6


def test_planning_and_single_rows_trace() -> None:
    """References trace with static shapes: nothing in them depends on a device value."""
    case, ops = next(case for case in cases(SPECS[0]) if case.label == "decode"), bind({}, SPECS[0])
    cache, _ = filled_cache(ops, case)

    def step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        plan = ops.plan_attention(replace(case.inputs, positions=positions), case.spec, case.block_size)
        ops.kv_write(k, v, cache, plan)
        return ops.paged_attention(q, cache, plan, case.scale)

    traced = torch.fx.experimental.proxy_tensor.make_fx(step)(case.q, case.k, case.v, case.inputs.positions)
    assert error(traced(case.q, case.k, case.v, case.inputs.positions), textbook(case)) < 2e-6
