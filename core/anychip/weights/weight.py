"""The canonical weight: loaders read every checkpoint format into it, platforms repack it for their kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from anychip.weights.role import Role


@dataclass(frozen=True, slots=True)
class Part:
    """A named run of rows of a fused matrix, such as q, k and v, or gate and up."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Quantization:
    """How stored values become numbers: (value - zero_point) * scale, with one of each for every group of inputs."""

    format: str
    """int4 (groups of 32 or more), int8 (symmetric), fp8 (values are floats), or kquant (groups of 16, or 8 bits with
    zero points)."""
    bits: int
    """4 or 8; a value takes a byte of its own in either case."""
    group_size: int
    """Neighbouring inputs of a row that share a scale; 0: the whole row."""
    scale: torch.Tensor
    """[N, K / group_size] float."""
    zero_point: torch.Tensor | None = None
    """The same shape; None: symmetric."""
    activation: str = "none"
    """How kernels may round activations: `none`, `token` (a scale for each token or finer, at run time), `group` (for
    each few inputs of a token) or `static`."""

    def on_each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Quantization:
        """A copy whose scales and zero points went through `change`."""
        zero_point = None if self.zero_point is None else change(self.zero_point)
        return replace(self, scale=change(self.scale), zero_point=zero_point)


@dataclass(frozen=True, slots=True)
class Weight:
    """A linear layer's matrix [N, K]: N outputs, K inputs."""

    values: torch.Tensor | None
    """[N, K] in a float type, or with `quantization` int8, uint8 or 8-bit floats; None once a platform dropped them."""
    shape: tuple[int, int]
    """(N, K)."""
    parts: tuple[Part, ...] = ()
    """The checkpoint's matrices of which it is made, from the first row on."""
    quantization: Quantization | None = None
    prepared: object | None = None
    """The platform's own repacking for its kernels, made once at load by `prepare_weight`."""
    exact: bool = False
    """Whether it is never quantized at load: a router, whose choices of experts would change."""
    matrices: int = 1
    """Matrices of equal shape that are stacked by rows, a model's experts; each has N / matrices rows."""
    role: Role = "inner"
    """What it is for, which decides how it is rounded at load."""

    def dequantize(self, dtype: torch.dtype) -> torch.Tensor:
        """The matrix [N, K] in `dtype`: defines what a quantized weight means."""
        assert self.values is not None, "the platform dropped this weight's values"
        if self.quantization is None:
            return self.values.to(dtype)
        quantization = self.quantization
        rows, columns = self.shape
        group = quantization.group_size or columns
        values = self.values.float().view(rows, columns // group, group)
        if quantization.zero_point is not None:
            values = values - quantization.zero_point.float().unsqueeze(-1)
        return (values * quantization.scale.float().unsqueeze(-1)).view(rows, columns).to(dtype)

    def dequantized(self, dtype: torch.dtype) -> Weight:
        """A copy that is not quantized, in `dtype`."""
        return replace(self, values=self.dequantize(dtype), quantization=None)

    @property
    def nbytes(self) -> int:
        """Bytes of values, scales and zero points, 4-bit values counted as half a byte."""
        if self.values is None:
            return 0
        if self.quantization is None:
            return self.values.nbytes
        scale, zero_point = self.quantization.scale, self.quantization.zero_point
        factors = scale.nbytes + (0 if zero_point is None else zero_point.nbytes)
        return self.values.numel() * self.quantization.bits // 8 + factors

    def to(self, device: torch.device | str) -> Weight:
        """A copy on a device; the weight must not be prepared yet."""
        assert self.values is not None and self.prepared is None, "moved after it was prepared"
        quantization = None if self.quantization is None else self.quantization.on_each(lambda each: each.to(device))
        return replace(self, values=self.values.to(device), quantization=quantization)

    def stacked(self, matrices: int) -> Weight:
        """The same weight, read as so many matrices one below the other."""
        assert self.shape[0] % matrices == 0, "stacked matrices have equal shapes"
        return replace(self, matrices=matrices)

    def split(self) -> tuple[Weight, ...]:
        """Its matrices, each as a weight of its own that shares this one's memory."""
        rows = self.shape[0] // self.matrices
        return tuple(self._rows(first, rows) for first in range(0, self.shape[0], rows))

    def _rows(self, first: int, rows: int) -> Weight:
        assert self.values is not None, "the platform dropped this weight's values"
        mine = slice(first, first + rows)
        quantization = None if self.quantization is None else self.quantization.on_each(lambda each: each[mine])
        return Weight(self.values[mine], (rows, self.shape[1]), quantization=quantization)

    def with_prepared(self, prepared: object, keep_values: bool = False) -> Weight:
        """A copy with the platform's repacking; `values` are dropped unless kept."""
        return replace(self, prepared=prepared, values=self.values if keep_values else None)
