"""How products of experts are cut: pairs of a token and an expert in blocks, matrices in tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from anychip.triton.tuning import Tuning

WIDTH = 128
"""Pairs of the widest block."""
WIDE, WIDE_COPIED = 96, 44
"""Pairs of an expert, on average, from which the widest blocks pay; fewer where the chip copies tiles."""
NARROW = {16: 8, 32: 20}
"""By width of a block, pairs of an expert, on average, up to which it is taken: hardly an expert then has a second
block, for which its matrices would be read again. Above, blocks of 64 are taken."""


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """A tile of the products of experts."""

    rows: int
    """Rows of an expert's matrix."""
    pairs: int
    """Width of a block of pairs."""
    inputs: int
    """Inputs that are read at a time."""
    options: Mapping[str, int | str]
    """Options of the launch: warps and stages."""


def expert_shape(
    pairs: int, experts: int, gated: bool, copied: bool, dtype: torch.dtype, tuning: Tuning
) -> ExpertShape:
    """For `pairs` pairs spread over `experts` experts, whose matrices are of `dtype`.

    `gated`: the first product of a layer, not the second. `copied`: the chip copies tiles of matrices by itself.
    """
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
