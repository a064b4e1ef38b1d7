"""Matrix products: oneDNN with weights packed at load where it takes them, else torch's own."""

from __future__ import annotations

from functools import cache

import torch
from torch.nn import functional

from anychip.weights.weight import Weight
from anychip_cpu.processor import has_bfloat16

PACKED_FOR = 32
"""Rows of activations that the packed layout is chosen for; it serves any number."""
UPCAST_FROM = 8
"""Rows from which float32 products are worth converting a bfloat16 weight, where bfloat16 is emulated."""


@cache
def packs(dtype: torch.dtype) -> bool:
    """Whether this torch, on this processor, multiplies packed weights of `dtype`."""
    if not torch.backends.mkldnn.is_available():
        return False
    try:
        packed = _pack(torch.ones(8, 8, dtype=dtype))
        product = _packed_linear(torch.ones(1, 8, dtype=dtype), packed, None)
    except (RuntimeError, AttributeError):
        return False
    return bool((product == 8).all())


def prepare_weight(weight: Weight) -> Weight:
    """`weight` packed for oneDNN, its plain values given up; unchanged where that is not possible."""
    values = weight.values
    if weight.quantization is not None or values is None or not packs(values.dtype):
        return weight
    return weight.with_prepared(_pack(values))


def linear(x: torch.Tensor, weight: Weight, bias: torch.Tensor | None) -> torch.Tensor:
    """See anychip.ops.linear.linear."""
    if isinstance(weight.prepared, torch.Tensor):
        return _packed_linear(x, weight.prepared, bias)
    values = weight.values if weight.quantization is None else weight.dequantize(x.dtype)
    assert values is not None, "a weight without values that nobody packed"
    if x.dtype == torch.bfloat16 and x.shape[0] >= UPCAST_FROM and not has_bfloat16():
        wide_bias = None if bias is None else bias.float()
        return functional.linear(x.float(), values.float(), wide_bias).to(x.dtype)
    return functional.linear(x, values, bias)


def _pack(values: torch.Tensor) -> torch.Tensor:
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(values, PACKED_FOR)
    return packed


def _packed_linear(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return product
