"""Level 3: steps so large that a platform may run them in another way, in each of those among which it chooses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import accumulate

import numpy as np

from anychip.engine.batch import Float32
from anychip.ops.op import OpSpec
from anychip.testing.attention_checks import TOLERANCE
from anychip.testing.bench import Bench, Room, random_tokens
from anychip.testing.check import Check, NotApplicableError, Part, require
from anychip.testing.large_checks import ways
from anychip.testing.runner_checks import apart, eager
from anychip.testing.subject import Subject
from anychip.testing.tiny_model import HEAD_DIM, HEADS, HIDDEN, INNER, KV_HEADS, VOCAB_SIZE

ROOM = Room(length=2304, tokens=4352)
BLOCK_SIZES = 2
"""The first of those that a platform takes."""
ROWS = (301, 700, 1100, 700, 2100, 2100)
"""Tokens of sequences."""
STEPS = (
    ((0, 0, 300),),
    ((1, 0, 300),),
    ((0, 300, 301), (1, 300, 700), (2, 0, 1100), (3, 0, 700)),
    ((4, 0, 2100), (5, 0, 2100)),
)
"""(row, from, to): one prompt; several behind a row with one token, one of which goes on; as many as there is room."""


def _parts(subject: Subject) -> tuple[Part, ...]:
    from anychip.runner.platform import TorchPlatform

    platform = subject.torch_platform
    if platform is None:
        raise NotApplicableError("the platform brings its own runner")
    if type(platform).compile is TorchPlatform.compile:
        return (Part("large steps", lambda subject: "compile() is the default, which changes nothing"),)
    return tuple(
        Part(f"large steps, {dtype}, blocks of {block_size}", partial(_try, dtype, block_size, way))
        for dtype in platform.capabilities.dtypes
        for block_size in platform.capabilities.block_sizes[:BLOCK_SIZES]
        for way in ways(platform, _tiny(dtype, block_size))
    )


def _tiny(dtype: str, block_size: int) -> OpSpec:
    """What decides how the tiny model attends."""
    return OpSpec(dtype, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, VOCAB_SIZE, INNER, block_size)


def _try(dtype: str, block_size: int, way: str, subject: Subject) -> str:
    """Large steps as they are compiled, against the same run by the default."""
    platform = subject.torch_platform
    assert platform is not None, "asked before"
    fixed, room = ways(platform, _tiny(dtype, block_size))[way], replace(ROOM, block_size=block_size)
    made = partial(Bench, subject, dtype, room=room, platform=fixed)
    error, limit = apart(fixed, "compile", eager, made, _large_steps), TOLERANCE[dtype]
    label = ", ".join(filter(None, (dtype, f"blocks of {block_size}", way)))
    require(error <= limit, f"{label}: off by {error:.3g}, tolerance {limit:.3g}")
    return f"{label}: {error:.1e}"


def _large_steps(bench: Bench) -> Float32:
    """[pieces, V] of all steps."""
    tokens = [random_tokens(80 + row, length) for row, length in enumerate(ROWS)]
    first = list(accumulate((-(-length // bench.block_size) for length in ROWS), initial=1))
    return np.concatenate(
        [
            bench.step(*(bench.piece(tokens[row], start, stop, row, first[row]) for row, start, stop in step))
            for step in STEPS
        ]
    )


LARGE_STEP_CHECKS = (Check(3, "large steps: captured = eager", _parts),)
