"""A sum over the GPUs of one host, each reading the others' memory: one launch for messages that are soon read.

Each rank has a buffer and flags that all others can reach. `buffers` and `flags` hold their addresses by rank.

    flags of a rank, int32 [programs, ranks]: 1 where a rank has come to the meeting of a program, until it is seen
"""

import triton
import triton.language as tl

from anychip.triton.programs.order import take_turn


@triton.jit(do_not_specialize=["rank", "size"])
def add_over_ranks(
    x, buffers, flags, rank, size, OVERLAP: tl.constexpr, RANKS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """x [size] becomes the sum of all ranks' x, added in the order of ranks: each gets the same bits."""
    take_turn(OVERLAP)
    program = tl.program_id(0)
    places = program * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    own = tl.load(buffers + rank).to(tl.pointer_type(x.dtype.element_ty))
    tl.store(own + places, tl.load(x + places, inside, other=0.0), inside)
    meet(flags, rank, program, RANKS)
    total = tl.zeros((BLOCK,), tl.float32)
    for peer in tl.static_range(RANKS):
        source = tl.load(buffers + peer).to(tl.pointer_type(x.dtype.element_ty))
        # Past the first cache, which knows nothing of what others write.
        total += tl.load(source + places, inside, other=0.0, cache_modifier=".cg").to(tl.float32)
    meet(flags, rank, program, RANKS)  # nobody writes a buffer anew before all have read it
    tl.store(x + places, total.to(x.dtype.element_ty), inside)


@triton.jit
def meet(flags, rank, program, RANKS: tl.constexpr):
    """Wait for the same program of all ranks; what they wrote before is seen after. Leaves all flags at 0."""
    tl.debug_barrier()  # all threads have come, and what they did
    for peer in tl.static_range(RANKS):
        theirs = tl.load(flags + peer).to(tl.pointer_type(tl.int32)) + program * RANKS + rank
        while tl.atomic_cas(theirs, 0, 1, sem="release", scope="sys") != 0:
            pass
    own = tl.load(flags + rank).to(tl.pointer_type(tl.int32)) + program * RANKS
    for peer in tl.static_range(RANKS):
        while tl.atomic_cas(own + peer, 1, 0, sem="acquire", scope="sys") != 1:
            pass
    tl.debug_barrier()
