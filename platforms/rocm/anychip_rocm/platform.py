"""The AMD platform: kernels in Triton, hipBLASLt's through torch, captured steps, copies that nobody waits for.

Torch names everything of HIP as it does CUDA: its device type is `cuda`, and its RCCL is the backend `nccl`.
"""

from __future__ import annotations

import torch

from anychip.errors import UserError
from anychip.triton.ahead.process import Helpers
from anychip.triton.graphs import GraphKind
from anychip.triton.platform import TritonPlatform, gpu_capabilities, use_device
from anychip_rocm.chips import CHIPS, Architecture

GRAPHS = GraphKind(torch.cuda.CUDAGraph, {"capture_error_mode": "thread_local"})
"""Steps under way elsewhere in the process are none of a capture's business."""


class RocmPlatform(TritonPlatform):
    """One GPU of a known architecture with so many compute units and bytes of memory."""

    def __init__(
        self,
        device: torch.device,
        architecture: Architecture,
        processors: int,
        memory: int = 0,
        early: Helpers | None = None,
    ) -> None:
        capabilities = gpu_capabilities(architecture.formats, architecture.caches, "nccl", memory)
        super().__init__(device, architecture.chip(processors), capabilities, GRAPHS, early=early)


def open_gpu(index: int, quantization: str | None = None, early: Helpers | None = None) -> RocmPlatform:
    """The GPU with HIP's number. Raises `UserError` for one that is not there, not known, or lacks the quantization."""
    device = use_device("cuda", index, "HIP", "HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES")
    properties = torch.cuda.get_device_properties(device)
    architecture = architecture_of(properties.gcnArchName)
    architecture.check(quantization)
    return RocmPlatform(device, architecture, properties.multi_processor_count, properties.total_memory, early)


def architecture_of(name: str) -> Architecture:
    """What is known of an architecture, by torch's name for it, such as `gfx942:sramecc+:xnack-`."""
    plain = name.split(":", maxsplit=1)[0]
    if plain not in CHIPS:
        raise UserError(
            f"This GPU is a {plain}; the platform rocm is made for {', '.join(CHIPS)}.",
            "Choose another GPU by --device rocm:INDEX, or another platform: `anychip platforms` lists them.",
        )
    return CHIPS[plain]
