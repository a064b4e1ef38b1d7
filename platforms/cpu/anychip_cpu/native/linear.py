"""Products with weights packed for the native kernels, and the rows around them."""

from __future__ import annotations

import torch

from anychip.ops.composite import GELU
from anychip.weights.weight import Weight
from anychip_cpu.native.codes import canonical_codes
from anychip_cpu.native.library import Library
from anychip_cpu.pages import Pages

ACTIVATIONS = {"silu": 0, **{name: 1 if kind == "none" else 2 for name, kind in GELU.items()}}
"""Numbers of the gated activations in the library."""
BLOCK = 32
"""Output rows that are packed together; a fused gate must fill them."""
_TYPES = (torch.float32, torch.bfloat16)


class NativeLinear:
    """The ops that call the library."""

    def __init__(self, library: Library, pages: Pages | None = None) -> None:
        ops = library.ops
        self._pages = Pages() if pages is None else pages
        self._pack, self._pack_codes, self._linear = ops.pack.default, ops.pack_codes.default, ops.linear.default
        self._norm_linear, self._gated_mlp = ops.norm_linear.default, ops.gated_mlp.default
        self._rms_norm, self._add_rms_norm, self._gate = (
            ops.rms_norm.default,
            ops.add_rms_norm.default,
            ops.gate.default,
        )

    def prepare_weight(self, weight: Weight) -> Weight:
        """`weight` packed, its plain values given up; codes that the library has no form for become float32."""
        if weight.values is None:
            return weight
        if weight.quantization is not None:
            codes = canonical_codes(weight)
            if codes is not None:
                return weight.with_prepared(self._pages.keep(self._pack_codes(*codes)))
            weight = weight.dequantized(torch.float32)
        values = weight.values
        assert values is not None, "a plain weight has its values"
        if values.dtype not in _TYPES:
            return weight
        return weight.with_prepared(self._pages.keep(self._pack(values.contiguous())))

    def packed(self, weight: Weight) -> torch.Tensor:
        """The packed form, made now if nobody did it at load."""
        prepared = self.prepare_weight(weight).prepared if weight.prepared is None else weight.prepared
        assert isinstance(prepared, torch.Tensor), "a weight that the library does not take"
        return prepared

    def linear(self, x: torch.Tensor, weight: Weight, bias: torch.Tensor | None) -> torch.Tensor:
        """See anychip.ops.linear.linear."""
        product: torch.Tensor = self._linear(x, self.packed(weight), bias)
        return product

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """See anychip.ops.norm.rms_norm."""
        normed: torch.Tensor = self._rms_norm(x, weight, eps)
        return normed

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See anychip.ops.norm.add_rms_norm."""
        normed, total = self._add_rms_norm(x, residual, weight, eps)
        return normed, total

    def silu_mul(self, x: torch.Tensor) -> torch.Tensor:
        """See anychip.ops.activation.silu_mul."""
        gated: torch.Tensor = self._gate(x, 0)
        return gated

    def gelu_mul(self, x: torch.Tensor, approximate: str) -> torch.Tensor:
        """See anychip.ops.activation.gelu_mul."""
        gated: torch.Tensor = self._gate(x, 1 if approximate == "none" else 2)
        return gated

    def norm_linear(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        norm_weight: torch.Tensor,
        eps: float,
        weight: Weight,
        bias: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See anychip.ops.composite.norm_linear."""
        product, total = self._norm_linear(x, residual, norm_weight, eps, self.packed(weight), bias)
        return product, total

    def gated_mlp(self, x: torch.Tensor, gate_up: Weight, down: Weight, activation: str) -> torch.Tensor:
        """See anychip.ops.composite.gated_mlp."""
        if gate_up.shape[0] % (2 * BLOCK):
            hidden = self._gate(self.linear(x, gate_up, None), ACTIVATIONS[activation])
            return self.linear(hidden, down, None)
        product: torch.Tensor = self._gated_mlp(x, self.packed(gate_up), self.packed(down), ACTIVATIONS[activation])
        return product
