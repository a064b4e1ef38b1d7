"""Weights of 4 bits in fragments (see fragments.py) as plain numbers, for products that a library does faster."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from anychip.triton.gluon_programs.fragment_numbers import as_float, held_by, read_factors
from anychip.triton.programs.order import let_next_start, wait_for_previous

MAGIC = gl.constexpr(0x4B000000)
SHIFTED = gl.constexpr(8388608.0)
SYMMETRIC = gl.constexpr(8.0)


@gluon.jit
def unpack_fragments(
    words, scales, zeros, out, N: gl.constexpr, K: gl.constexpr, GROUP: gl.constexpr, ZEROS: gl.constexpr, OVERLAP:
    gl.constexpr, BLOCKS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """out [N, K]: a program for a chunk of 128 inputs of BLOCKS blocks of 16 rows."""
    let_next_start(OVERLAP)
    held: gl.constexpr = held_by(WARPS)
    tile, chunk = gl.program_id(0), gl.program_id(1)
    read: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [WARPS, 1], [1, 0])
    block = gl.arange(0, 2 * BLOCKS, gl.SliceLayout(1, read))
    inside = gl.minimum(tile * BLOCKS + block % BLOCKS, N // 16 - 1)
    place = (chunk * 2 + block // BLOCKS).to(gl.int64) * (N // 16) + inside
    codes = gl.load(words + place[:, None] * 128 + gl.arange(0, 128, gl.SliceLayout(0, read))[None, :])
    codes = gl.convert_layout(codes.reshape([2 * BLOCKS, 8, 4, 2, 2]), held, assert_trivial=True)
    scale = read_factors(scales, tile, chunk, N, GROUP, BLOCKS, WARPS)
    low, high = as_float(scale), as_float(scale >> 16)
    if ZEROS:
        zero = read_factors(zeros, tile, chunk, N, GROUP, BLOCKS, WARPS)
        low_zero, high_zero = as_float(zero), as_float(zero >> 16)
    else:
        low_zero, high_zero = SYMMETRIC, SYMMETRIC
    TYPE: gl.constexpr = out.dtype.element_ty
    near = gl.join(_halves(codes, low, low_zero, TYPE), _halves(codes >> 4, high, high_zero, TYPE))
    far = gl.join(_halves(codes >> 8, low, low_zero, TYPE), _halves(codes >> 12, high, high_zero, TYPE))
    numbers = gl.join(near, far).reshape([2, BLOCKS, 8, 4, 2, 2, 2, 2, 2])  # .., parity, half of rows, half of inputs
    numbers = numbers.permute([1, 7, 2, 0, 4, 5, 8, 3, 6]).reshape([16 * BLOCKS, 128])
    written: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [WARPS, 1], [1, 0])
    rows = tile * (16 * BLOCKS) + gl.arange(0, 16 * BLOCKS, gl.SliceLayout(1, written))
    columns = chunk * 128 + gl.arange(0, 128, gl.SliceLayout(0, written))
    wait_for_previous(OVERLAP)
    targets = out + rows.to(gl.int64)[:, None] * K + columns[None, :]
    gl.store(targets, gl.convert_layout(numbers, written), (rows < N)[:, None])


@gluon.jit
def _halves(words, scale, zero, TYPE: gl.constexpr):
    """The lowest codes of both halves of words as numbers, in a dimension behind the others."""
    return gl.join(_number(words, scale, zero).to(TYPE), _number(words >> 16, scale, zero).to(TYPE))


@gluon.jit
def _number(words, scale, zero):
    return (((words & 15) | MAGIC).to(gl.float32, bitcast=True) - SHIFTED - zero) * scale
