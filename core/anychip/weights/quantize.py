"""Float matrices rounded to the nearest code of a scheme, a few rows at a time so that little memory is taken.

Scales and zero points are rounded to float16 first and the codes chosen for the rounded ones, so that a kernel which
keeps them in float16 means the same numbers.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from anychip.weights.scheme import GROUP_SIZES, Scheme
from anychip.weights.weight import Quantization, Weight

_CHUNK = 1 << 20
"""Values at once."""
_SMALLEST = 2.0**-24
"""The smallest float16: the scale of what is all zeros."""
_MAX_ZERO_POINT = 64.0
"""Bounds zero points, so that float16 holds them to a thirty-second of a step."""
_LARGEST_FP8 = 448.0

_Codes = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


def fits(weight: Weight, scheme: Scheme) -> bool:
    """Whether whole groups, or 32 inputs at a time, fill the rows of a plain matrix that may be rounded."""
    if weight.quantization is not None or weight.exact:
        return False
    return weight.shape[1] % (scheme.group_size or GROUP_SIZES[0]) == 0


def quantize(weight: Weight, scheme: Scheme) -> Weight:
    """`weight`, plain and of whole groups, as codes and scales."""
    assert weight.values is not None and fits(weight, scheme), "asked for what does not fit"
    columns = weight.shape[1]
    group = scheme.group_size or columns
    whole = weight.values.is_meta  # which takes no memory
    rows = weight.shape[0] if whole else max(1, _CHUNK // columns)
    parts = [_encode(part.view(len(part), -1, group).float(), scheme) for part in weight.values.split(rows)]
    codes, scales, zero_points = zip(*parts, strict=True)
    quantization = Quantization(
        format=scheme.format,
        bits=scheme.bits,
        group_size=scheme.group_size,
        scale=torch.cat(scales),
        zero_point=torch.cat(zero_points) if scheme.zero_points else None,
        activation=scheme.activation,
    )
    return replace(weight, values=torch.cat(codes).view(weight.shape), quantization=quantization)


def _encode(values: torch.Tensor, scheme: Scheme) -> _Codes:
    """[N, G, group] float32 -> codes [N, G, group], scales [N, G], zero points [N, G] or None."""
    if scheme.format == "fp8":
        return _fp8(values)
    return _asymmetric(values, scheme.bits) if scheme.zero_points else _symmetric(values, scheme.bits)


def _symmetric(values: torch.Tensor, bits: int) -> _Codes:
    """Signed codes. With 4 bits the extreme value becomes -8, which no other sign reaches, as in GGUF's Q4_0."""
    low, high = values.aminmax(dim=-1)
    extreme = torch.where(-low > high, low, high)
    lowest = -(1 << (bits - 1))
    scale = _half(extreme / lowest if bits == 4 else extreme.abs() / -(lowest + 1))
    codes = (values / scale.float().unsqueeze(-1)).round_().clamp_(lowest, -lowest - 1)
    return codes.to(torch.int8), scale, None


def _asymmetric(values: torch.Tensor, bits: int) -> _Codes:
    """Unsigned codes from a group's lowest value, which becomes 0, to its highest."""
    low, high = values.aminmax(dim=-1)
    most = (1 << bits) - 1
    scale = _half(torch.maximum((high - low) / most, torch.maximum(-low, high) / _MAX_ZERO_POINT))
    zero_point = (-low / scale.float()).half()
    codes = (values / scale.float().unsqueeze(-1)).add_(zero_point.float().unsqueeze(-1)).round_().clamp_(0, most)
    return codes.to(torch.uint8), scale, zero_point


def _fp8(values: torch.Tensor) -> _Codes:
    """The type of four exponent bits, which holds up to 448."""
    scale = (values.abs().amax(dim=-1) / _LARGEST_FP8).clamp_min_(torch.finfo(torch.float32).tiny)
    return (values / scale.unsqueeze(-1)).to(torch.float8_e4m3fn), scale, None


def _half(scale: torch.Tensor) -> torch.Tensor:
    """Rounded to float16, never to zero."""
    half = scale.half()
    return torch.where(half == 0, _SMALLEST, half).half()
