"""Comparing what an op returned with its float32 reference."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from anychip.engine.batch import Float32
from anychip.ops.attention import AttentionInputs
from anychip.ops.attention_cases import inputs_to
from anychip.ops.ragged import Ragged
from anychip.weights.weight import Weight

INTEGER = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def normalized_error(out: torch.Tensor, reference: torch.Tensor) -> float:
    """norm(out - reference) / norm(reference), in float64; infinite where only one of them is finite."""
    out, reference = out.double(), reference.double()
    off, scale = float((out - reference).norm()), float(reference.norm())
    if math.isfinite(off) and math.isfinite(scale):
        return off / scale if scale > 0 else off
    finite = reference.isfinite()
    if not torch.equal(finite, out.isfinite()) or not torch.equal(out[~finite].isnan(), reference[~finite].isnan()):
        return float("inf")
    off, scale = float((out - reference)[finite].norm()), float(reference[finite].norm())
    return off / scale if scale > 0 else off


def outputs(result: Any) -> tuple[torch.Tensor, ...]:
    """The tensors that an op returned, on the host."""
    return tuple(part.cpu() for part in (result if isinstance(result, tuple) else (result,)))


def difference(result: Any, reference: Any, dtype: torch.dtype, tolerance: float) -> str:
    """What is wrong with a result, or nothing. Floats must come in `dtype` or as the reference has them."""
    given, wanted = outputs(result), outputs(reference)
    if len(given) != len(wanted):
        return f"returned {len(given)} tensors, not {len(wanted)}"
    for number, (out, right) in enumerate(zip(given, wanted, strict=True)):
        which = f"output {number}: " if len(given) > 1 else ""
        if out.shape != right.shape:
            return f"{which}shape {tuple(out.shape)}, not {tuple(right.shape)}"
        if right.dtype in INTEGER:
            if not torch.equal(out.long(), right.long()):
                return (
                    f"{which}{int((out.long() != right.long()).sum())} of {right.numel()} values are not the right ones"
                )
            continue
        if out.dtype not in (dtype, torch.float32):
            return f"{which}came as {out.dtype}, not {dtype}"
        error = normalized_error(out, right)
        if not error <= tolerance:
            return f"{which}normalized error {error:.3g}, tolerance {tolerance:.3g}"
    return ""


def wide(value: Any) -> Any:
    """An argument with its floats in float32: what the reference computes with."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, Weight) and value.values is not None:
        return replace(value, values=value.values.float())
    return value


def moved(value: Any, device: torch.device) -> Any:
    """An argument on the device, with its strides."""
    if isinstance(value, torch.Tensor):
        return Guarded(value, device).tensor
    if isinstance(value, Weight) and value.values is not None:
        return value.to(device)
    if isinstance(value, Ragged):
        return value.to(device)
    return inputs_to(value, device) if isinstance(value, AttentionInputs) else value


class Guarded:
    """A tensor on a device inside a larger one, whose bands around it must not change, nor the tensor itself."""

    BAND = 256

    def __init__(self, source: torch.Tensor, device: torch.device) -> None:
        span = 1 + sum((size - 1) * stride for size, stride in zip(source.shape, source.stride(), strict=True))
        span = span if source.numel() else 0
        host = torch.full((span + 2 * self.BAND,), _sentinel(source.dtype), dtype=source.dtype)
        view = host.as_strided(source.shape, source.stride(), self.BAND)
        view.copy_(source)
        self._before = host
        self._after = host.to(device, copy=True)
        self.tensor = self._after.as_strided(source.shape, source.stride(), self.BAND)

    def problem(self) -> str:
        """What was overwritten, or nothing. Bits are compared, so that a NaN equals itself."""
        before, after = (_bits(part) for part in (self._before, self._after.cpu()))
        if not torch.equal(before[: self.BAND], after[: self.BAND]):
            return "wrote before the beginning of an argument"
        if not torch.equal(before[-self.BAND :], after[-self.BAND :]):
            return "wrote behind the end of an argument"
        return "" if torch.equal(before, after) else "changed an argument"


def _sentinel(dtype: torch.dtype) -> float | int:
    return float("nan") if dtype.is_floating_point else 77 if dtype != torch.bool else 1


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8) if tensor.dtype != torch.bool else tensor


def relative(out: Float32, reference: Float32) -> float:
    """norm(out - reference) / norm(reference) of log-probabilities, each row less its mean: shifts mean nothing."""
    out, reference = (values - values.mean(-1, keepdims=True) for values in (out, reference))
    return normalized_error(torch.from_numpy(out), torch.from_numpy(reference))
