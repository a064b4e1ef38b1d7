"""Experts: each one's tokens together, through whatever multiplies a plain matrix fastest."""

from __future__ import annotations

from collections.abc import Callable

import torch

from anychip.ops.composite import GELU
from anychip.weights.weight import Weight

Linear = Callable[[torch.Tensor, Weight, torch.Tensor | None], torch.Tensor]


def prepare_experts(weight: Weight, prepare: Callable[[Weight], Weight]) -> Weight:
    """Each of the stacked matrices prepared by itself."""
    return weight.with_prepared(tuple(prepare(matrix) for matrix in weight.split()))


class Experts:
    """The op `experts` on a platform's own linear and gates."""

    def __init__(
        self,
        linear: Linear,
        silu_mul: Callable[[torch.Tensor], torch.Tensor],
        gelu_mul: Callable[[torch.Tensor, str], torch.Tensor],
    ) -> None:
        self._linear, self._silu_mul, self._gelu_mul = linear, silu_mul, gelu_mul

    def experts(
        self,
        x: torch.Tensor,
        gate_up: Weight,
        down: Weight,
        shares: torch.Tensor,
        chosen: torch.Tensor,
        activation: str,
    ) -> torch.Tensor:
        """See anychip.ops.experts.experts. Reads only the experts that some token goes to."""
        inner, outer = _matrices(gate_up), _matrices(down)
        order = chosen.flatten().argsort(stable=True)
        tokens, scale = order // chosen.shape[1], shares.flatten()[order].unsqueeze(-1)
        total = torch.zeros(x.shape, dtype=torch.float32)
        first = 0
        for expert, count in enumerate(chosen.flatten().bincount(minlength=len(inner)).tolist()):
            if count:
                mine = tokens[first : first + count]
                hidden = self._gate(self._linear(x[mine], inner[expert], None), activation)
                product = self._linear(hidden, outer[expert], None).float()
                total.index_add_(0, mine, product.mul_(scale[first : first + count]))
            first += count
        return total.to(x.dtype)

    def _gate(self, hidden: torch.Tensor, activation: str) -> torch.Tensor:
        return self._silu_mul(hidden) if activation == "silu" else self._gelu_mul(hidden, GELU[activation])


def _matrices(weight: Weight) -> tuple[Weight, ...]:
    return weight.prepared if isinstance(weight.prepared, tuple) else weight.split()
