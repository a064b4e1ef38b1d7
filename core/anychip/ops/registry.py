"""All ops by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from anychip.ops import attention, composite
from anychip.ops import attention_cases as cases
from anychip.ops.activation import ACTIVATION_OPS
from anychip.ops.composite_cases import gated_mlp_cases, norm_linear_cases, qk_norm_rope_kv_write_cases
from anychip.ops.experts import EXPERT_OPS
from anychip.ops.linear import LINEAR_OPS
from anychip.ops.norm import NORM_OPS
from anychip.ops.op import Op
from anychip.ops.ragged import RAGGED_OPS
from anychip.ops.rope import ROPE_OPS
from anychip.sample.logit_ops import LOGIT_OPS
from anychip.sample.op import SAMPLE_OPS

ATTENTION_OPS = (
    Op("new_cache", attention.new_cache, cases.new_cache_cases, family="attention"),
    Op("copy_blocks", attention.copy_blocks, cases.copy_blocks_cases, family="attention"),
    Op("plan_attention", attention.plan_attention, cases.plan_attention_cases, family="attention"),
    Op("kv_write", attention.kv_write, cases.kv_write_cases, family="attention"),
    Op("paged_attention", attention.paged_attention, cases.paged_attention_cases, family="attention"),
)

COMPOSITE_OPS = (
    Op("norm_linear", composite.norm_linear, norm_linear_cases, composite=True),
    Op(
        "qk_norm_rope_kv_write",
        composite.qk_norm_rope_kv_write,
        qk_norm_rope_kv_write_cases,
        composite=True,
        family="attention",
    ),
    Op("gated_mlp", composite.gated_mlp, gated_mlp_cases, composite=True),
)

_ALL = (
    *NORM_OPS, *ACTIVATION_OPS, *ROPE_OPS, *LINEAR_OPS, *EXPERT_OPS, *ATTENTION_OPS, *RAGGED_OPS, *SAMPLE_OPS,
    *LOGIT_OPS, *COMPOSITE_OPS,
)  # fmt: skip

OPS: Mapping[str, Op] = MappingProxyType({op.name: op for op in _ALL})
"""Every op a platform may bring a kernel for. A composite of a family is optional in it; the plain ops are not."""
