"""What becomes of the sums of a tile: joined with those of other programs, and stored."""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

FEW = gl.constexpr(512)
"""Sums of a warp of which there may be many in registers."""


@gluon.jit
def finish(
    total, bias, out, partial, counters, num_tokens, N: gl.constexpr, BIAS: gl.constexpr, SPLIT: gl.constexpr, BLOCK_T:
    gl.constexpr, BLOCK_N: gl.constexpr, WARPS: gl.constexpr, sums: gl.constexpr,
):  # fmt: skip
    """The sums [BLOCK_N, BLOCK_T] of a tile's last program, with those of the others, plus a bias, to out [T, N]."""
    tile = gl.program_id(0)
    rows = tile * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(1, sums))
    columns = gl.arange(0, BLOCK_T, gl.SliceLayout(0, sums))
    if SPLIT == 1:
        _store(total, bias, out, rows, gl.program_id(2) * BLOCK_T + columns, num_tokens, N, BIAS)
    else:
        SIZE: gl.constexpr = ((N + BLOCK_N - 1) // BLOCK_N) * BLOCK_N * BLOCK_T
        places = partial + rows[:, None] * BLOCK_T + columns[None, :]
        gl.store(places + gl.program_id(1) * SIZE, total)
        tl.debug_barrier()  # all threads' sums are written before the count says so
        if gl.atomic_add(counters + tile, 1, sem="acq_rel") == SPLIT - 1:
            tl.debug_barrier()
            gl.store(counters + tile, 0)
            joined = gl.load(places, cache_modifier=".cg")
            for other in gl.static_range(1, SPLIT):
                if BLOCK_N * BLOCK_T // WARPS > FEW:
                    tl.debug_barrier()  # one after the other, for want of registers
                joined += gl.load(places + other * SIZE, cache_modifier=".cg")
            _store(joined, bias, out, rows, columns, num_tokens, N, BIAS)


@gluon.jit
def _store(total, bias, out, rows, columns, num_tokens, N: gl.constexpr, BIAS: gl.constexpr):
    if BIAS:
        total += gl.load(bias + rows, rows < N, other=0.0).to(gl.float32)[:, None]
    inside = (rows < N)[:, None] & (columns < num_tokens)[None, :]
    gl.store(out + columns.to(gl.int64)[None, :] * N + rows[:, None], total.to(out.dtype.element_ty), inside)
