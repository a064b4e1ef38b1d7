"""How the products of experts are cut: blocks of pairs, and tiles of weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from anychip.triton.tuning import Tuning

WIDTH = 128
"""Pairs of the widest block."""
WIDE, WIDE_COPIED = 96, 44
"""Pairs an expert from which such blocks leave less unused than they save, and where half a block costs half."""
NARROW = {16: 8, 32: 20}
"""Most pairs an expert of narrower blocks, so that hardly an expert has more than one: else its matrices are read
twice."""


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """A tile of the grouped products: output rows, pairs, inputs."""

    rows: int
    pairs: int
    inputs: int
    options: Mapping[str, int | str]


def expert_shape(
    pairs: int, experts: int, gated: bool, copied: bool, dtype: torch.dtype, tuning: Tuning
) -> ExpertShape:
    """Blocks of pairs as large as an expert's share, so that its matrices are read once."""
    share, wide = pairs / experts, tuning.experts_gated if gated else tuning.experts_down
    deeper = 2 if dtype.itemsize == 1 else 1
    if wide is not None and dtype.itemsize <= 2 and share >= (WIDE_COPIED if copied else WIDE):
        return ExpertShape(wide.rows, WIDTH, wide.inputs * deeper, wide.launch())
    columns = next((columns for columns, most in NARROW.items() if share <= most), 64)
    if copied and tuning.experts_copied is not None:
        tile = tuning.experts_copied[0 if gated else 1]
        return ExpertShape(tile.rows, columns, tile.inputs, tile.launch())
    if dtype.itemsize > 2:
        tile, columns = tuning.experts_float32, 16
    else:
        tile = {16: tuning.experts_few, 32: tuning.experts_some, 64: tuning.experts_many}[columns]
    return ExpertShape(tile.rows, columns, tile.inputs * deeper, tile.launch(gated))
