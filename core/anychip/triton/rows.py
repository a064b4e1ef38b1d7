"""Launching what works on rows: normalizations, gated activations, the embedding's lookup."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.triton.chip import Chip
from anychip.triton.programs.elementwise import gate, gather_rows
from anychip.triton.programs.norm import add_and_normalize, center_and_normalize, normalize

BLOCK = 1024


@dataclass(frozen=True, slots=True)
class Rows:
    """The ops of rows on one chip."""

    chip: Chip

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """See anychip.ops.norm.rms_norm."""
        lines = _lines(x)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        width, heads = x.shape[-1], lines.shape[1]
        normalize[(lines.shape[0] * heads,)](
            lines, weight, out, eps, heads, lines.stride(0), lines.stride(1), H=width, **self._launch(width),
            **self.chip.order,
        )  # fmt: skip
        return out

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See anychip.ops.norm.add_rms_norm."""
        x, residual = unit_stride(x), unit_stride(residual)
        out, total = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(2))
        width = x.shape[1]
        add_and_normalize[(x.shape[0],)](
            x, residual, weight, out, total, eps, x.stride(0), residual.stride(0), H=width, **self._launch(width),
            **self.chip.order,
        )  # fmt: skip
        return out, total

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
        """activation(first half) * second half, for silu, none or tanh (of gelu). [T, 2I] -> [T, I]."""
        x = unit_stride(x)
        rows, width = x.shape[0], x.shape[1] // 2
        out = torch.empty(rows, width, dtype=x.dtype, device=x.device)
        gate[(rows, -(-width // BLOCK))](
            x, out, x.stride(0), width, ACTIVATION=activation, BLOCK=BLOCK, **self.chip.order
        )
        return out

    def embedding(self, token_ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """See anychip.ops.linear.embedding."""
        rows, width = token_ids.shape[0], table.shape[1]
        out = torch.empty(rows, width, dtype=table.dtype, device=table.device)
        gather_rows[(rows, -(-width // BLOCK))](
            token_ids, table, out, token_ids.stride(0), H=width, BLOCK=BLOCK, **self.chip.order
        )
        return out

    def _launch(self, width: int) -> dict[str, int]:
        """The block that holds a row, and warps enough for 16 bytes a thread."""
        block = 1 << (width - 1).bit_length()
        return {"BLOCK": block, "num_warps": self.chip.tuning.warps(block // 8)}


def unit_stride(x: torch.Tensor) -> torch.Tensor:
    """x with neighbours of the last axis side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _lines(x: torch.Tensor) -> torch.Tensor:
    """[.., H] as [rows, heads, H], without a copy where it has two or three axes."""
    x = unit_stride(x)
    return x if x.dim() == 3 else x.reshape(-1, 1, x.shape[-1])
