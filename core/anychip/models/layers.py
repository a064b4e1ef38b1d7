"""What models are made of. Weights are born on the meta device and carry the names they have in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from anychip.ops.parts import Ops
from anychip.weights.weight import Part, Weight


def empty_parameter(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    """A parameter without memory."""
    return nn.Parameter(torch.empty(*shape, dtype=dtype, device="meta"), requires_grad=False)


class Linear(nn.Module):
    """A matrix whose rows may be several checkpoint matrices fused: `parts` names them, in order, with their rows.

    In a checkpoint, part p of a layer at `a.b.fused` is `a.b.p.weight` and `a.b.p.bias`.
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        ops: Ops,
        in_features: int,
        parts: Mapping[str, int],
        dtype: torch.dtype,
        bias: bool,
        matrices: int = 1,
        exact: bool = False,
    ) -> None:
        super().__init__()
        self.ops = ops
        shape = (sum(parts.values()), in_features)
        values = torch.empty(shape, dtype=dtype, device="meta")
        named = tuple(Part(name, rows) for name, rows in parts.items())
        self.weight = Weight(values, shape, named, matrices=matrices, exact=exact)
        self.bias = empty_parameter(shape[0], dtype=dtype) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, K] -> [T, N]."""
        return self.ops.linear(x, self.weight, self.bias)

    def split(self, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """[T, N] -> one [T, rows] view a part."""
        rows = [part.rows for part in self.weight.parts]
        return tuple(y.narrow(-1, sum(rows[:index]), count) for index, count in enumerate(rows))


class Norm(nn.Module):
    """Root-mean-square normalization."""

    def __init__(self, ops: Ops, size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.ops = ops
        self.eps = eps
        self.weight = empty_parameter(size, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[.., H] -> [.., H]."""
        return self.ops.rms_norm(x, self.weight, self.eps)


class LayerNorm(nn.Module):
    """Normalization by mean and variance, of a sum."""

    def __init__(self, ops: Ops, size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.ops = ops
        self.eps = eps
        self.weight = empty_parameter(size, dtype=dtype)
        self.bias = empty_parameter(size, dtype=dtype)

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """x + residual, normalized. [T, H] -> [T, H]."""
        return self.ops.layer_norm(x, residual, self.weight, self.bias, self.eps)


class Embedding(nn.Module):
    """A vector a token."""

    def __init__(self, ops: Ops, vocab_size: int, size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.ops = ops
        self.weight = empty_parameter(vocab_size, size, dtype=dtype)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """[T] -> [T, H]."""
        return self.ops.embedding(token_ids, self.weight)
