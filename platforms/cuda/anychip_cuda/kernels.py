"""The kernels of this platform: Triton's, cuBLAS's and cuDNN's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from anychip.ops.op import Kernel, OpSpec
from anychip.triton.chip import Chip
from anychip.triton.provider import TritonKernels
from anychip.triton.rotary import Heads
from anychip_cuda.prompts import GRAIN, PromptAttention


def cuda_kernels(chip: Chip, spec: OpSpec) -> Mapping[str, Kernel]:
    """Triton's, which leave large products to cuBLAS and long prompts to cuDNN."""
    kernels, heads = TritonKernels(chip).kernels(spec), Heads(chip, behind=GRAIN)
    prompts = PromptAttention(kernels["paged_attention"].function, heads)
    ours: dict[str, Callable[..., Any]] = {
        "paged_attention": prompts.paged_attention,
        "qk_norm_rope_kv_write": heads.qk_norm_rope_kv_write,
    }
    return {**kernels, **{name: replace(kernels[name], function=function) for name, function in ours.items()}}
