"""Products with weights of 4 bits that lie in memory as matrix instructions want them, for NVIDIA's chips.

    words [K / 64, N / 16, 128]: word 16 g + 4 t + w of a block holds rows g and g + 8, inputs 16 w + 2 t, + 1, + 8, + 9

A block is 16 rows by 64 inputs. Thread 4 g + t of a warp reads 16 bytes of it and holds what four instructions of 16
inputs take: nothing changes its place between memory and the product. Half h of a word holds inputs of parity h, nibble
n of a half row g + 8 (n % 2) and inputs 8 (n // 2) further. Scales and zero points are float16, those of rows g and
g + 8 in one int32: [K / 64 or K / GROUP, N / 16, 8, groups of 64 inputs].

Who holds what is said in Gluon, Triton's language of layouts, and it is checked that nothing is moved.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma

from anychip.triton.gluon_programs.fragment_groups import add_chunk, read_pairs
from anychip.triton.gluon_programs.fragment_numbers import read_factors, scaled
from anychip.triton.gluon_programs.fragment_sums import finish
from anychip.triton.programs.order import let_next_start, wait_for_previous

BLOCK_K = gl.constexpr(128)


@gluon.jit(do_not_specialize=["num_tokens"])
def multiply_fragments(
    x, words, scales, zeros, bias, out, partial, counters, num_tokens, stride_x, N: gl.constexpr, K: gl.constexpr,
    GROUP: gl.constexpr, ZEROS: gl.constexpr, BIAS: gl.constexpr, OVERLAP: gl.constexpr, SUMS: gl.constexpr, WIDE:
    gl.constexpr, SHARE: gl.constexpr, BLOCK_T: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, WARPS:
    gl.constexpr,
):  # fmt: skip
    """y [T, N] = x [T, K] W^T: a program for each tile of rows, SHARE chunks of 128 inputs and block of tokens.

    SUMS: scales are applied to the sums of a group, else to numbers. WIDE: by instructions of four warps (Hopper's).
    """
    let_next_start(OVERLAP)
    CHUNKS: gl.constexpr = K // BLOCK_K
    TYPE: gl.constexpr = x.dtype.element_ty
    packed = gl.allocate_shared_memory(gl.int32, [STAGES, BLOCK_N // 8, 128], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    tokens = gl.allocate_shared_memory(
        TYPE, [STAGES, BLOCK_T, BLOCK_K],
        gl.NVMMASharedLayout(128, 16, 2) if WIDE else gl.SwizzledSharedLayout(8, 1, 8, [1, 0]),
    )  # fmt: skip
    sums: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0] if WIDE else [2, 0], [WARPS, 1], [16, BLOCK_T, 16] if WIDE else [16, 8]
    )
    tile, first = gl.program_id(0), gl.program_id(1) * SHARE
    total = _multiply(
        x, words, scales, zeros, packed, tokens, num_tokens, stride_x, tile, first, gl.minimum(first + SHARE, CHUNKS),
        N, GROUP, ZEROS, OVERLAP, SUMS, WIDE, BLOCK_T, BLOCK_N, STAGES, WARPS, sums,
    )  # fmt: skip
    SPLIT: gl.constexpr = (CHUNKS + SHARE - 1) // SHARE
    finish(total, bias, out, partial, counters, num_tokens, N, BIAS, SPLIT, BLOCK_T, BLOCK_N, WARPS, sums)


@gluon.jit
def _multiply(
    x, words, scales, zeros, packed, tokens, num_tokens, stride_x, tile, first, last, N: gl.constexpr, GROUP:
    gl.constexpr, ZEROS: gl.constexpr, OVERLAP: gl.constexpr, SUMS: gl.constexpr, WIDE: gl.constexpr, BLOCK_T:
    gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, WARPS: gl.constexpr, sums: gl.constexpr,
):  # fmt: skip
    """A tile's sums of the chunks `first` to `last`, [BLOCK_N, BLOCK_T]."""
    BLOCKS: gl.constexpr = BLOCK_N // 16
    STRIDE: gl.constexpr = N * BLOCK_K // 8
    TYPE: gl.constexpr = x.dtype.element_ty
    read: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [WARPS, 1], [1, 0])
    sources = _words_of(words, tile, first, N, BLOCKS, read)
    inputs = _inputs_of(x, num_tokens, stride_x, first, BLOCK_T, WARPS)
    for stage in gl.static_range(STAGES - 1):  # the first weights before x is there: no program writes weights
        if first + stage < last:
            async_copy.async_copy_global_to_shared(packed.index(stage), sources + stage * STRIDE)
        async_copy.commit_group()
    scale, zero = _read(scales, zeros, tile, first, N, GROUP, ZEROS, SUMS, BLOCKS, WARPS)
    wait_for_previous(OVERLAP)
    for stage in gl.static_range(STAGES - 1):
        if first + stage < last:
            async_copy.async_copy_global_to_shared(tokens.index(stage), inputs + stage * BLOCK_K)
        async_copy.commit_group()
    sources += (STAGES - 1) * STRIDE
    inputs += (STAGES - 1) * BLOCK_K
    total = gl.zeros([BLOCK_N, BLOCK_T], gl.float32, sums)
    place, free = 0, STAGES - 1
    for chunk in range(first, last):
        async_copy.wait_group(STAGES - 2)
        codes = packed.index(place).load(read)
        z = tokens.index(place).permute([1, 0])
        if WIDE:
            fence_async_shared()
        else:
            z = z.load(gl.DotOperandLayout(1, sums, 2))
        if chunk + STAGES - 1 < last:
            async_copy.async_copy_global_to_shared(packed.index(free), sources)
            async_copy.async_copy_global_to_shared(tokens.index(free), inputs)
        async_copy.commit_group()
        sources += STRIDE
        inputs += BLOCK_K
        if SUMS:
            total = add_chunk(total, codes, z, scale, zero, TYPE, GROUP, ZEROS, BLOCKS, sums, WARPS)
        else:
            numbers = scaled(codes, scale, zero, TYPE, ZEROS, BLOCKS, WARPS)
            numbers = gl.convert_layout(numbers, gl.DotOperandLayout(0, sums, 2), assert_trivial=True)
            total = warpgroup_mma(numbers, z, total) if WIDE else mma_v2(numbers, z, total)
        scale, zero = _read(scales, zeros, tile, gl.minimum(chunk + 1, last - 1), N, GROUP, ZEROS, SUMS, BLOCKS, WARPS)
        place = gl.where(place == STAGES - 1, 0, place + 1)
        free = gl.where(free == STAGES - 1, 0, free + 1)
    async_copy.wait_group(0)
    return total


@gluon.jit
def _words_of(words, tile, chunk, N: gl.constexpr, BLOCKS: gl.constexpr, read: gl.constexpr):
    """Where a chunk of a tile lies: its blocks of the first 64 inputs, then those of the others, [2 BLOCKS, 128]."""
    block = gl.arange(0, 2 * BLOCKS, gl.SliceLayout(1, read))
    inside = gl.minimum(tile * BLOCKS + block % BLOCKS, N // 16 - 1)
    place = (chunk * 2 + block // BLOCKS).to(gl.int64) * (N // 16) + inside
    return words + place[:, None] * 128 + gl.arange(0, 128, gl.SliceLayout(0, read))[None, :]


@gluon.jit
def _inputs_of(x, num_tokens, stride_x, chunk, BLOCK_T: gl.constexpr, WARPS: gl.constexpr):
    """Where a chunk of some tokens lies, [BLOCK_T, 128]; behind the last one is the last one."""
    across: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [WARPS, 1], [1, 0])
    token = gl.program_id(2) * BLOCK_T + gl.arange(0, BLOCK_T, gl.SliceLayout(1, across))
    lines = x + gl.minimum(token, num_tokens - 1).to(gl.int64)[:, None] * stride_x
    return lines + chunk * BLOCK_K + gl.arange(0, BLOCK_K, gl.SliceLayout(0, across))[None, :]


@gluon.jit
def _read(
    scales, zeros, tile, chunk, N: gl.constexpr, GROUP: gl.constexpr, ZEROS: gl.constexpr, SUMS: gl.constexpr, BLOCKS:
    gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Scales and zero points of a chunk, as its product wants them; without zero points the scales twice."""
    if SUMS:
        scale = read_pairs(scales, tile, chunk, N, GROUP, BLOCKS, WARPS)
        return scale, read_pairs(zeros, tile, chunk, N, GROUP, BLOCKS, WARPS) if ZEROS else scale
    else:
        scale = read_factors(scales, tile, chunk, N, GROUP, BLOCKS, WARPS)
        return scale, read_factors(zeros, tile, chunk, N, GROUP, BLOCKS, WARPS) if ZEROS else scale
