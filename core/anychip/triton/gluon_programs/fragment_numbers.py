"""Codes of a fragment as numbers: two at a time, by NVIDIA's arithmetic on two 16-bit numbers in a register."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

SIGNS = gl.constexpr(-0x7FFF8000)
"""Signs of two 16-bit numbers; as numbers, two zeros that change nothing they are added to."""


@gluon.constexpr_function
def held_by(WARPS):
    """Who holds words [blocks of rows, g, t, inputs of 32, of 16]: thread 4 g + t, each warp its own blocks."""
    return gl.BlockedLayout([1, 1, 1, 2, 2], [1, 8, 4, 1, 1], [WARPS, 1, 1, 1, 1], [3, 4, 2, 1, 0])


@gluon.jit
def read_factors(
    factors, tile, chunk, N: gl.constexpr, GROUP: gl.constexpr, BLOCKS: gl.constexpr, WARPS: gl.constexpr
):  # fmt: skip
    """Scales or zero points of a chunk, [2 BLOCKS, 8, 1, groups of 64 inputs, 1], by those who hold its words."""
    held: gl.constexpr = held_by(WARPS)
    GROUPS: gl.constexpr = 2 if GROUP == 32 else 1
    of_block: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, gl.SliceLayout(4, held))))
    of_row: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, gl.SliceLayout(4, held))))
    of_group: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(4, held))))
    block = gl.arange(0, 2 * BLOCKS, of_block)
    inside = gl.minimum(tile * BLOCKS + block % BLOCKS, N // 16 - 1)
    if GROUP < 128:
        inside += block // BLOCKS * (N // 16)
        start = chunk * (N // 16 * 16 * GROUPS)
    else:
        start = chunk // (GROUP // 128) * (N // 16 * 8)
    offsets = _spread(inside, [1, 2, 3, 4]) * (8 * GROUPS) + _spread(gl.arange(0, 8, of_row), [0, 2, 3, 4]) * GROUPS
    return gl.load(factors + start + offsets + _spread(gl.arange(0, GROUPS, of_group), [0, 1, 2, 4]))


@gluon.jit
def _spread(vector, AXES: gl.constexpr):
    for axis in gl.static_range(4):
        vector = gl.expand_dims(vector, AXES[axis])
    return vector


@gluon.jit
def scaled(
    codes, scale, zero, TYPE: gl.constexpr, ZEROS: gl.constexpr, BLOCKS: gl.constexpr, WARPS: gl.constexpr
):  # fmt: skip
    """What the words of a chunk mean, [16 BLOCKS, 128] in TYPE."""
    HALF: gl.constexpr = gl.float16 == TYPE
    words = gl.convert_layout(codes.reshape([2 * BLOCKS, 8, 4, 2, 2]), held_by(WARPS), assert_trivial=True)
    factor, shift, other_factor, other_shift = _factors(scale, zero, HALF, ZEROS)
    near = gl.join(
        _numbers(words, factor, shift, HALF, ZEROS), _numbers(words >> 4, other_factor, other_shift, HALF, ZEROS)
    )
    far = gl.join(
        _numbers(words >> 8, factor, shift, HALF, ZEROS), _numbers(words >> 12, other_factor, other_shift, HALF, ZEROS)
    )
    every = gl.join(near, far).reshape([2, BLOCKS, 8, 4, 2, 2, 2, 2, 2])  # .., parity, half of rows, half of inputs
    return every.permute([1, 7, 2, 0, 4, 5, 8, 3, 6]).reshape([16 * BLOCKS, 128]).to(TYPE, bitcast=True)


@gluon.jit
def _numbers(words, factor, shift, HALF: gl.constexpr, ZEROS: gl.constexpr):
    """(code - what it is larger by) * factor + shift, of the lowest nibbles of both halves."""
    exact = _fused(lowest(words, HALF), 0x3C003C00 if HALF else 0x3F803F80, _larger(HALF, ZEROS), HALF)
    return halves(_fused(exact, factor, shift, HALF))


@gluon.constexpr_function
def _larger(half, zeros):
    """Minus what a code is larger by, twice in an int32: 1024 or 128, and 8 where there are no zero points."""
    number = (0xE400 if zeros else 0xE408) if half else (0xC300 if zeros else 0xC308)
    return (number << 16 | number) - (1 << 32)


@gluon.jit
def _factors(scale, zero, HALF: gl.constexpr, ZEROS: gl.constexpr):
    """Of rows g, then of rows g + 8: the scale and what is added behind it, each twice in an int32."""
    low, high = as_float(scale), as_float(scale >> 16)
    if ZEROS:
        shift, other_shift = low * as_float(zero ^ SIGNS), high * as_float((zero ^ SIGNS) >> 16)
        return _twice(low, HALF), _twice(shift, HALF), _twice(high, HALF), _twice(other_shift, HALF)
    else:
        return _twice(low, HALF), SIGNS, _twice(high, HALF), SIGNS


@gluon.jit
def as_float(pair):
    """The lower float16 of an int32, as float32."""
    return pair.to(gl.int16).to(gl.float16, bitcast=True).to(gl.float32)


@gluon.jit
def halves(pairs):
    """Both halves of int32, in a dimension behind the others."""
    return gl.join(pairs.to(gl.int16), (pairs >> 16).to(gl.int16))


@gluon.jit
def lowest(words, HALF: gl.constexpr):
    """The lowest nibbles of both halves, with an exponent: two numbers larger by 1024 (float16) or 128 (bfloat16)."""
    if HALF:
        return _instruct("lop3.b32 $0, $1, 0x000F000F, 0x64006400, 0xEA;", "=r,r", [words])
    else:
        return _instruct("lop3.b32 $0, $1, 0x000F000F, 0x43004300, 0xEA;", "=r,r", [words])


@gluon.jit
def _twice(number, HALF: gl.constexpr):
    """A float32 as two equal 16-bit numbers in an int32."""
    if HALF:
        return _instruct("cvt.rn.f16x2.f32 $0, $1, $1;", "=r,f", [number])
    else:
        return _instruct("cvt.rn.bf16x2.f32 $0, $1, $1;", "=r,f", [number])


@gluon.jit
def _fused(a, b, c, HALF: gl.constexpr):
    """a * b + c of pairs of 16-bit numbers."""
    if HALF:
        return _instruct("fma.rn.f16x2 $0, $1, $2, $3;", "=r,r,r,r", [a, b, c])
    else:
        return _instruct("fma.rn.bf16x2 $0, $1, $2, $3;", "=r,r,r,r", [a, b, c])


@gluon.jit
def _instruct(TEXT: gl.constexpr, OPERANDS: gl.constexpr, values):
    return gl.inline_asm_elementwise(TEXT, OPERANDS, values, gl.int32, True, 1)
