"""What happens to each matrix at load: quantized if that was asked for, then repacked by the platform."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from anychip.weights.quantize import fits, quantize
from anychip.weights.scheme import GROUP_SIZES, Scheme
from anychip.weights.weight import Weight

if TYPE_CHECKING:
    from anychip.runner.platform import TorchPlatform


class Preparation:
    """Called once with each complete matrix; afterwards it tells the bytes saved, and a note for the log."""

    def __init__(self, platform: TorchPlatform, scheme: Scheme | None, dtype: torch.dtype) -> None:
        self._platform = platform
        self._scheme = scheme
        self._dtype = dtype
        self._kept = scheme is not None and scheme.format in platform.capabilities.weight_formats
        self._count = self._quantized = self._others = self._mixed = 0
        self.saved = 0
        """Bytes that all matrices would take in the model's type, less those that they take."""

    def __call__(self, weight: Weight) -> Weight:
        """The matrix as the bound `linear` reads it."""
        self._count += 1
        if self._scheme is not None and fits(weight, self._scheme):
            scheme = self._scheme.of(weight.role)
            self._quantized += 1
            self._others += scheme.format != self._scheme.format
            weight = quantize(weight, scheme)
        if weight.quantization is not None and not self._keeps(weight.quantization.format):
            self._mixed += 1
            weight = weight.dequantized(self._dtype)
        self.saved += weight.shape[0] * weight.shape[1] * self._dtype.itemsize - weight.nbytes
        return self._platform.prepare_weight(weight)

    def _keeps(self, name: str) -> bool:
        """Whether the platform multiplies a format as it is; of a mixture it does all or nothing."""
        return name in self._platform.capabilities.weight_formats and (self._scheme is None or self._kept)

    def note(self) -> str:
        """A line for the start-up log; empty where there is nothing to say."""
        if self._scheme is None:
            mixed = f"weights: {self._mixed} matrices joined from several types dequantized to {str(self._dtype)[6:]}"
            return mixed if self._mixed else ""
        name, group, rest = self._scheme.format, self._scheme.group_size, self._count - self._quantized
        line = f"quantization: {name}, {self._quantized} of {self._count} matrices"
        if rest:
            line += f"; {rest} stay as they are (a router, or no whole groups of {group or GROUP_SIZES[0]} inputs)"
        if self._others:
            line += f"; {self._others} became int8, which hurts them less"
        if not self._kept:
            line += f"; this platform has no kernels for {name}: rounded, then computed as {str(self._dtype)[6:]}"
        return line
