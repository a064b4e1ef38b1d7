"""Products with fragments where scales are applied to the sums of a group: the fewer tokens, the less work.

    sum (code - zero) scale x = scale (sum (code + 128) x - (128 + zero) sum x)

A code with an exponent before it is a number larger by 128 (bfloat16) or 1024 (float16), which costs nothing more. The
sums of x are products of it with ones.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

from anychip.triton.gluon_programs.fragment_numbers import as_float, halves, held_by, lowest


@gluon.constexpr_function
def apart(WARPS):
    """Who holds sums [blocks of rows, g, tokens] of rows g, and as well those of rows g + 8."""
    return gl.BlockedLayout([1, 1, 2], [1, 8, 4], [WARPS, 1, 1], [2, 1, 0])


@gluon.jit
def read_pairs(
    factors, tile, chunk, N: gl.constexpr, GROUP: gl.constexpr, BLOCKS: gl.constexpr, WARPS: gl.constexpr
):  # fmt: skip
    """Scales or zero points of a chunk's first and second 64 inputs, [BLOCKS, 8]; those of two groups in an int64."""
    of_block: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, apart(WARPS)))
    of_row: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, apart(WARPS)))
    inside = gl.minimum(tile * BLOCKS + gl.arange(0, BLOCKS, of_block), N // 16 - 1)
    offsets = inside[:, None] * 8 + gl.arange(0, 8, of_row)[None, :]
    if GROUP == 32:
        factors = factors.to(gl.pointer_type(gl.int64), bitcast=True)
    if GROUP < 128:
        near = factors + chunk * (N // 16 * 16) + offsets
        return gl.load(near), gl.load(near + N // 16 * 8)
    else:
        both = gl.load(factors + chunk // (GROUP // 128) * (N // 16 * 8) + offsets)
        return both, both


@gluon.jit
def add_chunk(
    total, codes, z, scales, zeros, TYPE: gl.constexpr, GROUP: gl.constexpr, ZEROS: gl.constexpr, BLOCKS: gl.constexpr,
    sums: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """total [16 BLOCKS, BLOCK_T] and the products of a chunk."""
    HALF: gl.constexpr = gl.float16 == TYPE
    BLOCK_T: gl.constexpr = total.shape[1]
    words = gl.convert_layout(codes.reshape([2 * BLOCKS, 8, 4, 2, 2]), held_by(WARPS), assert_trivial=True)
    near = gl.join(halves(lowest(words, HALF)), halves(lowest(words >> 4, HALF)))
    far = gl.join(halves(lowest(words >> 8, HALF)), halves(lowest(words >> 12, HALF)))
    every = gl.join(near, far).reshape([2, BLOCKS, 8, 4, 2, 2, 2, 2, 2]).to(TYPE, bitcast=True)
    every = every.permute([1, 7, 2, 5, 8, 3, 6, 4, 0])  # rows; 16 inputs, which of two; which 32 of 64, which 64
    z = z.reshape([2, 2, 2, 16, BLOCK_T]).permute([3, 4, 2, 1, 0])
    if GROUP >= 128:
        every, z = every.permute([0, 1, 2, 8, 7, 3, 4, 5, 6]), z.permute([4, 3, 2, 0, 1])
        return _add_group(total, every, z, scales[0], zeros[0], 128, HALF, ZEROS, BLOCKS, sums, WARPS)
    else:
        first, second = every.split()
        z_first, z_second = z.split()
        total = _add_half(total, first, z_first, scales[0], zeros[0], GROUP, HALF, ZEROS, BLOCKS, sums, WARPS)
        return _add_half(total, second, z_second, scales[1], zeros[1], GROUP, HALF, ZEROS, BLOCKS, sums, WARPS)


@gluon.jit
def _add_half(
    total, codes, z, scale, zero, GROUP: gl.constexpr, HALF: gl.constexpr, ZEROS: gl.constexpr, BLOCKS: gl.constexpr,
    sums: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """The same for 64 inputs, whose two groups of 32 are in the last dimension."""
    if GROUP == 64:
        codes, z = codes.permute([0, 1, 2, 7, 3, 4, 5, 6]), z.permute([3, 2, 0, 1])
        return _add_group(total, codes, z, scale, zero, 64, HALF, ZEROS, BLOCKS, sums, WARPS)
    else:
        first, second = codes.split()
        z_first, z_second = z.split()
        low, high, low_zero, high_zero = _words(scale) + _words(zero)
        z_first, z_second = z_first.permute([2, 0, 1]), z_second.permute([2, 0, 1])
        total = _add_group(total, first, z_first, low, low_zero, 32, HALF, ZEROS, BLOCKS, sums, WARPS)
        return _add_group(total, second, z_second, high, high_zero, 32, HALF, ZEROS, BLOCKS, sums, WARPS)


@gluon.jit
def _words(pair):
    return pair.to(gl.int32), (pair >> 32).to(gl.int32)


@gluon.jit
def _add_group(
    total, codes, z, scale, zero, INPUTS: gl.constexpr, HALF: gl.constexpr, ZEROS: gl.constexpr, BLOCKS: gl.constexpr,
    sums: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    left: gl.constexpr = gl.DotOperandLayout(0, sums, 2)
    BLOCK_T: gl.constexpr = total.shape[1]
    codes = gl.convert_layout(codes.reshape([16 * BLOCKS, INPUTS]), left, assert_trivial=True)
    z = gl.convert_layout(z.reshape([INPUTS, BLOCK_T]), gl.DotOperandLayout(1, sums, 2), assert_trivial=True)
    low, high = _rows(mma_v2(codes, z, gl.zeros([16 * BLOCKS, BLOCK_T], gl.float32, sums)), BLOCKS, WARPS)
    ones = gl.full([16 * WARPS, INPUTS], 1.0, z.dtype, left)
    x_sums = mma_v2(ones, z, gl.zeros([16 * WARPS, BLOCK_T], gl.float32, sums))
    x_sums = _rows_alike(x_sums, BLOCKS, WARPS)
    first, second = _rows(total, BLOCKS, WARPS)
    first = _corrected(first, low, x_sums, as_float(scale), as_float(zero), HALF, ZEROS)
    second = _corrected(second, high, x_sums, as_float(scale >> 16), as_float(zero >> 16), HALF, ZEROS)
    total = gl.join(first, second).permute([0, 3, 1, 2]).reshape([16 * BLOCKS, BLOCK_T])
    return gl.convert_layout(total, sums, assert_trivial=True)


@gluon.jit
def _rows(total, BLOCKS: gl.constexpr, WARPS: gl.constexpr):
    """Sums [16 BLOCKS, BLOCK_T] as those of rows g and of rows g + 8, [BLOCKS, 8, BLOCK_T] each."""
    low, high = total.reshape([BLOCKS, 2, 8, total.shape[1]]).permute([0, 2, 3, 1]).split()
    layout: gl.constexpr = apart(WARPS)
    return gl.convert_layout(low, layout, assert_trivial=True), gl.convert_layout(high, layout, assert_trivial=True)


@gluon.jit
def _rows_alike(x_sums, BLOCKS: gl.constexpr, WARPS: gl.constexpr):
    """The first rows of a block a warp as those of all blocks, one or two a warp."""
    BLOCK_T: gl.constexpr = x_sums.shape[1]
    alike, _ = x_sums.reshape([WARPS, 2, 8, BLOCK_T]).permute([0, 2, 3, 1]).split()
    gl.static_assert(BLOCKS == WARPS or BLOCKS == 2 * WARPS)
    if BLOCKS > WARPS:
        alike = gl.join(alike, alike).permute([3, 0, 1, 2]).reshape([BLOCKS, 8, BLOCK_T])
    return gl.convert_layout(alike, apart(WARPS), assert_trivial=True)


@gluon.jit
def _corrected(total, products, x_sums, scale, zero, HALF: gl.constexpr, ZEROS: gl.constexpr):
    larger: gl.constexpr = 1024.0 if HALF else 128.0
    offset = scale * (zero + larger if ZEROS else larger + 8)
    return total + products * scale[:, :, None] - x_sums * offset[:, :, None]
