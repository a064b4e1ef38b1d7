"""Descriptors: what a chip that copies tiles by itself (`Chip.descriptors`) is told of a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from triton.tools.tensor_descriptor import TensorDescriptor

ALIGNED = 16
"""Bytes at whose multiples a matrix and each of its rows have to begin."""


def aligned(matrix: torch.Tensor) -> bool:
    """Whether tiles of `matrix` [N, K] can be copied so: it and its rows begin at multiples of 16 bytes."""
    return (matrix.stride(0) * matrix.itemsize) % ALIGNED == 0 and matrix.data_ptr() % ALIGNED == 0


def tiles_of(matrix: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """A descriptor of tiles [rows, columns] of an aligned matrix; a tile reads zeros beyond its edge."""
    from triton.tools.tensor_descriptor import TensorDescriptor  # which builds of Triton for others may lack

    return TensorDescriptor(matrix, list(matrix.shape), [matrix.stride(0), 1], [rows, columns])
