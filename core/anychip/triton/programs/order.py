"""Starting before the previous program has ended, on chips that can (OVERLAP); elsewhere nothing.

The instructions are NVIDIA's, of compute capability 9.0 and newer. They are written out because Triton's own names for
them live in a package that builds of Triton for others may lack.
"""

import triton
import triton.language as tl


@triton.jit
def take_turn(OVERLAP: tl.constexpr):
    """Let the next program start, then wait until the previous one has written everything."""
    if OVERLAP:
        _instruct("griddepcontrol.launch_dependents; // $0")
        _instruct("griddepcontrol.wait; // $0")


@triton.jit
def let_next_start(OVERLAP: tl.constexpr):
    """The first half of `take_turn`: what follows may read only what no program writes, such as weights."""
    if OVERLAP:
        _instruct("griddepcontrol.launch_dependents; // $0")


@triton.jit
def wait_for_previous(OVERLAP: tl.constexpr):
    """The second half of `take_turn`."""
    if OVERLAP:
        _instruct("griddepcontrol.wait; // $0")


@triton.jit
def fetch_ahead(lines, start, stop, COUNT: tl.constexpr, PARTS: tl.constexpr):
    """Ask for elements start to start + COUNT of lines [R, 1], none from `stop` on, to be brought into the cache.

    Nobody waits for them, and no program may write them. Lines begin at multiples of 16 bytes, as do their PARTS.
    """
    piece: tl.constexpr = COUNT // PARTS
    size: tl.constexpr = lines.dtype.element_ty.primitive_bitwidth // 8
    first = start + tl.arange(0, PARTS)[None, :] * piece
    pointers = lines + first
    sizes = tl.broadcast_to(tl.minimum(tl.maximum(stop - first, 0), piece) * size, pointers.shape)
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.gt.s32 p, $2, 0; @p cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0; }",
        "=r,l,r", [pointers.to(tl.int64), sizes], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def _instruct(TEXT: tl.constexpr):
    tl.inline_asm_elementwise(TEXT, "=r", [], dtype=tl.int32, is_pure=False, pack=1)
