"""The device that `triton_kernels.py` runs on, as a platform, and the kit's checks of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from anychip.ops.op import Kernel, OpSpec
from anychip.plugin.contract import Capabilities, Memory
from anychip.runner.platform import TorchPlatform
from anychip.testing.op_checks import check_op
from anychip.triton.chip import Chip
from anychip.triton.provider import TritonKernels
from anychip_cuda.chips import chip_of


class Device(TorchPlatform):
    """The first device, with these kernels."""

    def __init__(self, dtypes: tuple[str, ...], overlap: bool) -> None:
        self.dtypes, self.overlap = dtypes, overlap

    @property
    def capabilities(self) -> Capabilities:
        """Types alone."""
        return Capabilities(dtypes=self.dtypes)

    @property
    def device(self) -> torch.device:
        """The first."""
        return torch.device("cuda", 0)

    def memory(self) -> Memory:
        """Free and total."""
        return Memory(*torch.cuda.mem_get_info())

    def synchronize(self) -> None:
        """Wait."""
        torch.cuda.synchronize()

    def kernels(self, spec: OpSpec) -> Mapping[str, Kernel]:
        """Those under test."""
        return TritonKernels(chip(self.overlap)).kernels(spec)


class Subject:
    """What the kit's checks ask for."""

    def __init__(self, platform: Device) -> None:
        self.torch_platform = platform


def chip(overlap: bool = False) -> Chip:
    """The first device."""
    return replace(chip_of(torch.device("cuda", 0)), overlap=overlap)


def check_one(name: str) -> str:
    """The kit's check of one op in every type, then in one with overlapping launches."""
    lines = []
    for dtypes, overlap in ((("bfloat16",), True), (("float32", "float16"), False)):
        try:
            lines.append(check_op(name, Subject(Device(dtypes, overlap))))  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 (a line of the table)
            lines.append(f"WRONG {dtypes}: {'; '.join(map(str, error.args))[:600]}")
    return f"check {name}: {' | '.join(lines)}"
