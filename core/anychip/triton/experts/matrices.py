"""Stacked matrices, a mixture's experts, as the programs read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from anychip.triton.descriptors import aligned
from anychip.triton.packing import Codes
from anychip.weights.weight import Weight

if TYPE_CHECKING:
    from triton.tools.tensor_descriptor import TensorDescriptor


@dataclass(frozen=True, slots=True)
class Matrices:
    """Numbers or codes of 8 bits [E * N, K], and a scale a row of those."""

    values: torch.Tensor
    scale: torch.Tensor | None
    count: int

    @classmethod
    def of(cls, weight: Weight) -> Matrices:
        """Those of a weight, prepared or plain."""
        if isinstance(weight.prepared, Codes):
            return cls(weight.prepared.values, weight.prepared.scale, weight.matrices)
        assert weight.values is not None and weight.quantization is None, "a weight these kernels were not offered"
        return cls(weight.values, None, weight.matrices)

    @property
    def rows(self) -> int:
        """N, of one matrix."""
        return self.values.shape[0] // self.count

    @property
    def columns(self) -> int:
        """K."""
        return self.values.shape[1]

    @property
    def coded(self) -> bool:
        """Whether they are codes."""
        return self.scale is not None

    @property
    def copied(self) -> bool:
        """Whether chips with descriptors copy tiles of them: numbers of 16 bits in lines at a multiple of 16 bytes."""
        return self.values.itemsize == 2 and aligned(self.values) and self.columns % 8 == 0

    def tiles(self, matrices: int, rows: int, columns: int) -> TensorDescriptor:
        """What the chip's own copies of tiles go by: the same rows of so many matrices one behind the other.

        As [E * parts, N, K], where gates and others are two parts of a matrix.
        """
        from triton.tools.tensor_descriptor import TensorDescriptor  # which builds of Triton for others may lack

        line, size = self.values.stride(0), self.rows // matrices
        shape, strides = [self.count * matrices, size, self.columns], [size * line, line, 1]
        return TensorDescriptor(self.values, shape, strides, [matrices, rows, columns])
