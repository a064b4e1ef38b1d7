"""What programs that share a tile's inputs need: room for their sums, and a counter a tile."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from anychip.triton.linear.shapes import ThinShape

TILES = 16384
"""Tiles of output rows that may be split among programs."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Zeros between launches; the last program of a tile clears its own."""

    _by_device: dict[torch.device, torch.Tensor] = field(default_factory=dict)

    def on(self, device: torch.device) -> torch.Tensor:
        """One a tile."""
        if device not in self._by_device:
            self._by_device[device] = torch.zeros(TILES, dtype=torch.int32, device=device)
        return self._by_device[device]


def partial_sums(shape: ThinShape, rows: int, device: torch.device, matrices: int = 1) -> torch.Tensor | None:
    """Room for the sums of all programs; None where a tile has one."""
    if shape.split == 1:
        return None
    return torch.empty(matrices * shape.split * shape.tiles(rows) * shape.rows * shape.tokens, device=device)
