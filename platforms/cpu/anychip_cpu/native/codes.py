"""Quantized weights in the terms of the native library: unsigned codes, scales and minima in float16."""

from __future__ import annotations

import torch

from anychip.weights.weight import Weight

GROUPS = (128, 96, 64, 32, 16)
"""Inputs that a group of the library may hold, best first.

Activations are quantized by the same groups: in larger ones, a few large values leave no steps for the others.
"""
MAX_ERROR = 1e-3
"""Relative error of a row's scales in float16 that is still taken."""


def canonical_codes(weight: Weight) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, int] | None:
    """(codes [N, K] uint8, scales [N, G], minima or None, bits), or None for what the library does not take.

    A weight is code * scale + minimum, without minima (code - 2^(bits - 1)) * scale.
    """
    quantization, values = weight.quantization, weight.values
    assert quantization is not None, "a weight without quantization"
    assert values is not None, "a weight that was prepared before"
    group = quantization.group_size or weight.shape[1]
    parts = _parts(group)
    if quantization.bits not in (4, 8) or values.is_floating_point() or weight.shape[1] % group or not parts:
        return None
    offset = 1 << (quantization.bits - 1) if values.dtype == torch.int8 else 0
    codes = values if offset == 0 else values.contiguous().view(torch.uint8) + offset  # modulo 256, as is meant
    zero_point = quantization.zero_point
    wide = quantization.scale.float()
    scale = quantization.scale.half()
    if quantization.scale.dtype != torch.float16 and not _close(scale, wide):
        return None
    if zero_point is None and offset:
        return codes.contiguous(), _repeated(scale, parts), None, quantization.bits
    minima = -wide * (offset + (0.0 if zero_point is None else zero_point.float()))
    if not minima.half().isfinite().all():
        return None
    return codes.contiguous(), _repeated(scale, parts), _repeated(minima.half(), parts), quantization.bits


def _parts(group: int) -> int:
    """How many groups of the library make one of the weight; 0 if none of its sizes does."""
    return next((group // size for size in GROUPS if group % size == 0), 0)


def _repeated(factors: torch.Tensor, parts: int) -> torch.Tensor:
    return (factors if parts == 1 else factors.repeat_interleave(parts, dim=1)).contiguous()


def _close(scale: torch.Tensor, wide: torch.Tensor) -> bool:
    """Whether no row has lost more than rounding; tiny scales beside large ones may."""
    return bool(((scale.float() - wide).norm(dim=1) <= MAX_ERROR * wide.norm(dim=1)).all())
