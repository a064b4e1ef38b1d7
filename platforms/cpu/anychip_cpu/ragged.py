"""Attention of rows over their own tokens: flash attention, a call for each run of rows of one length."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from torch.nn import functional

from anychip.ops.ragged import Ragged
from anychip_cpu.processor import has_bfloat16


def ragged_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: Ragged, scale: float) -> torch.Tensor:
    """See anychip.ops.ragged.ragged_attention."""
    dtype = torch.bfloat16 if q.dtype == torch.bfloat16 and has_bfloat16() else torch.float32
    wide_q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    result = q.new_empty(q.shape[0], q.shape[1], v.shape[2])
    for part, count in _runs(rows):
        queries, keys, values = (each[part].unflatten(0, (count, -1)).transpose(1, 2) for each in (wide_q, k, v))
        attended = functional.scaled_dot_product_attention(
            queries, keys, values, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )
        result[part] = attended.transpose(1, 2).flatten(0, 1)
    return result


def _runs(rows: Ragged) -> Iterator[tuple[slice, int]]:
    """Tokens of each run of neighbouring rows that are equally long, and how many rows it has."""
    start = rows.host_start
    lengths = np.diff(start)
    edges = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(lengths)]
    for first, last in pairwise(edges):
        if lengths[first]:
            yield slice(int(start[first]), int(start[last])), last - first
