"""Attention of each row over its own tokens of the step, in both directions and without a cache: what encoders do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from anychip.engine.batch import Int32
from anychip.ops.op import Case, Op, OpSpec
from anychip.ops.shapes import accumulation_dtype, normal, strided

MAX_SCORES = 1 << 22
"""Attention scores the reference holds at once."""

ROWS: dict[str, tuple[int, ...]] = {
    "one token": (1,),
    "one row": (37,),
    "single tokens": (1, 1, 1),
    "ragged": (1, 5, 64, 17, 2, 33),
    "alike": (16, 16, 16, 8, 8),
}
"""Tokens of each row."""


@dataclass(frozen=True, slots=True)
class Ragged:
    """Which tokens of a step belong together: T tokens in R rows."""

    start: torch.Tensor
    """[R+1] int32; row r owns tokens start[r] to start[r+1], and start[R] is T."""
    host_start: Int32
    longest: int
    """Tokens of the longest row."""

    @classmethod
    def of(cls, lengths: tuple[int, ...]) -> Ragged:
        """Rows of these lengths, on the host."""
        start = np.cumsum([0, *lengths], dtype=np.int32)
        return cls(torch.from_numpy(start.copy()), start, max(lengths, default=0))

    def to(self, device: torch.device | str) -> Ragged:
        """The same with its tensor on `device`."""
        return replace(self, start=self.start.to(device))


def ragged_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: Ragged, scale: float) -> torch.Tensor:
    """Every token sees all tokens of its own row, those after it too, and no others.

    q [T, N, D], k [T, M, D], v [T, M, Dv] -> [T, N, Dv] in q's dtype, computed in float32. N is a multiple of M.
    """
    result = q.new_empty(q.shape[0], q.shape[1], v.shape[-1])
    for begin, end in zip(rows.host_start[:-1].tolist(), rows.host_start[1:].tolist(), strict=True):
        count = max(1, MAX_SCORES // (q.shape[1] * max(1, end - begin)))
        for first in range(begin, end, count):
            part = slice(first, min(first + count, end))
            result[part] = _attend(q[part], k[begin:end], v[begin:end], scale)
    return result


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """q [t, N, D] against k [s, M, D] -> [t, N, Dv]."""
    wide = accumulation_dtype(q.dtype)
    queries = q.to(wide).reshape(len(q), k.shape[1], -1, q.shape[-1])
    scores = torch.einsum("tmrd,smd->mrts", queries, k.to(wide)) * scale
    attended = torch.einsum("mrts,smd->tmrd", scores.softmax(-1), v.to(wide))
    return attended.reshape(len(q), q.shape[1], -1).to(q.dtype)


def _ragged_cases(generator: torch.Generator, spec: OpSpec) -> Iterator[Case]:
    scale = spec.head_dim**-0.5
    for label, lengths in ROWS.items():
        q, k, v = (
            normal(generator, sum(lengths), heads, spec.head_dim, dtype=spec.dtype)
            for heads in (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
        )
        yield Case(label, (q, k, v, Ragged.of(lengths), scale))
        if label == "ragged":
            yield Case("strided", (strided(q), strided(k), strided(v), Ragged.of(lengths), scale))


RAGGED_OPS = (Op("ragged_attention", ragged_attention, _ragged_cases, used=lambda spec: spec.encoder),)
