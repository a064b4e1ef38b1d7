"""Every op's implementation on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from anychip.ops.op import Kernel, OpSpec
from anychip.plugin.contract import KVSpec
from anychip.triton.chip import Chip
from anychip.triton.codes import FORMATS
from anychip.triton.provider import MAX_HEAD_DIM, MIN_HEAD_DIM, TritonKernels
from anychip_cuda.prompts import PromptAttention

HAS_FP8 = (8, 9)
"""Compute capability from which there is arithmetic on 8-bit floats."""
OVERLAPS = (9, 0)
"""Compute capability from which a kernel may start before the one it waits for has ended."""


def cuda_kernels(spec: OpSpec, device: torch.device) -> Mapping[str, Kernel]:
    """Kernels for one loaded model."""
    properties = torch.cuda.get_device_properties(device)
    overlap = (properties.major, properties.minor) >= OVERLAPS
    shared_memory: int = properties.shared_memory_per_block_optin  # type: ignore[attr-defined]  # the stub lacks it
    chip = Chip(properties.multi_processor_count, overlap, shared_memory)
    kernels = TritonKernels(chip).kernels(spec)
    paged = kernels["paged_attention"]
    return {**kernels, "paged_attention": replace(paged, function=PromptAttention(paged.function).paged_attention)}


def formats_of(capability: tuple[int, int]) -> tuple[str, ...]:
    """Quantized formats that are kept as they are."""
    return FORMATS if capability >= HAS_FP8 else tuple(name for name in FORMATS if name != "fp8")


def reads_paged(spec: KVSpec) -> bool:
    """Whether attention over such a cache plans on the device, so that a captured step stays right."""
    return all(MIN_HEAD_DIM <= plane.shape[-1] <= MAX_HEAD_DIM for plane in spec.planes)
