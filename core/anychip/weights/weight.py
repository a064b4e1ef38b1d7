"""The canonical weight: every checkpoint format is read into it, every kernel starts from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True, slots=True)
class Part:
    """A named run of output rows: fused weights remember what they were made of (q, k, v; gate, up)."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Quantization:
    """How integer values become numbers: (value - zero_point) * scale, a scale for each group of inputs.

    `format` is int4 (groups of 32 or more), int8 (symmetric), fp8 (whose values are floats), or kquant: groups of 16,
    or 8 bits with zero points. `bits` is 4 or 8, `group_size` the inputs that share a scale
    (0: the whole row), `scale` [N, K / group_size] float, `zero_point` the same shape or None (symmetric). `activation`
    says what may become of activations: `none`, `token` (one scale a token or finer, at run time) or `static`.
    """

    format: str
    bits: int
    group_size: int
    scale: torch.Tensor
    zero_point: torch.Tensor | None = None
    activation: str = "none"

    def on_each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Quantization:
        """The same with scales and zero points passed through `change`."""
        zero_point = None if self.zero_point is None else change(self.zero_point)
        return replace(self, scale=change(self.scale), zero_point=zero_point)


@dataclass(frozen=True, slots=True)
class Weight:
    """A linear layer's matrix [N, K].

    `values` is [N, K] in a float type, or with `quantization` [N, K] int8 / uint8, one value an element. `prepared` is
    the platform's own repacking for its GEMM, made once at load by `prepare_weight`, which may drop `values`.
    """

    values: torch.Tensor | None
    shape: tuple[int, int]
    parts: tuple[Part, ...] = ()
    quantization: Quantization | None = None
    prepared: object | None = None
    exact: bool = False
    """Never rounded at load: a router's, whose choices would change."""
    matrices: int = 1
    """Matrices of equal shape that are stacked by rows, a model's experts; each has N / matrices rows."""

    def dequantize(self, dtype: torch.dtype) -> torch.Tensor:
        """[N, K] in `dtype`. The definition of what the weight means."""
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
        """The same numbers as a plain weight in `dtype`."""
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
        """The same weight, not yet prepared, on a device."""
        assert self.values is not None and self.prepared is None, "moved after it was prepared"
        quantization = None if self.quantization is None else self.quantization.on_each(lambda each: each.to(device))
        return replace(self, values=self.values.to(device), quantization=quantization)

    def stacked(self, matrices: int) -> Weight:
        """The same weight, understood as that many matrices one below the other."""
        assert self.shape[0] % matrices == 0, "stacked matrices have equal shapes"
        return replace(self, matrices=matrices)

    def split(self) -> tuple[Weight, ...]:
        """Its matrices, as views."""
        rows = self.shape[0] // self.matrices
        return tuple(self._rows(first, rows) for first in range(0, self.shape[0], rows))

    def _rows(self, first: int, rows: int) -> Weight:
        assert self.values is not None, "the platform dropped this weight's values"
        mine = slice(first, first + rows)
        quantization = None if self.quantization is None else self.quantization.on_each(lambda each: each[mine])
        return Weight(self.values[mine], (rows, self.shape[1]), quantization=quantization)

    def with_prepared(self, prepared: object, keep_values: bool = False) -> Weight:
        """The same weight repacked; `values` go unless kept."""
        return replace(self, prepared=prepared, values=self.values if keep_values else None)
