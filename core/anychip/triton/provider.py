"""All ops that have kernels in Triton, and the models that these cannot serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anychip.cache.storage import CODES
from anychip.ops.op import Kernel, NumericClass, OpSpec
from anychip.ops.shapes import dtype_of
from anychip.triton.attention.attention import Attention
from anychip.triton.attention.cache import copy_blocks, new_cache
from anychip.triton.attention.encoder import RaggedAttention
from anychip.triton.attention.rotary import Heads
from anychip.triton.chip import Chip
from anychip.triton.experts.experts import Experts
from anychip.triton.keys import settle_keys
from anychip.triton.linear.linear import Linears
from anychip.triton.logits import Logits
from anychip.triton.packing import EXPERT_FORMATS, FORMATS
from anychip.triton.rows import Rows
from anychip.triton.sampling import Sampling

MAX_HEAD_DIM = 256
MIN_HEAD_DIM = 16
"""Head sizes that attention takes."""


@dataclass(frozen=True, slots=True)
class TritonKernels:
    """All kernels for one chip."""

    chip: Chip

    def kernels(self, spec: OpSpec) -> Mapping[str, Kernel]:
        """Kernels by op name for one model; each says for itself why it cannot serve it, if so."""
        settle_keys()
        attention, heads, rows = (
            Attention(self.chip, spec.num_heads, dtype_of(spec.dtype)),
            Heads(self.chip),
            Rows(self.chip),
        )
        experts, sampling, logits = Experts(self.chip), Sampling(self.chip), Logits(self.chip)
        linears = Linears(self.chip, rows)
        return {
            **_kernels(
                unsupported_attention,
                "coded-cache" if spec.kv_dtype in CODES else "native",
                new_cache=new_cache,
                copy_blocks=copy_blocks,
                plan_attention=attention.plan_attention,
                kv_write=heads.kv_write,
                paged_attention=attention.paged_attention,
                qk_norm_rope_kv_write=heads.qk_norm_rope_kv_write,
            ),
            **_kernels(
                unsupported_weights,
                numeric_class(spec),
                linear=linears.linear,
                norm_linear=linears.norm_linear,
                gated_mlp=linears.gated_mlp,
            ),
            **_kernels(unsupported_experts, numeric_class(spec), experts=experts.experts),
            **_kernels(unsupported_heads, ragged_attention=RaggedAttention(self.chip).ragged_attention),
            **_kernels(
                _nothing,
                rms_norm=rows.rms_norm,
                add_rms_norm=rows.add_rms_norm,
                layer_norm=rows.layer_norm,
                rope=heads.rope,
                silu_mul=rows.silu_mul,
                gelu_mul=rows.gelu_mul,
                embedding=rows.embedding,
                route=experts.route,
                greedy=sampling.greedy,
                sample=sampling.sample,
                take_highest=sampling.take_highest,
                take_drawn=sampling.take_drawn,
                apply_penalties=logits.apply_penalties,
                count_tokens=logits.count_tokens,
                add_bias=logits.add_bias,
                mask_tokens=logits.mask_tokens,
                gather_logprobs=logits.gather_logprobs,
            ),
        }


def triton_kernels(chip: Chip, spec: OpSpec) -> Mapping[str, Kernel]:
    """Kernels by op name for one chip and model."""
    return TritonKernels(chip).kernels(spec)


def unsupported_weights(spec: OpSpec) -> list[str]:
    """Why linear layers cannot serve a model; empty if they can."""
    return [f"weights in {name}" for name in spec.weight_formats if name not in FORMATS]


def unsupported_experts(spec: OpSpec) -> list[str]:
    """Why experts cannot serve a model; empty if they can."""
    return [f"weights in {name}" for name in spec.weight_formats if name not in EXPERT_FORMATS]


def numeric_class(spec: OpSpec) -> NumericClass:
    """How exactly linear layers compute, which decides the tolerance that they are tested with."""
    if "fp8" in spec.weight_formats:
        return "fp8-activation"
    return "int8-activation" if "int8" in spec.weight_formats else "native"


def unsupported_heads(spec: OpSpec) -> list[str]:
    """Why attention cannot serve heads of a model's size; empty if it can."""
    if MIN_HEAD_DIM <= spec.head_dim <= MAX_HEAD_DIM:
        return []
    return [f"head size {spec.head_dim} is not between {MIN_HEAD_DIM} and {MAX_HEAD_DIM}"]


def unsupported_attention(spec: OpSpec) -> list[str]:
    """Why attention over the cache cannot serve a model; empty if it can."""
    reasons = unsupported_heads(spec)
    if spec.kv_dtype and spec.kv_dtype not in (spec.dtype, *CODES):
        reasons.append(f"a cache in {spec.kv_dtype} for a model in {spec.dtype}")
    return reasons


def _kernels(
    unsupported: Callable[[OpSpec], list[str]], numeric: NumericClass = "native", **functions: Callable[..., Any]
) -> dict[str, Kernel]:
    return {name: Kernel(function, unsupported, numeric) for name, function in functions.items()}


def _nothing(spec: OpSpec) -> list[str]:
    return []
