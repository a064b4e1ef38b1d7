"""What becomes of the sums of a tile: joined with those of other programs, and stored."""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def finish(
    total, bias, out, partial, counters, num_tokens, tile, N: gl.constexpr, CHUNKS: gl.constexpr, BIAS: gl.constexpr,
    SHARE: gl.constexpr, BLOCK_T: gl.constexpr, BLOCK_N: gl.constexpr, sums: gl.constexpr,
):  # fmt: skip
    """The sums [BLOCK_N, BLOCK_T] of a tile's last program, with those of the others, plus a bias, to out [T, N].

    partial [tiles, most programs of a tile, BLOCK_N, BLOCK_T]: those of a tile have numbers in a row.
    """
    zero = gl.inline_asm_elementwise("mov.b32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1)
    rows = gl.arange(0, BLOCK_N, gl.SliceLayout(1, sums)) + zero  # not known, so not kept while products need registers
    columns = gl.arange(0, BLOCK_T, gl.SliceLayout(0, sums)) + zero
    first, last = tile * CHUNKS // SHARE, (tile * CHUNKS + CHUNKS - 1) // SHARE
    if CHUNKS == SHARE or first == last:
        _store(total, bias, out, tile * BLOCK_N + rows, gl.program_id(1) * BLOCK_T + columns, num_tokens, N, BIAS)
    else:
        SIZE: gl.constexpr = BLOCK_N * BLOCK_T
        MOST: gl.constexpr = (CHUNKS + 2 * SHARE - 2) // SHARE
        places = partial + tile * (MOST * SIZE) + rows[:, None] * BLOCK_T + columns[None, :]
        gl.store(places + (gl.program_id(0) - first) * SIZE, total)
        tl.debug_barrier()  # all threads' sums are written before the count says so
        if gl.atomic_add(counters + tile, 1, sem="acq_rel") == last - first:
            tl.debug_barrier()
            gl.store(counters + tile, 0)
            joined = gl.load(places, cache_modifier=".cg")
            for other in range(1, last - first + 1):
                joined += gl.load(places + other * SIZE, cache_modifier=".cg")
            _store(joined, bias, out, tile * BLOCK_N + rows, columns, num_tokens, N, BIAS)


@gluon.jit
def _store(total, bias, out, rows, columns, num_tokens, N: gl.constexpr, BIAS: gl.constexpr):
    if BIAS:
        total += gl.load(bias + rows, rows < N, other=0.0).to(gl.float32)[:, None]
    inside = (rows < N)[:, None] & (columns < num_tokens)[None, :]
    gl.store(out + columns.to(gl.int64)[None, :] * N + rows[:, None], total.to(out.dtype.element_ty), inside)
