"""The kernels of this platform: Triton's, cuBLAS's and cuDNN's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anychip.ops.op import Kernel, OpSpec
from anychip.triton.chip import Chip
from anychip.triton.provider import TritonKernels
from anychip.triton.rotary import Heads
from anychip_cuda.prompts import PromptAttention


def cuda_kernels(chip: Chip, spec: OpSpec) -> Mapping[str, Kernel]:
    """Triton's, which leave large products to cuBLAS and long prompts to cuDNN."""
    kernels = TritonKernels(chip).kernels(spec)
    paged = kernels["paged_attention"]
    prompts = PromptAttention(paged.function, Heads(chip))
    return {**kernels, "paged_attention": replace(paged, function=prompts.paged_attention)}
