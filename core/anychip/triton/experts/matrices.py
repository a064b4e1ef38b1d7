"""The matrices of a mixture's experts, stacked, as programs read them."""

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
    """E matrices [N, K] one below the other, of numbers or of codes of 8 bits."""

    values: torch.Tensor
    """[E * N, K]."""
    scale: torch.Tensor | None
    """One for each row of codes; None: numbers."""
    count: int
    """E."""

    @classmethod
    def of(cls, weight: Weight) -> Matrices:
        """The matrices of a stacked weight, plain or prepared by `prepare_codes`."""
        if isinstance(weight.prepared, Codes):
            return cls(weight.prepared.values, weight.prepared.scale, weight.matrices)
        assert weight.values is not None and weight.quantization is None, "a weight these kernels were not offered"
        return cls(weight.values, None, weight.matrices)

    @property
    def rows(self) -> int:
        """N."""
        return self.values.shape[0] // self.count

    @property
    def columns(self) -> int:
        """K."""
        return self.values.shape[1]

    @property
    def coded(self) -> bool:
        """Whether they are codes of 8 bits."""
        return self.scale is not None

    @property
    def copied(self) -> bool:
        """Whether a chip with descriptors can copy tiles of them: numbers of 16 bits, rows at multiples of 16 bytes."""
        return self.values.itemsize == 2 and aligned(self.values) and self.columns % 8 == 0

    def tiles(self, matrices: int, rows: int, columns: int) -> TensorDescriptor:
        """A descriptor of tiles [matrices, rows, columns] of the values, seen as [E * matrices, N / matrices, K].

        With two, a tile holds the same rows of an expert's gate and up projections, which lie one behind the other.
        """
        from triton.tools.tensor_descriptor import TensorDescriptor  # which builds of Triton for others may lack

        line, size = self.values.stride(0), self.rows // matrices
        shape, strides = [self.count * matrices, size, self.columns], [size * line, line, 1]
        return TensorDescriptor(self.values, shape, strides, [matrices, rows, columns])
