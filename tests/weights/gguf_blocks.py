"""Random tensors in GGUF's quantized types, which no writer at hand makes."""

from __future__ import annotations

import numpy as np
import torch

from anychip.weights.gguf_quantized import quantized
from anychip.weights.gguf_types import READABLE_TYPES
from anychip.weights.weight import Weight

TYPES = {kind.name: kind for kind in READABLE_TYPES.values()}
FACTORS = {
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
}
"""Where a block has its scale and its minimum."""


def random_blocks(kind, rows, columns):
    """Bytes of a tensor of random codes, with a constant block and one of zeros."""
    generator = np.random.default_rng(0)
    raw = generator.integers(0, 256, (rows * columns // TYPES[kind].block_values, TYPES[kind].block_bytes), np.uint8)
    for index, place in enumerate(FACTORS.get(kind, (0,))):
        factors = (0.01 * generator.standard_normal(len(raw))).astype(np.float16)
        factors[4] = 0
        factors[3] = 0 if index == 0 else 1
        raw[:, place : place + 2] = factors.view(np.uint8).reshape(-1, 2)
    return torch.from_numpy(raw).reshape(-1)


def random_kept(kind: str, rows: int, columns: int) -> Weight:
    """The same as a canonical weight."""
    return quantized(random_blocks(kind, rows, columns), kind, TYPES[kind].block_bytes, (rows, columns))
