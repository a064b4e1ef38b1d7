"""A sum over the GPUs of one host, each writing its part into the others' memory: one launch, one way over the link.

Every rank has an inbox and flags that all others reach; `inboxes` and `flags` hold their addresses by rank.

    inbox, bytes [2 turns, ranks, programs, REGION]: what each rank sent to each program, in turn into two places
    flags, int32 [programs, ranks, APART]: the last round of a program that a rank has sent, each in a line of its own
    rounds, int32 [programs], this rank's: rounds of each program so far

A place is written again two rounds later. By then its reader has sent its part of the round between, which it does only
after it has read.
"""

import triton
import triton.language as tl

from anychip.triton.programs.order import take_turn

REGION = tl.constexpr(8192)
"""Bytes of a program's part."""
APART = tl.constexpr(32)


@triton.jit(do_not_specialize=["rank", "size"])
def add_over_ranks(
    x, inboxes, flags, rounds, rank, size, OVERLAP: tl.constexpr, RANKS: tl.constexpr, PROGRAMS: tl.constexpr, BLOCK:
    tl.constexpr,
):  # fmt: skip
    """x [size] becomes the sum of all ranks' x, added in the order of ranks: each gets the same bits."""
    take_turn(OVERLAP)
    program, lanes = tl.program_id(0), tl.arange(0, BLOCK)
    places = program * BLOCK + lanes
    inside = places < size
    now = tl.load(rounds + program) + 1
    turn = (now & 1) * RANKS
    part = tl.load(x + places, inside, other=0.0)
    for peer in tl.static_range(RANKS):
        theirs = tl.load(inboxes + peer) + ((turn + rank) * PROGRAMS + program) * REGION
        tl.store(theirs.to(tl.pointer_type(x.dtype.element_ty)) + lanes, part)
    tl.debug_barrier()  # all threads have written their part
    for peer in tl.static_range(RANKS):
        flag = tl.load(flags + peer).to(tl.pointer_type(tl.int32)) + (program * RANKS + rank) * APART
        tl.atomic_xchg(flag, now, sem="release", scope="sys")
    for peer in tl.static_range(RANKS):
        flag = tl.load(flags + rank).to(tl.pointer_type(tl.int32)) + (program * RANKS + peer) * APART
        while tl.atomic_add(flag, 0, sem="acquire", scope="sys") - now < 0:  # it may be a round ahead
            pass
    tl.debug_barrier()
    total = tl.zeros((BLOCK,), tl.float32)
    for peer in tl.static_range(RANKS):
        ours = tl.load(inboxes + rank) + ((turn + peer) * PROGRAMS + program) * REGION
        # Past the first cache, which knows nothing of what others write.
        source = ours.to(tl.pointer_type(x.dtype.element_ty)) + lanes
        total += tl.load(source, cache_modifier=".cg").to(tl.float32)
    tl.store(x + places, total.to(x.dtype.element_ty), inside)
    tl.store(rounds + program, now)
