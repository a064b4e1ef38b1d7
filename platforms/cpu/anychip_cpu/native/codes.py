"""Quantized weights in the terms of the native library: unsigned codes, scales and minima in float16."""

from __future__ import annotations

import torch

from anychip.weights.weight import Weight

GROUP = 32
"""Groups are multiples of this."""
MAX_ERROR = 1e-3
"""Relative error of a scale in float16 that is still taken."""


def canonical_codes(weight: Weight) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, int] | None:
    """(codes [N, K] uint8, scales [N, G], minima or None, bits), or None for what the library does not take.

    A weight is code * scale + minimum, without minima (code - 2^(bits - 1)) * scale.
    """
    quantization, values = weight.quantization, weight.values
    assert quantization is not None, "a weight without quantization"
    assert values is not None, "a weight that was prepared before"
    group = quantization.group_size or weight.shape[1]
    if quantization.bits not in (4, 8) or group % GROUP or weight.shape[1] % group:
        return None
    offset = 1 << (quantization.bits - 1) if values.dtype == torch.int8 else 0
    codes = values if offset == 0 else (values.to(torch.int16) + offset).to(torch.uint8)
    zero_point = quantization.zero_point
    wide = quantization.scale.float()
    scale = wide.half()
    if not _close(scale, wide):
        return None
    if zero_point is None and offset:
        return codes.contiguous(), scale.contiguous(), None, quantization.bits
    minima = -wide * (offset + (0.0 if zero_point is None else zero_point.float()))
    if not minima.half().isfinite().all():
        return None
    return codes.contiguous(), scale.contiguous(), minima.half().contiguous(), quantization.bits


def _close(scale: torch.Tensor, wide: torch.Tensor) -> bool:
    return bool(((scale.float() - wide).abs() <= MAX_ERROR * wide.abs()).all())
