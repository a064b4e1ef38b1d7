"""Level 2: attention seen through a model's log-probabilities.

Each invariant comes with a control: the same run with one mistake in it, which must give another result. A control
that passes means that the check could not have seen the mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from anychip.engine.batch import NULL_BLOCK, Float32
from anychip.testing.bench import Bench, Piece, random_tokens
from anychip.testing.check import Check, CheckFailedError, NotApplicableError
from anychip.testing.compare import relative
from anychip.testing.subject import Subject

TOLERANCE = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""Largest relative error between two orders of the same computation."""
CONTROL = 3.0
"""A control must be off by this many tolerances."""
LENGTH = 75

Outcome = tuple[Float32, Float32, Float32]
"""What was computed, what it must equal, and what it must not equal."""


def _chunked(bench: Bench) -> Outcome:
    """A prompt in chunks, across block borders; control: the first chunk's keys lie in other blocks."""
    tokens = random_tokens(1, LENGTH)
    whole = bench.run(tokens)
    for start, stop in ((0, 5), (5, 37), (37, 38), (38, LENGTH)):
        chunked = bench.step(bench.piece(tokens, start, stop, first_block=20))[0]
    other = bench.piece(tokens, first_block=60)
    bench.step(bench.piece(random_tokens(2, LENGTH), first_block=60))
    control = bench.step(Piece(0, tokens, 38, LENGTH, other.blocks))[0]
    return chunked, whole, control


def _cached(bench: Bench) -> Outcome:
    """A prefix that another row computed; control: the blocks of another prefix."""
    shared = 2 * bench.block_size
    prefix = random_tokens(3, shared)
    tokens = prefix + random_tokens(4, 9)
    recomputed = bench.run(tokens, row=0, first_block=1)
    bench.step(bench.piece(prefix + random_tokens(5, 21), row=1, first_block=30))
    bench.step(bench.piece(random_tokens(6, shared), row=2, first_block=50))
    tail = bench.blocks(70, len(tokens) - shared)
    reused, wrong = (
        bench.step(Piece(row, tokens, shared, len(tokens), [first, first + 1, *tail]))[0]
        for row, first in ((3, 30), (4, 50))
    )
    return reused, recomputed, wrong


def _ragged(bench: Bench) -> Outcome:
    """Rows of all lengths in one batch; control: a row reads another row's blocks."""
    rows = [
        bench.piece(random_tokens(10 + row, length), row=row, first_block=1 + 10 * row)
        for row, length in enumerate((3, 40, 17, 64, 1, 33))
    ]
    alone = np.concatenate([bench.step(piece) for piece in rows])
    bench.retire()
    bench.step(*(replace(piece, stop=piece.stop - 1) for piece in rows if piece.row in (1, 3)))
    last = [replace(piece, start=piece.stop - 1) if piece.row in (1, 3) else piece for piece in rows]
    together = bench.step(*last)
    control = alone.copy()
    control[1] = bench.step(replace(last[1], blocks=last[3].blocks))[0]
    return together, alone, control


def _shuffled(bench: Bench) -> Outcome:
    """Blocks in any order; control: the table names the first and the last one, half full, the wrong way round."""
    tokens = random_tokens(7, LENGTH)
    in_order = bench.run(tokens)
    blocks = [int(block) for block in np.random.default_rng(8).permutation(np.arange(40, 100))]
    blocks = blocks[: len(bench.blocks(0, LENGTH))]
    bench.step(Piece(1, tokens, 0, LENGTH - 1, blocks))
    shuffled = bench.step(Piece(1, tokens, LENGTH - 1, LENGTH, blocks))[0]
    control = bench.step(Piece(1, tokens, LENGTH - 1, LENGTH, [blocks[-1], *blocks[1:-1], blocks[0]]))[0]
    return shuffled, in_order, control


def _padded(bench: Bench) -> Outcome:
    """Columns of the null block behind a row's own, whatever lies in it; control: it stands for one of the row's own."""
    tokens = random_tokens(9, LENGTH)
    plain = bench.run(tokens)
    blocks = bench.blocks(1, LENGTH)
    bench.step(Piece(1, random_tokens(11, bench.block_size), 0, bench.block_size, [NULL_BLOCK]))
    short, last = bench.piece(random_tokens(12, 3), row=2, first_block=60), Piece(0, tokens, LENGTH - 1, LENGTH, blocks)
    padded = bench.step(last, short, pad=7)[0]
    control = bench.step(Piece(0, tokens, LENGTH - 1, LENGTH, [*blocks[:-2], NULL_BLOCK, blocks[-1]]))[0]
    return padded, plain, control


def _hold(invariant: Callable[[Bench], Outcome], subject: Subject) -> str:
    """Try an invariant and its control with every kind of attention and dtype."""
    if not subject.computes:
        raise NotApplicableError("the platform computes nothing")
    tried = []
    for attention in subject.attentions:
        for dtype in subject.capabilities.dtypes:
            with Bench(subject, dtype, attention) as bench:
                outcome = invariant(bench)
            tried.append(_judge(f"{attention} attention, {dtype}", outcome, TOLERANCE[dtype]))
    return "; ".join(tried)


def _judge(label: str, outcome: Outcome, tolerance: float) -> str:
    given, wanted, control = outcome
    error, off = relative(given, wanted), relative(control, wanted)
    if not error <= tolerance:
        raise CheckFailedError(f"{label}: relative error of log-probabilities {error:.3g}, tolerance {tolerance:.3g}")
    if not off > CONTROL * tolerance:
        raise CheckFailedError(
            f"{label}: the control, with a mistake put in, is only {off:.3g} off (tolerance {tolerance:.3g}): "
            "the result does not depend on what this check looks at"
        )
    return f"{label}: {error:.1e}, control {off:.1e}"


ATTENTION_CHECKS = tuple(
    Check(2, name, partial(_hold, invariant))
    for name, invariant in {
        "chunked = whole": _chunked,
        "cached prefix = recomputed": _cached,
        "ragged = alone": _ragged,
        "shuffled block ids": _shuffled,
        "padding inert": _padded,
    }.items()
)
