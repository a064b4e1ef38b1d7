"""The ops that the native library implements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anychip.ops.op import Kernel, NumericClass, OpSpec
from anychip.ops.registry import OPS
from anychip_cpu.experts import Experts
from anychip_cpu.native.attention import NativeAttention, plan_attention, unsupported
from anychip_cpu.native.cache import copy_blocks, new_cache
from anychip_cpu.native.library import Library
from anychip_cpu.native.linear import NativeLinear
from anychip_cpu.native.tokens import NativeTokens

WITH_WEIGHTS = ("linear", "experts", "norm_linear", "gated_mlp")


def native_kernels(library: Library, spec: OpSpec) -> Mapping[str, Kernel]:
    """Kernels for a model; those that cannot serve it are left out, the attention family whole."""
    functions = _row_functions(library) if spec.dtype in ("float32", "bfloat16") else {}
    if not unsupported(spec, library):
        functions |= _attention_functions(NativeAttention(library))
    return {name: Kernel(function, numeric=_numeric(name, spec)) for name, function in functions.items()}


def _numeric(name: str, spec: OpSpec) -> NumericClass:
    if spec.kv_dtype and OPS[name].family == "attention":
        return "coded-cache"
    return "int8-activation" if spec.weight_formats and name in WITH_WEIGHTS else "native"


def _row_functions(library: Library) -> dict[str, Callable[..., Any]]:
    linear, tokens = NativeLinear(library), NativeTokens(library)
    return {
        "rms_norm": linear.rms_norm,
        "add_rms_norm": linear.add_rms_norm,
        "silu_mul": linear.silu_mul,
        "gelu_mul": linear.gelu_mul,
        "linear": linear.linear,
        "experts": Experts(linear.linear, linear.silu_mul, linear.gelu_mul).experts,
        "norm_linear": linear.norm_linear,
        "gated_mlp": linear.gated_mlp,
        "embedding": tokens.embedding,
        "greedy": tokens.greedy,
        "sample": tokens.sample,
        "take_highest": tokens.take_highest,
        "take_drawn": tokens.take_drawn,
    }


def _attention_functions(attention: NativeAttention) -> dict[str, Callable[..., Any]]:
    return {
        "new_cache": new_cache,
        "copy_blocks": copy_blocks,
        "plan_attention": plan_attention,
        "kv_write": attention.kv_write,
        "paged_attention": attention.paged_attention,
        "qk_norm_rope_kv_write": attention.qk_norm_rope_kv_write,
    }
