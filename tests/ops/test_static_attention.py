"""Attention with static shapes against the reference, in every case of the kit."""

from dataclasses import replace

import pytest
import torch

from anychip.ops.attention_cases import attention_cases
from anychip.ops.bind import bind
from anychip.ops.op import Kernel
from anychip.ops.ragged import ROWS, Ragged, ragged_attention
from anychip.ops.registry import ATTENTION_OPS, OPS
from anychip.ops.specs import case_specs
from anychip.ops.static_attention import STATIC_ATTENTION, static_plan, static_ragged_attention
from anychip.reference.platform import ReferencePlatform
from anychip.testing.attention_ops import attention_trials
from anychip.testing.op_checks import Bound

SPECS = case_specs("float32")


def problems(name, spec, kernels=STATIC_ATTENTION):
    """What the kit finds wrong in one op of the family, by case."""
    bound = Bound(ReferencePlatform(), spec, bind(kernels, spec), bind({}, spec))
    trials = attention_trials(OPS[name], bound, bound.tolerance(OPS[name]), attention_cases)
    return {label: problem for label, trial in trials if (problem := trial())}


@pytest.mark.parametrize("name", [op.name for op in ATTENTION_OPS])
@pytest.mark.parametrize(
    "spec", [*SPECS, replace(SPECS[1], kv_dtype="int8")], ids=lambda spec: f"{spec.head_dim} {spec.kv_dtype}"
)
def test_the_family_computes_what_the_reference_does(name, spec):
    assert problems(name, spec) == {}


def test_a_wrong_window_would_be_seen():
    def narrower(inputs, spec, block_size):
        plan = static_plan(inputs, spec, block_size)
        return plan if plan.window is None else replace(plan, window=plan.window - 1)

    assert problems("paged_attention", SPECS[1], {**STATIC_ATTENTION, "plan_attention": Kernel(narrower)})


@pytest.mark.parametrize("lengths", ROWS.values(), ids=ROWS.keys())
def test_every_token_sees_its_own_row(lengths):
    q, k, v = (torch.randn(sum(lengths), heads, 16) for heads in (4, 2, 2))
    rows = Ragged.of(lengths)
    given, wanted = (attend(q, k, v, rows, 0.25) for attend in (static_ragged_attention, ragged_attention))
    torch.testing.assert_close(given, wanted, atol=1e-5, rtol=1e-5)


def test_what_is_no_number_stays_in_its_row():
    rows = Ragged.of((3, 4))
    for broken in ("k", "v"):
        parts = {name: torch.randn(7, 2, 8) for name in "qkv"}
        clean = static_ragged_attention(*parts.values(), rows, 0.3)
        parts[broken][5] = float("nan")
        given = static_ragged_attention(*parts.values(), rows, 0.3)
        assert torch.equal(given[:3], clean[:3])
        assert given[3:].isnan().all()
