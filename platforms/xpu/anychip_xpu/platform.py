"""The Intel GPU platform: torch.xpu, Triton's and oneDNN's kernels, oneCCL between GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from anychip.errors import UserError
from anychip.ops.op import Kernel, OpSpec
from anychip.triton.platform import TritonPlatform, gpu_capabilities, use_device
from anychip.triton.provider import MAX_HEAD_DIM
from anychip_xpu.chips import Kind, kind_of

BACKEND = "xccl"
"""torch.distributed's name for oneCCL in builds of torch for Intel GPUs."""
RUNTIME = (
    "Install Intel's compute runtime for Level Zero, on Debian and Ubuntu the package libze-intel-gpu1; it does not "
    "know older integrated GPUs: choose another --device there."
)


class XpuPlatform(TritonPlatform):
    """One GPU of a known kind with so many cores. Steps are launched kernel by kernel.

    Torch has graphs for these GPUs; nobody has tried ours on them.
    """

    def __init__(self, device: torch.device, kind: Kind, processors: int) -> None:
        super().__init__(device, kind.chip(processors), gpu_capabilities(kind.formats, kind.caches, BACKEND))
        self.kind = kind

    def kernels(self, spec: OpSpec) -> Mapping[str, Kernel]:
        """Triton's, which leave large products to oneDNN; attention where its heads fit the registers."""
        kernels = super().kernels(spec)
        paged = kernels["paged_attention"]
        return {**kernels, "paged_attention": replace(paged, unsupported=self._unsupported(paged.unsupported))}

    def _unsupported(self, others: Callable[[OpSpec], list[str]]) -> Callable[[OpSpec], list[str]]:
        largest = self.kind.largest_head

        def reasons(spec: OpSpec) -> list[str]:
            too_large = f"head size {spec.head_dim} is larger than {largest}, which is what fits this chip's registers"
            return others(spec) + ([too_large] if largest < spec.head_dim <= MAX_HEAD_DIM else [])

        return reasons


def open_gpu(index: int) -> XpuPlatform:
    """The GPU with Level Zero's number. Raises `UserError` for one that is not there."""
    if not torch.xpu.is_available():
        raise UserError("Intel's driver library, Level Zero, offers PyTorch no GPU.", RUNTIME)
    device = use_device("xpu", index, "Level Zero", "ZE_AFFINITY_MASK")
    properties = torch.xpu.get_device_properties(device)
    kind = kind_of(properties.sub_group_sizes, properties.has_subgroup_matrix_multiply_accumulate)
    return XpuPlatform(device, kind, properties.gpu_subslice_count)
