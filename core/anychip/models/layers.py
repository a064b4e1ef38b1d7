"""The layers that models are made of. Weights begin on the meta device, under the names they have in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from anychip.ops.parts import Ops
from anychip.weights.role import Role
from anychip.weights.weight import Part, Weight


def empty_parameter(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    """A parameter on the meta device, which takes no memory."""
    return nn.Parameter(torch.empty(*shape, dtype=dtype, device="meta"), requires_grad=False)


class Linear(nn.Module):
    """x W^T + bias. W [N, K] may be several of a checkpoint's matrices, one below the other.

    `parts` names these in order, with their rows: part p of a layer at `a.b.fused` is `a.b.p.weight` and `a.b.p.bias`
    in the checkpoint. `matrices`: stacked experts, see `Weight`. `exact`: never quantized.
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
        role: Role = "inner",
    ) -> None:
        super().__init__()
        self.ops = ops
        shape = (sum(parts.values()), in_features)
        values = torch.empty(shape, dtype=dtype, device="meta")
        named = tuple(Part(name, rows) for name, rows in parts.items())
        self.weight = Weight(values, shape, named, matrices=matrices, exact=exact, role=role)
        self.bias = empty_parameter(shape[0], dtype=dtype) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, K] -> [T, N]."""
        return self.ops.linear(x, self.weight, self.bias)

    def split(self, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """[T, N] -> a view [T, rows] for each part."""
        rows = [part.rows for part in self.weight.parts]
        return tuple(y.narrow(-1, sum(rows[:index]), count) for index, count in enumerate(rows))


class Norm(nn.Module):
    """Root-mean-square normalization (Zhang and Sennrich, 2019)."""

    def __init__(self, ops: Ops, size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.ops = ops
        self.eps = eps
        self.weight = empty_parameter(size, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[.., H] -> [.., H]."""
        return self.ops.rms_norm(x, self.weight, self.eps)


class LayerNorm(nn.Module):
    """Layer normalization (Ba et al., 2016), of x or of a sum."""

    def __init__(self, ops: Ops, size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.ops = ops
        self.eps = eps
        self.weight = empty_parameter(size, dtype=dtype)
        self.bias = empty_parameter(size, dtype=dtype)

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """[T, H] -> [T, H]: x, or x + residual, normalized by mean and variance."""
        return self.ops.layer_norm(x, residual, self.weight, self.bias, self.eps)


class Embedding(nn.Module):
    """The vector of each token id."""

    def __init__(self, ops: Ops, vocab_size: int, size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.ops = ops
        self.weight = empty_parameter(vocab_size, size, dtype=dtype)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """[T] -> [T, H]."""
        return self.ops.embedding(token_ids, self.weight)
