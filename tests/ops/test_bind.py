"""Binding: the coarsest implementation that accepts the spec, whole families, refusals by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from anychip.errors import UserError
from anychip.ops import attention, composite, norm
from anychip.ops.bind import bind, describe
from anychip.ops.op import Kernel, OpSpec
from anychip.ops.parts import Parts
from anychip.ops.registry import OPS
from anychip.ops.specs import case_specs
from anychip.weights.weight import Weight

SPEC = replace(case_specs("float32")[0], encoder=False)
FAMILY = [name for name, op in OPS.items() if op.family == "attention" and not op.composite]
PLAIN = [name for name, op in OPS.items() if not op.composite and not op.optional and op.used(SPEC)]
UNUSED = {name for name, op in OPS.items() if not op.used(SPEC)}


def own_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return norm.rms_norm(x, weight, eps) + 1


def own_mlp(x: torch.Tensor, gate_up: Weight, down: Weight, activation: str) -> torch.Tensor:
    return x


def references(names: list[str]) -> dict[str, Kernel]:
    return {name: Kernel(OPS[name].reference) for name in names}


def kinds(ops: Parts) -> dict[str, str]:
    return {binding.op: binding.kind for binding in ops.bindings}  # type: ignore[attr-defined]


def test_without_kernels_all_is_reference_or_decomposition() -> None:
    found = kinds(bind({}, SPEC))
    assert {name for name, kind in found.items() if kind == "reference"} == set(PLAIN)
    assert {name for name, kind in found.items() if kind == "decomposition"} == set(OPS) - set(PLAIN) - UNUSED


def test_an_op_that_the_model_never_calls_is_missed_by_nobody() -> None:
    assert {"route", "experts", "layer_norm", "ragged_attention"} == UNUSED
    assert {kinds(bind({}, SPEC))[name] for name in UNUSED} == {"unused"}
    assert "experts" not in describe(bind({}, SPEC))
    sparse = replace(SPEC, num_experts=4, experts_per_token=2, expert_size=8)
    assert "experts" in describe(bind({}, sparse))
    with pytest.raises(UserError, match="experts"):
        bind(references(PLAIN), sparse, strict=True)


def test_a_kernel_is_taken_and_composites_go_through_it() -> None:
    ops = bind({"rms_norm": Kernel(own_norm)}, SPEC)
    assert ops.rms_norm is own_norm
    x, weight = torch.ones(2, SPEC.hidden_size), torch.ones(SPEC.hidden_size)
    identity = Weight(torch.eye(SPEC.hidden_size), (SPEC.hidden_size, SPEC.hidden_size))
    y, residual = ops.norm_linear(x, None, weight, 0.0, identity, None)
    assert torch.equal(y, x + 1)
    assert torch.equal(residual, x)


def test_a_composite_kernel_wins_over_its_parts() -> None:
    ops = bind({"gated_mlp": Kernel(own_mlp)}, SPEC)
    assert ops.gated_mlp is own_mlp
    assert kinds(ops)["gated_mlp"] == "kernel"
    assert kinds(ops)["silu_mul"] == "reference"


def no_large_heads(spec: OpSpec) -> list[str]:
    return [f"head_dim {spec.head_dim}"] if spec.head_dim > 32 else []


def test_an_unsupported_spec_falls_back_and_says_why() -> None:
    kernels = {"rms_norm": Kernel(own_norm, no_large_heads)}
    assert kinds(bind(kernels, SPEC))["rms_norm"] == "kernel"
    ops = bind(kernels, replace(SPEC, head_dim=64))
    assert ops.rms_norm is norm.rms_norm
    assert "reference for rms_norm (head_dim 64)" in describe(ops)


def test_a_family_is_taken_whole_or_not_at_all() -> None:
    assert all(kinds(bind(references(FAMILY), SPEC))[name] == "kernel" for name in FAMILY)
    for missing in FAMILY:
        ops = bind(references([name for name in FAMILY if name != missing]), SPEC)
        assert all(kinds(ops)[name] == "reference" for name in FAMILY)
        assert f"{missing}: no kernel" in describe(ops)


def own_write(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    eps: float,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    cache: attention.KVCache,
    plan: attention.AttentionPlan,
) -> torch.Tensor:
    return q


def test_a_composite_that_touches_caches_needs_its_family() -> None:
    alone = {"qk_norm_rope_kv_write": Kernel(own_write)}
    assert kinds(bind(alone, SPEC))["qk_norm_rope_kv_write"] == "decomposition"
    ops = bind({**alone, **references(FAMILY)}, SPEC)
    assert ops.qk_norm_rope_kv_write is own_write


def test_unknown_ops_are_refused() -> None:
    with pytest.raises(UserError, match="'rmsnorm', which is no op"):
        bind({"rmsnorm": Kernel(own_norm)}, SPEC)


def renamed(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    return x


def defaulted(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    return x


def by_keyword(x: torch.Tensor, weight: torch.Tensor, *, eps: float) -> torch.Tensor:
    return x


def longer(x: torch.Tensor, weight: torch.Tensor, eps: float, scale: float) -> torch.Tensor:
    return x


@pytest.mark.parametrize("function", [renamed, defaulted, by_keyword, longer])
def test_other_signatures_are_refused_by_name(function: object) -> None:
    with pytest.raises(UserError, match="'rms_norm'"):
        bind({"rms_norm": Kernel(function)}, SPEC)  # type: ignore[arg-type]


def test_unreadable_signatures_are_refused() -> None:
    with pytest.raises(UserError, match="'silu_mul' cannot be read"):
        bind({"silu_mul": Kernel(torch.add)}, SPEC)


def test_a_composite_reference_is_no_kernel_for_it() -> None:
    with pytest.raises(UserError, match="'norm_linear'"):
        bind({"norm_linear": Kernel(composite.norm_linear)}, SPEC)


def test_strict_names_what_would_fall_back() -> None:
    with pytest.raises(UserError, match=r"rope \(no kernel\)"):
        bind(references([name for name in PLAIN if name != "rope"]), SPEC, strict=True)
    ops = bind(references(PLAIN), SPEC, strict=True)
    assert describe(ops) == ""


def test_refused_references_do_not_run() -> None:
    with pytest.raises(UserError, match=r"no usable kernel for linear \(no kernel\)"):
        bind({}, SPEC, refused=("linear",))
    bind(references(["linear"]), SPEC, refused=("linear",))


def test_the_start_up_line_groups_reasons() -> None:
    line = describe(bind(references(["linear"]), SPEC))
    assert line.startswith("reference for rms_norm, add_rms_norm")
    assert "\n" not in line
    assert "linear" not in line.replace("norm_linear", "")
