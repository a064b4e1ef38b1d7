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
from anychip.testing.check import Check, CheckFailedError, NotApplicableError, Part
from anychip.testing.compare import relative
from anychip.testing.subject import Subject
from anychip.testing.tiny_model import MAX_MODEL_LEN, Attention

TOLERANCE = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""Largest relative error between two orders of the same computation."""
CONTROL = 3.0
"""A control must be off by this many tolerances."""

Outcome = tuple[Float32, Float32, Float32]
"""What was computed, what it must equal, and what it must not equal."""


def _chunked(bench: Bench) -> Outcome:
    """A prompt in chunks, across block borders; control: the first chunk's keys lie in other blocks."""
    tokens = _prompt(bench, 1)
    whole, length = bench.run(tokens), len(tokens)
    last = length - 5  # so few that any window reaches back behind them
    for start, stop in ((0, 5), (5, 37), (37, 38), (38, last)):
        bench.step(bench.piece(tokens, start, stop, first_block=20))
    chunked = bench.step(bench.piece(tokens, last, length, first_block=20))[0]
    bench.step(bench.piece(_prompt(bench, 2), first_block=60))
    control = bench.step(bench.piece(tokens, last, length, first_block=60))[0]
    return chunked, whole, control


def _cached(bench: Bench) -> Outcome:
    """A prefix that another row computed; control: the blocks of another prefix."""
    shared = max(1, 64 // bench.block_size) * bench.block_size
    prefix = random_tokens(3, shared)
    tokens = prefix + random_tokens(4, 9)
    recomputed = bench.run(tokens, row=0, first_block=1)
    bench.step(bench.piece(prefix + random_tokens(5, 21), row=1, first_block=30))
    bench.step(bench.piece(random_tokens(6, shared), row=2, first_block=50))
    tail = bench.blocks(70, len(tokens) - shared)
    reused, wrong = (
        bench.step(Piece(row, tokens, shared, len(tokens), [*bench.blocks(first, shared), *tail]))[0]
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
    tokens = _prompt(bench, 7)
    in_order, length = bench.run(tokens), len(tokens)
    order = np.random.default_rng(8).permutation(np.arange(40, 100))
    blocks = [int(block) for block in order[: len(bench.blocks(0, length))]]
    size = len(blocks) * bench.block_size
    bench.step(Piece(2, random_tokens(13, size), 0, size, blocks))
    bench.step(Piece(1, tokens, 0, length - 1, blocks))
    shuffled = bench.step(Piece(1, tokens, length - 1, length, blocks))[0]
    control = bench.step(Piece(1, tokens, length - 1, length, [blocks[-1], *blocks[1:-1], blocks[0]]))[0]
    return shuffled, in_order, control


def _padded(bench: Bench) -> Outcome:
    """Columns of the null block behind a row's own, whatever it holds; control: it stands for one of the row's own."""
    tokens = _prompt(bench, 9)
    plain, length = bench.run(tokens), len(tokens)
    blocks = bench.blocks(1, length)
    bench.step(Piece(1, random_tokens(11, bench.block_size), 0, bench.block_size, [NULL_BLOCK]))
    short, last = bench.piece(random_tokens(12, 3), row=2, first_block=60), Piece(0, tokens, length - 1, length, blocks)
    padded = bench.step(last, short, pad=7)[0]
    control = bench.step(replace(last, blocks=[*blocks[:-2], NULL_BLOCK, blocks[-1]]))[0]
    return padded, plain, control


def _prompt(bench: Bench, seed: int) -> list[int]:
    """Some blocks and so little of one more that any window reaches into the block before."""
    blocks = max(1, min(max(4, 64 // bench.block_size), (MAX_MODEL_LEN - 27) // bench.block_size))
    return random_tokens(seed, min(MAX_MODEL_LEN - 16, blocks * bench.block_size + 11))


def model_parts(subject: Subject, run: Callable[[Subject, Attention, str], str]) -> tuple[Part, ...]:
    """A piece for each kind of attention and dtype of the tiny model."""
    if not subject.computes:
        raise NotApplicableError("the platform computes nothing")
    return tuple(
        Part(f"model, {attention} attention, {dtype}", partial(_of_model, run, attention, dtype))
        for attention in subject.attentions
        for dtype in subject.capabilities.dtypes
    )


def _of_model(run: Callable[[Subject, Attention, str], str], attention: Attention, dtype: str, subject: Subject) -> str:
    return run(subject, attention, dtype)


def _hold(invariant: Callable[[Bench], Outcome], subject: Subject, attention: Attention, dtype: str) -> str:
    """Try an invariant and its control."""
    with Bench(subject, dtype, attention) as bench:
        outcome = invariant(bench)
    return _judge(f"{attention} attention, {dtype}", outcome, TOLERANCE[dtype])


def _parts(invariant: Callable[[Bench], Outcome], subject: Subject) -> tuple[Part, ...]:
    return model_parts(subject, partial(_hold, invariant))


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
    Check(2, name, partial(_parts, invariant))
    for name, invariant in {
        "chunked = whole": _chunked,
        "cached prefix = recomputed": _cached,
        "ragged = alone": _ragged,
        "shuffled block ids": _shuffled,
        "padding inert": _padded,
    }.items()
)
