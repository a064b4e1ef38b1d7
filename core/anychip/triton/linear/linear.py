"""Linear layers: our products for few tokens, where reading the weights is all the work, torch's own for more."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch.nn import functional

from anychip.ops.composite import GELU
from anychip.triton.chip import Chip
from anychip.triton.descriptors import aligned, tiles_of
from anychip.triton.linear.codes import CodedLinear
from anychip.triton.linear.shapes import FEW_TOKENS, fills_chip, thin_shape, vector_shape
from anychip.triton.linear.split import Counters, partial_sums
from anychip.triton.packing import Codes
from anychip.triton.programs.thin import multiply_thin
from anychip.triton.programs.vector import multiply_vector
from anychip.triton.rows import Rows, unit_stride
from anychip.weights.weight import Weight

MOST_TOKENS = 128
"""More tokens are multiplied by the library."""
MOST_ROWS = 4096
"""Rows of a matrix from which the library is faster for more than FEW_TOKENS, if the product is not gated."""
MOST_NORMED = 2048
"""Inputs up to which a product of one token had better normalize it too: each of its programs reads the whole token."""


@dataclass(frozen=True, slots=True)
class Linears:
    """The linear ops of one loaded model."""

    chip: Chip
    rows: Rows
    counters: Counters = field(default_factory=Counters)

    def linear(self, x: torch.Tensor, weight: Weight, bias: torch.Tensor | None) -> torch.Tensor:
        """See anychip.ops.linear.linear."""
        if isinstance(weight.prepared, Codes):
            return self._coded.linear(x, weight.prepared, bias)
        if not self._computes(x, _values(weight), weight.shape[0], False):
            return functional.linear(x, _values(weight), bias)
        return self._multiply(x, _values(weight), bias, "")

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
        if x.shape[0] == 1 and x.shape[1] <= MOST_NORMED and weight.prepared is None:
            return self._normalize_and_multiply(x, residual, norm_weight, eps, _values(weight), bias, "")
        if (codes := self._rounding(weight, x)) is not None:
            return self._normalize_rounded(x, residual, norm_weight, eps, codes, bias)
        if residual is None:
            return self.linear(self.rows.rms_norm(x, norm_weight, eps), weight, bias), x
        normed, residual = self.rows.add_rms_norm(x, residual, norm_weight, eps)
        return self.linear(normed, weight, bias), residual

    def gated_mlp(self, x: torch.Tensor, gate_up: Weight, down: Weight, activation: str) -> torch.Tensor:
        """See anychip.ops.composite.gated_mlp."""
        name = "silu" if activation == "silu" else GELU[activation]
        if gate_up.prepared is not None or not self._computes(x, _values(gate_up), gate_up.shape[0] // 2, True):
            both = self.linear(x, gate_up, None)
            if (codes := self._rounding(down, both)) is not None:
                return self._coded.multiply(self.rows.rounded_gate(both, name, codes.coding), codes, None)
            inner = self.rows.gate(both, name)
        else:
            inner = self._multiply(x, _values(gate_up), None, name)
        return self.linear(inner, down, None)

    def _computes(self, x: torch.Tensor, weight: torch.Tensor, rows: int, gated: bool) -> bool:
        """Whether we compute a product with a plain weight; if not, torch's library does. `rows`: of one matrix."""
        tokens, tuning = x.shape[0], self.chip.tuning
        if tokens <= FEW_TOKENS:
            return tokens == 1 or gated or rows <= tuning.thin_rows
        if tokens > MOST_TOKENS or tuning.thin_wide is None or x.dtype.itemsize > 2:
            return False
        return aligned(x) and aligned(weight) and (fills_chip(self.chip, rows) if gated else rows <= MOST_ROWS)

    @property
    def _coded(self) -> CodedLinear:
        return CodedLinear(self.chip, self.counters)

    def _rounding(self, weight: Weight, x: torch.Tensor) -> Codes | None:
        """The codes of a weight whose products quantize as many tokens as x has; None if it has none or they do not."""
        codes = weight.prepared
        return codes if isinstance(codes, Codes) and self._coded.rounds(codes, x.shape[0], x.dtype) else None

    def _normalize_rounded(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        norm_weight: torch.Tensor,
        eps: float,
        weight: Codes,
        bias: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        kind = weight.coding
        if residual is None:
            normed, total = self.rows.rounded_rms_norm(x, norm_weight, eps, kind), x
        else:
            normed, total = self.rows.rounded_add_rms_norm(x, residual, norm_weight, eps, kind)
        return self._coded.multiply(normed, weight, bias), total

    def _multiply(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str
    ) -> torch.Tensor:
        """x W^T + bias for few tokens; with an activation: activation(x W1^T) * (x W2^T) of the two halves of W."""
        x = unit_stride(x)
        if x.shape[0] == 1:
            return self._normalize_and_multiply(x, None, None, 0.0, weight, bias, activation)[0]
        tokens, rows = x.shape[0], weight.shape[0] // (2 if activation else 1)
        copied = self.chip.descriptors and aligned(x) and aligned(weight)
        shape = thin_shape(self.chip, tokens, rows, x.shape[1], bool(activation), x.dtype, copied)
        out = torch.empty(tokens, rows, dtype=x.dtype, device=x.device)
        partial = partial_sums(shape, rows, x.device, 2 if activation else 1)
        given = tiles = None
        if shape.tiled:
            given, tiles = tiles_of(x, shape.tokens, shape.inputs), tiles_of(weight, shape.rows, shape.inputs)
        multiply_thin[(shape.tiles(rows), shape.split)](
            x, weight, given, tiles, bias, out, partial, self.counters.on(x.device), tokens, x.stride(0),
            weight.stride(0), N=rows, K=x.shape[1], BIAS=bias is not None, ACTIVATION=activation,
            AHEAD=shape.ahead, PARTS=shape.parts, TILED=shape.tiled, **shape.launch, **self.chip.order,
        )  # fmt: skip
        return out

    def _normalize_and_multiply(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        norm_weight: torch.Tensor | None,
        eps: float,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        activation: str,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """For one token: (y [1, N], x + residual [1, H]); y is of the normalized sum if there is a `norm_weight`."""
        rows = weight.shape[0] // (2 if activation else 1)
        shape = vector_shape(self.chip.tuning, x.shape[1], bool(activation), norm_weight is not None)
        out = torch.empty(1, rows, dtype=x.dtype, device=x.device)
        total = x if residual is None else torch.empty(x.shape, dtype=x.dtype, device=x.device)
        multiply_vector[(-(-rows // shape["BLOCK_N"]),)](
            unit_stride(x), residual, norm_weight, weight, bias, out, total, eps, weight.stride(0), N=rows,
            K=x.shape[1], NORM=norm_weight is not None, ADD=residual is not None, BIAS=bias is not None,
            ACTIVATION=activation, **shape, **self.chip.order,
        )  # fmt: skip
        return out, total


def _values(weight: Weight) -> torch.Tensor:
    assert weight.values is not None and weight.quantization is None, "a weight these kernels were not offered"
    return weight.values
