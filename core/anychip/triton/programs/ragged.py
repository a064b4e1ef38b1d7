"""Attention of an encoder's rows over their own tokens, in both directions and without a cache."""

import triton
import triton.language as tl

from anychip.triton.programs.fold import LOWEST
from anychip.triton.programs.order import take_turn


@triton.jit(do_not_specialize_on_alignment=["start"])
def attend_ragged(
    q, k, v, start, out, scale, stride_qt, stride_qh, stride_kt, stride_kh, stride_vt, stride_vh, OVERLAP: tl.constexpr,
    G: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """A program for BLOCK_M tokens of a row and one query head; those behind a row's end have nothing to do."""
    take_turn(OVERLAP)
    row, head, heads = tl.program_id(0), tl.program_id(2), tl.num_programs(2)
    begin, end = tl.load(start + row), tl.load(start + row + 1)
    token = begin + tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    if begin + tl.program_id(1) * BLOCK_M >= end:
        return
    dims = tl.arange(0, BLOCK_D)
    valid = (token < end)[:, None] & (dims < D)[None, :]
    places = token.to(tl.int64)[:, None]
    queries = tl.load(q + places * stride_qt + head * stride_qh + dims[None, :], valid, other=0.0)
    highest = tl.full((BLOCK_M,), LOWEST, tl.float32)
    mass = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for first in range(begin, end, BLOCK_N):
        key = first + tl.arange(0, BLOCK_N)
        within = (key < end)[:, None] & (dims < D)[None, :]
        at = key.to(tl.int64)[:, None]
        keys = tl.load(k + at * stride_kt + head // G * stride_kh + dims[None, :], within, other=0.0)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where((key < end)[None, :], scores, LOWEST)
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(highest - higher)
        mass = mass * shrink + tl.sum(weights, 1)
        values = tl.load(v + at * stride_vt + head // G * stride_vh + dims[None, :], within, other=0.0)
        total = tl.dot(weights.to(values.dtype), values, total * shrink[:, None], input_precision="ieee")
        highest = higher
    result = total / mass[:, None]
    tl.store(out + (places * heads + head) * D + dims[None, :], result.to(out.dtype.element_ty), valid)
