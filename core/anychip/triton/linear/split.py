"""What programs that split a tile's inputs need: memory for their partial sums, and a counter for each tile."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from anychip.triton.linear.shapes import ThinShape

TILES = 16384
"""Most tiles of a launch that may be split among programs."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Programs of a tile count in one how many of them are done; the last one adds up, and sets it to 0 again.

    So all are 0 between launches, and one array a device serves all launches, which run one behind the other.
    """

    _by_device: dict[torch.device, torch.Tensor] = field(default_factory=dict)

    def on(self, device: torch.device) -> torch.Tensor:
        """[TILES] int32 on a device."""
        if device not in self._by_device:
            self._by_device[device] = torch.zeros(TILES, dtype=torch.int32, device=device)
        return self._by_device[device]


def partial_sums(shape: ThinShape, rows: int, device: torch.device, matrices: int = 1) -> torch.Tensor | None:
    """Uninitialised memory for the partial sums of all programs, float32; None where each tile has one program.

    `rows` are those of a matrix, of which a gated product has two `matrices`.
    """
    if shape.split == 1:
        return None
    return torch.empty(matrices * shape.split * shape.tiles(rows) * shape.rows * shape.tokens, device=device)
