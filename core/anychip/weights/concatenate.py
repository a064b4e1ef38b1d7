"""Fusing quantized matrices by rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from anychip.weights.scheme import GROUP_SIZES
from anychip.weights.weight import Quantization, Weight


def concatenate(weights: Sequence[Weight]) -> Weight | None:
    """One weight of all rows in order; None where one is plain, or no integer code holds all.

    Matrices that are not quantized alike take the bits of the widest, zero points, and groups that all of them have.
    """
    if any(weight.quantization is None or weight.values is None for weight in weights):
        return None
    if len({_kind(weight) for weight in weights}) != 1:
        if any(weight.values is None or weight.values.is_floating_point() for weight in weights):
            return None
        group = math.gcd(*(_parts(weight)[1].group_size or weight.shape[1] for weight in weights))
        widest = max((_parts(weight)[1] for weight in weights), key=lambda quantization: quantization.bits)
        weights = [_aligned(weight, group, widest) for weight in weights]
    parts = [_parts(weight) for weight in weights]
    zero_points = [part.zero_point for _, part in parts if part.zero_point is not None]
    quantization = replace(
        parts[0][1],
        scale=torch.cat([part.scale for _, part in parts]),
        zero_point=torch.cat(zero_points) if zero_points else None,
    )
    fused = torch.cat([values for values, _ in parts])
    return Weight(fused, (fused.shape[0], fused.shape[1]), quantization=quantization)


def _parts(weight: Weight) -> tuple[torch.Tensor, Quantization]:
    assert weight.values is not None, "a weight lost its values before it was fused"
    assert weight.quantization is not None, "a plain weight among quantized ones"
    return weight.values, weight.quantization


def _kind(weight: Weight) -> tuple[object, ...]:
    """What must be equal for one description to serve both."""
    values, quantization = _parts(weight)
    return (
        quantization.format,
        quantization.bits,
        quantization.group_size,
        quantization.zero_point is None,
        quantization.activation,
        values.dtype,
        quantization.scale.dtype,
    )


def _aligned(weight: Weight, group: int, widest: Quantization) -> Weight:
    """The same numbers as unsigned codes with zero points, in smaller groups, described as `widest` is."""
    values, quantization = _parts(weight)
    repeats = (quantization.group_size or weight.shape[1]) // group
    offset = 1 << (quantization.bits - 1) if values.dtype == torch.int8 else 0
    scale = quantization.scale.float()
    zero_point = torch.zeros_like(scale) if quantization.zero_point is None else quantization.zero_point.float()
    aligned = replace(
        widest,
        format="int4" if widest.bits == 4 and group >= GROUP_SIZES[0] else "kquant",
        group_size=group,
        scale=scale.repeat_interleave(repeats, dim=1),
        zero_point=(zero_point + offset).repeat_interleave(repeats, dim=1),
    )
    codes = (values.to(torch.int16) + offset).to(torch.uint8)
    return Weight(codes, weight.shape, weight.parts, aligned)
