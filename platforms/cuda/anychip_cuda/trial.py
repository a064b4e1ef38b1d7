"""Timing libraries and Triton's attention on long prompts, on the GPU that will run them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch

from anychip.ops.attention import AttentionInputs
from anychip.ops.op import OpSpec
from anychip.ops.shapes import dtype_of
from anychip.plugin.contract import KVSpec, Plane
from anychip.triton.attention.attention import Attention
from anychip.triton.attention.cache import new_cache
from anychip.triton.chip import Chip
from anychip_cuda.choice import TRIAL, Timed
from anychip_cuda.libraries import Keys, Library, Prompts

CALLS = 5
"""Calls that are timed, of which the fastest counts: others are slower by what else runs while a model is loaded."""


@dataclass(frozen=True, slots=True)
class _Loose(Keys):
    """Keys that are in no cache."""

    computed: tuple[torch.Tensor, torch.Tensor]

    def read(self, first: int, last: int, room: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See `Keys`, but further keys follow the last one in place of zeros."""
        k, v = self.computed
        return k[first : first + room], v[first : first + room]


def timer(device: torch.device, chip: Chip) -> Timed:
    """What times libraries, and Triton's kernels, on a GPU."""

    def timed(library: Library | None, spec: OpSpec) -> float:
        run = _own(chip, spec, device) if library is None else _trial(library, spec, device)
        run()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(CALLS + 1)]
        marks[0].record()
        for mark in marks[1:]:
            run()
            mark.record()
        marks[-1].synchronize()
        return 1000 * min(float(first.elapsed_time(last)) for first, last in pairwise(marks))

    return timed


def _trial(library: Library, spec: OpSpec, device: torch.device) -> Callable[[], torch.Tensor]:
    start = (0, *accumulate(TRIAL))
    there = torch.tensor(start, dtype=torch.int32, device=device)
    prompts = Prompts(0, start, start, there, there, fresh=True, alike=len({*TRIAL}) == 1)
    q, k, v = (_random(spec, start[-1], heads, device) for heads in _heads(spec))
    return lambda: library.attend(q, _Loose((k, v)), prompts, spec.head_dim**-0.5)


def _own(chip: Chip, spec: OpSpec, device: torch.device) -> Callable[[], torch.Tensor]:
    """Triton's attention of the same prompts, over a paged cache whose blocks lie in order."""
    lengths = np.array(TRIAL, np.int32)
    start, blocks = np.array((0, *accumulate(TRIAL)), np.int32), -(-lengths // spec.block_size)
    table = np.arange(1, blocks.sum() + 1, dtype=np.int32).reshape(len(TRIAL), -1)
    planes = tuple(Plane(name, (spec.num_kv_heads, spec.head_dim), spec.dtype) for name in ("k", "v"))
    kv, attention = KVSpec("full", planes), Attention(chip, spec.num_heads, dtype_of(spec.dtype))
    cache = new_cache(kv, int(blocks.sum()) + 1, spec.block_size, device)
    for plane in cache.planes:
        plane.normal_()
    positions = np.concatenate([np.arange(length, dtype=np.int32) for length in TRIAL])
    inputs = AttentionInputs.from_host(positions, start, lengths, table, 0, device)
    plan, q = attention.plan_attention(inputs, kv, spec.block_size), _random(spec, start[-1], spec.num_heads, device)
    return lambda: attention.paged_attention(q, cache, plan, spec.head_dim**-0.5)


def _heads(spec: OpSpec) -> tuple[int, int, int]:
    return spec.num_heads, spec.num_kv_heads, spec.num_kv_heads


def _random(spec: OpSpec, tokens: int, heads: int, device: torch.device) -> torch.Tensor:
    return torch.empty(int(tokens), heads, spec.head_dim, dtype=dtype_of(spec.dtype), device=device).normal_()
