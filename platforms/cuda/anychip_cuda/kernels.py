"""The kernels of this platform: Triton's, cuBLAS's, and a library's for long prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from anychip.ops.op import Kernel, OpSpec
from anychip.ops.shapes import dtype_of
from anychip.triton.attention.attention import Attention
from anychip.triton.attention.rotary import Heads
from anychip.triton.chip import Chip
from anychip.triton.provider import TritonKernels
from anychip_cuda.libraries import Library
from anychip_cuda.prompts import PromptAttention


def cuda_kernels(chip: Chip, spec: OpSpec, library: Library | None = None) -> Mapping[str, Kernel]:
    """Kernels by op name for one chip and model: Triton's, with attention of long prompts by `library` if it can.

    Triton's linear layers leave products of many tokens to cuBLAS, which torch calls.
    """
    kernels = TritonKernels(chip).kernels(spec)
    if library is None or library.refuses(spec):
        return kernels
    attention = Attention(chip, spec.num_heads, dtype_of(spec.dtype))
    prompts = PromptAttention(attention, Heads(chip, query_overread=library.query_overread), library)
    ours: dict[str, Callable[..., Any]] = {
        "plan_attention": prompts.plan_attention,
        "kv_write": prompts.kv_write,
        "paged_attention": prompts.paged_attention,
        "qk_norm_rope_kv_write": prompts.qk_norm_rope_kv_write,
    }
    return {**kernels, **{name: replace(kernels[name], function=function) for name, function in ours.items()}}
