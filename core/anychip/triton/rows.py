"""Launching what works row by row: normalizations, gated activations, the embedding's lookup."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.triton.chip import Chip
from anychip.triton.coding import UNROUNDED, Coding
from anychip.triton.powers import power_of_two
from anychip.triton.programs.elementwise import gate, gate_and_round, gather_rows
from anychip.triton.programs.norm import add_and_normalize, center_and_normalize, normalize
from anychip.triton.rounding import Rounded

BLOCK = 1024
"""Elements of a program, where a row is shared among several."""


@dataclass(frozen=True, slots=True)
class Rows:
    """These ops on one chip. T tokens, H elements of a row."""

    chip: Chip

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """See anychip.ops.norm.rms_norm."""
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        self._normalize(x, weight, eps, out)
        return out

    def rounded_rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float, coding: Coding) -> Rounded:
        """The same rounded. x [T, H]."""
        out = Rounded.room(x.shape[0], x.shape[1], coding, x)
        self._normalize(x, weight, eps, out.codes, out)
        return out

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See anychip.ops.norm.add_rms_norm."""
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        return out, self._add_and_normalize(x, residual, weight, eps, out)

    def rounded_add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, coding: Coding
    ) -> tuple[Rounded, torch.Tensor]:
        """The same, what is normalized rounded."""
        out = Rounded.room(x.shape[0], x.shape[1], coding, x)
        return out, self._add_and_normalize(x, residual, weight, eps, out.codes, out)

    def layer_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, bias: torch.Tensor, eps: float
    ) -> torch.Tensor:
        """See anychip.ops.norm.layer_norm."""
        x = unit_stride(x)
        other = x if residual is None else unit_stride(residual)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        if len(x):
            center_and_normalize[(x.shape[0],)](
                x, other, weight, bias, out, eps, x.stride(0), other.stride(0), ADD=residual is not None,
                H=x.shape[1], **self._launch(x.shape[1]), **self.chip.order,
            )  # fmt: skip
        return out

    def silu_mul(self, x: torch.Tensor) -> torch.Tensor:
        """See anychip.ops.activation.silu_mul."""
        return self.gate(x, "silu")

    def gelu_mul(self, x: torch.Tensor, approximate: str) -> torch.Tensor:
        """See anychip.ops.activation.gelu_mul."""
        return self.gate(x, approximate)

    def gate(self, x: torch.Tensor, activation: str) -> torch.Tensor:
        """activation(first half) * second half, [T, 2I] -> [T, I]. `activation`: silu, or gelu's none or tanh."""
        x = unit_stride(x)
        rows, width = x.shape[0], x.shape[1] // 2
        out = torch.empty(rows, width, dtype=x.dtype, device=x.device)
        gate[(rows, -(-width // BLOCK))](
            x, out, x.stride(0), width, ACTIVATION=activation, BLOCK=BLOCK, **self.chip.order
        )
        return out

    def rounded_gate(self, x: torch.Tensor, activation: str, coding: Coding) -> Rounded:
        """The same rounded."""
        x = unit_stride(x)
        width = x.shape[1] // 2
        out = Rounded.room(x.shape[0], width, coding, x)
        gate_and_round[(x.shape[0],)](
            x, out.codes, out.scales, x.stride(0), ACTIVATION=activation, K=width, **coding.launch,
            **self._launch(width, 16), **self.chip.order,
        )  # fmt: skip
        return out

    def embedding(self, token_ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """See anychip.ops.linear.embedding."""
        rows, width = token_ids.shape[0], table.shape[1]
        out = torch.empty(rows, width, dtype=table.dtype, device=table.device)
        gather_rows[(rows, -(-width // BLOCK))](
            token_ids, table, out, token_ids.stride(0), H=width, BLOCK=BLOCK, **self.chip.order
        )
        return out

    def _normalize(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor, rounded: Rounded | None = None
    ) -> None:
        lines, width = _lines(x), x.shape[-1]
        heads = lines.shape[1]
        scales, coding = (None, UNROUNDED) if rounded is None else (rounded.scales, rounded.coding.launch)
        normalize[(lines.shape[0] * heads,)](
            lines, weight, out, scales, eps, heads, lines.stride(0), lines.stride(1), H=width, **coding,
            **self._launch(width), **self.chip.order,
        )  # fmt: skip

    def _add_and_normalize(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        weight: torch.Tensor,
        eps: float,
        out: torch.Tensor,
        rounded: Rounded | None = None,
    ) -> torch.Tensor:
        """Write the normalized sum to `out`; returns the sum."""
        x, residual = unit_stride(x), unit_stride(residual)
        total, width = torch.empty(x.shape, dtype=x.dtype, device=x.device), x.shape[1]
        scales, coding = (None, UNROUNDED) if rounded is None else (rounded.scales, rounded.coding.launch)
        add_and_normalize[(x.shape[0],)](
            x, residual, weight, out, scales, total, eps, x.stride(0), residual.stride(0), H=width,
            **coding, **self._launch(width), **self.chip.order,
        )  # fmt: skip
        return total

    def _launch(self, width: int, elements: int = 8) -> dict[str, int]:
        """Options of a launch whose programs take a whole row each, with so many elements for each thread."""
        block = power_of_two(width, 1)
        return {"BLOCK": block, "num_warps": self.chip.tuning.warps(block // elements)}


def unit_stride(x: torch.Tensor) -> torch.Tensor:
    """x, or a contiguous copy of it if its last axis is not contiguous."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _lines(x: torch.Tensor) -> torch.Tensor:
    """[.., H] as [rows, heads, H], without a copy where it has two or three axes."""
    x = unit_stride(x)
    return x if x.dim() == 3 else x.reshape(-1, 1, x.shape[-1])
