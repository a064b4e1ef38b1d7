"""Shapes and types of what operators return on meta tensors, for the few operators of a rehearsal.

Torch knows them all. But it works most of them out in Python, and for the first of them imports its compiler and a
library of algebra, which takes longer than all else before kernels are compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

Operand = torch.Tensor | float
_aten = torch.ops.aten


class Outlines(TorchDispatchMode):
    """While this mode is entered, operators known here are answered here, and all others left to torch."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Asked by torch. False: it would import its compiler only to keep it away from this class."""
        return False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What `function` makes of its arguments."""
        rule = _RULES.get(function) if args and not kwargs and _is_meta(args[0]) else None
        outline = rule(*args) if rule is not None else None
        return function(*args, **kwargs or {}) if outline is None else outline


def _is_meta(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_meta


def _empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return _empty((*x.shape[:-1], len(weight)), x.dtype)


def _empty_like(x: torch.Tensor) -> torch.Tensor | None:
    return _empty(x.shape, x.dtype) if x.is_contiguous() else None


def _index(x: torch.Tensor, indices: list[torch.Tensor | None]) -> torch.Tensor | None:
    index = indices[0]
    if len(indices) > 1 or index is None or index.dtype not in (torch.int32, torch.int64):
        return None
    return _empty((*index.shape, *x.shape[1:]), x.dtype)


def _index_select(x: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    shape = list(x.shape)
    shape[dim] = len(index)
    return _empty(shape, x.dtype)


def _where(condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _empty(np.broadcast_shapes(condition.shape, x.shape, y.shape), torch.result_type(x, y))


def _combine(x: torch.Tensor, y: Operand) -> torch.Tensor:
    shape = np.broadcast_shapes(x.shape, y.shape) if isinstance(y, torch.Tensor) else x.shape
    return _empty(shape, torch.result_type(x, y))


def _compare(x: torch.Tensor, y: Operand) -> torch.Tensor:
    return _empty(x.shape, torch.bool)


_RULES: dict[Any, Callable[..., torch.Tensor | None]] = {
    _aten.linear.default: _linear,
    _aten.empty_like.default: _empty_like,
    _aten.index.Tensor: _index,
    _aten.index_select.default: _index_select,
    _aten.where.self: _where,
    _aten.add.Tensor: _combine,
    _aten.sub.Tensor: _combine,
    _aten.mul.Tensor: _combine,
    _aten.lt.Scalar: _compare,
}
