"""Fusing quantized matrices by rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from anychip.weights.weight import Weight


def concatenate(weights: Sequence[Weight]) -> Weight | None:
    """One weight of all rows in order; None where the matrices are not quantized alike."""
    first = weights[0]
    kinds = {_kind(weight) for weight in weights}
    if len(kinds) != 1 or first.quantization is None:
        return None
    values = [weight.values for weight in weights if weight.values is not None]
    parts = [weight.quantization for weight in weights if weight.quantization is not None]
    assert len(values) == len(parts) == len(weights), "a weight lost its values before it was fused"
    zero_points = [part.zero_point for part in parts if part.zero_point is not None]
    quantization = replace(
        first.quantization,
        scale=torch.cat([part.scale for part in parts]),
        zero_point=torch.cat(zero_points) if zero_points else None,
    )
    fused = torch.cat(values)
    return Weight(fused, (fused.shape[0], fused.shape[1]), quantization=quantization)


def _kind(weight: Weight) -> tuple[object, ...] | None:
    """What must be equal for one description to serve both."""
    quantization = weight.quantization
    if quantization is None or weight.values is None:
        return None
    return (
        quantization.format,
        quantization.bits,
        quantization.group_size,
        quantization.zero_point is None,
        quantization.activation,
        weight.values.dtype,
        quantization.scale.dtype,
    )
