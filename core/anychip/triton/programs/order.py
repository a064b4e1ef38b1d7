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
def _instruct(TEXT: tl.constexpr):
    tl.inline_asm_elementwise(TEXT, "=r", [], dtype=tl.int32, is_pure=False, pack=1)
