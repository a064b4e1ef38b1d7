"""Starting before the previous program has ended, on chips that can (OVERLAP); elsewhere nothing."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def take_turn(OVERLAP: tl.constexpr):
    """Let the next program start, then wait until the previous one has written everything."""
    if OVERLAP:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def let_next_start(OVERLAP: tl.constexpr):
    """The first half of `take_turn`: what follows may read only what no program writes, such as weights."""
    if OVERLAP:
        gdc_launch_dependents()


@triton.jit
def wait_for_previous(OVERLAP: tl.constexpr):
    """The second half of `take_turn`."""
    if OVERLAP:
        gdc_wait()
