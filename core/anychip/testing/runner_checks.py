"""Level 3: the runner, against the reference and against itself under other circumstances."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from anychip.engine.batch import Float32
from anychip.engine.outputs import RequestOutput
from anychip.llm import LLM
from anychip.sampling_params import SamplingParams
from anychip.testing.attention_checks import TOLERANCE, model_parts
from anychip.testing.bench import Bench, Piece, random_tokens
from anychip.testing.check import Check, CheckFailedError, NotApplicableError, Part, require, whole
from anychip.testing.compare import relative
from anychip.testing.random_run import random_run
from anychip.testing.subject import Subject, reference_subject
from anychip.testing.tiny_model import Attention

if TYPE_CHECKING:
    from anychip.runner.platform import TorchPlatform

DECODE_STEPS = 6
TIE = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}
"""Two tokens whose log-probabilities are closer than this may change places when the order of a sum does."""
PROMPTS = 6
CACHE_TOLERANCE = {"int8": 3e-2, "fp8": 0.2}
"""Of log-probabilities computed from keys and values that were rounded to 8 bits."""


def _logits(subject: Subject, attention: Attention, dtype: str) -> str:
    """Log-probabilities of prompts and of the steps after them, against the reference platform in float32."""
    with reference_subject() as reference, Bench(reference, "float32", attention) as bench:
        wanted = _teacher_forced(bench)
    with Bench(subject, dtype, attention) as bench:
        error = relative(_teacher_forced(bench), wanted)
    label = f"{attention} attention, {dtype}"
    limit = TOLERANCE[dtype]
    require(error <= limit, f"{label}: relative error of log-probabilities {error:.3g}, tolerance {limit:.3g}")
    return f"{label}: {error:.1e}"


def _logit_parts(subject: Subject) -> tuple[Part, ...]:
    return model_parts(subject, _logits)


def _caches(kind: str, attention: Attention, subject: Subject) -> str:
    """The same with a further type of KV cache, against the reference that keeps all of it whole."""
    with reference_subject() as reference, Bench(reference, "float32", attention) as bench:
        wanted = _teacher_forced(bench)
    with Bench(subject, subject.dtype, attention, kind) as bench:
        error = relative(_teacher_forced(bench), wanted)
    label, tolerance = f"{kind}, {attention} attention", CACHE_TOLERANCE[kind]
    require(0 < error <= tolerance, f"{label}: off by {error:.3g}, tolerance {tolerance:.3g}")
    return f"{label}: {error:.1e}"


def _cache_parts(subject: Subject) -> tuple[Part, ...]:
    kinds = subject.capabilities.kv_cache_dtypes if subject.computes else ()
    if not kinds:
        raise NotApplicableError("the platform keeps keys and values in the model's type only")
    return tuple(
        Part(f"cache of {kind}", partial(_caches, kind, attention))
        for kind in kinds
        for attention in subject.attentions
    )


def _teacher_forced(bench: Bench) -> Float32:
    """[steps * rows, V]: prompts of several lengths, then the same given tokens one by one."""
    pieces = [
        bench.piece(random_tokens(20 + row, length + DECODE_STEPS), row=row, first_block=1 + 12 * row)
        for row, length in enumerate((1, 16, 33, 70))
    ]
    found = [bench.step(*(Piece(p.row, p.tokens, 0, p.stop - DECODE_STEPS, p.blocks) for p in pieces))]
    for left in range(DECODE_STEPS, 0, -1):
        stops = [piece.stop - left + 1 for piece in pieces]
        step = (Piece(p.row, p.tokens, stop - 1, stop, p.blocks) for p, stop in zip(pieces, stops, strict=True))
        found.append(bench.step(*step))
    return np.concatenate(found)


def eager(platform: TorchPlatform) -> Any:
    """What stands for `compile` where nothing is compiled."""
    from anychip.runner.inputs import uploading

    return lambda step, plan: uploading(step, platform.send)


def _original(platform: TorchPlatform) -> Any:
    return lambda module, spec: None


def _without(member: str, plain: Callable[[TorchPlatform], Any], dtype: str, subject: Subject) -> str:
    """What `compile` makes of the forward pass, or `lower` of modules, computes the same as without."""
    platform = subject.torch_platform
    assert platform is not None, "asked before"
    with _counted(platform, member) as count:
        error = apart(platform, member, plain, lambda: Bench(subject, dtype), _teacher_forced)
    limit = TOLERANCE[dtype]
    require(error <= limit, f"{dtype}: with {member}() off by {error:.3g}, tolerance {limit:.3g}")
    return f"{dtype}: {count[0]} replaced, {error:.1e}"


def apart(
    platform: TorchPlatform,
    member: str,
    plain: Callable[[TorchPlatform], Any],
    made: Callable[[], Bench],
    compute: Callable[[Bench], Float32],
) -> float:
    """Relative error of what benches compute, with a member of their platform and with `plain` in its place."""
    with made() as bench:
        given = compute(bench)
    with _replaced(platform, member, plain(platform)), made() as bench:
        return relative(given, compute(bench))


def _member_parts(member: str, plain: Callable[[TorchPlatform], Any], subject: Subject) -> tuple[Part, ...]:
    from anychip.runner.platform import TorchPlatform

    platform = subject.torch_platform
    if platform is None:
        raise NotApplicableError("the platform brings its own runner")
    if getattr(type(platform), member) is getattr(TorchPlatform, member):
        return (Part(member, lambda subject: f"{member}() is the default, which changes nothing"),)
    return tuple(
        Part(f"model, full attention, {dtype}", partial(_without, member, plain, dtype))
        for dtype in subject.capabilities.dtypes
    )


@contextmanager
def _counted(platform: object, member: str) -> Iterator[list[int]]:
    """Count how often a member gives something else than it is offered."""
    original, count = getattr(platform, member), [0]

    def counting(offered: Any, *arguments: Any) -> Any:
        given = original(offered, *arguments)
        count[0] += given is not None and given is not offered
        return given

    with _replaced(platform, member, counting):
        yield count


@contextmanager
def _replaced(platform: object, member: str, plain: Any) -> Iterator[None]:
    before = vars(platform).get(member)
    setattr(platform, member, plain)
    try:
        yield
    finally:
        if before is None:
            delattr(platform, member)
        else:
            setattr(platform, member, before)


def _preempted(subject: Subject) -> str:
    """Sequences that were thrown out for lack of memory and came back, against the same with room for all."""
    total = min(250, max(120, subject.capabilities.block_sizes[0] + 30))
    options = {"dtype": subject.dtype, "max_model_len": total, "enable_prefix_caching": False}
    with LLM(**subject.options(**options)) as llm:
        wanted, info = _greedy(llm, subject, total), llm.engine.info
    block_bytes = info.kv_cache_bytes // info.num_blocks
    blocks = 1 + PROMPTS // 2 * -(-total // info.block_size)
    with LLM(**subject.options(**options, kv_cache_memory_bytes=blocks * block_bytes)) as llm:
        given, count = _greedy(llm, subject, total), llm.engine.scheduler.stats.preemptions_total
        llm.engine.check_integrity()
    require(count > 0, f"nothing was preempted with {blocks} blocks: the check says nothing")
    _same(given, wanted, subject.dtype)
    return f"{count} preemptions"


def _in_flight(subject: Subject) -> str:
    """As many steps in flight as the platform declares, against one at a time."""
    outputs = []
    for depth in (1, subject.capabilities.steps_in_flight):
        with LLM(**subject.options(dtype=subject.dtype, steps_in_flight=depth)) as llm:
            outputs.append(_greedy(llm, subject, 60))
            llm.engine.check_integrity()
    _same(outputs[1], outputs[0], subject.dtype)
    return f"{subject.capabilities.steps_in_flight} step(s) in flight"


def _greedy(llm: LLM, subject: Subject, total: int) -> list[RequestOutput]:
    """Greedy continuations of random prompts, each up to `total` tokens."""
    prompts = [{"prompt_token_ids": random_tokens(30 + index, 14 + index)} for index in range(PROMPTS)]
    params = [
        SamplingParams(
            temperature=0.0, max_tokens=total - 14 - index, ignore_eos=True, logprobs=5 if subject.computes else None
        )
        for index in range(PROMPTS)
    ]
    return llm.generate(prompts, params, use_tqdm=False)


def _same(given: list[RequestOutput], wanted: list[RequestOutput], dtype: str) -> None:
    """Equal tokens up to the first place where two were all but tied."""
    for number, (one, other) in enumerate(zip(given, wanted, strict=True)):
        tokens, right = one.outputs[0].token_ids, other.outputs[0].token_ids
        if tokens == right:
            continue
        differing = (place for place, pair in enumerate(zip(tokens, right, strict=False)) if pair[0] != pair[1])
        place = next(differing, min(len(tokens), len(right)))
        logprobs = other.outputs[0].logprobs
        if logprobs and place < min(len(tokens), len(right)):
            best, ours = logprobs[place][right[place]], logprobs[place].get(tokens[place])
            if ours is not None and best.logprob - ours.logprob <= TIE[dtype]:
                continue
        begin = slice(place, place + 5)
        raise CheckFailedError(f"sequence {number} differs from token {place} on: {tokens[begin]}, not {right[begin]}")


RUNNER_CHECKS = (
    Check(3, "logits against the reference", _logit_parts),
    Check(3, "smaller caches against whole ones", _cache_parts),
    Check(3, "captured = eager", partial(_member_parts, "compile", eager)),
    Check(3, "lowered = original", partial(_member_parts, "lower", _original)),
    whole(3, "preempted and resumed = uninterrupted", _preempted),
    whole(3, "steps in flight = one at a time", _in_flight),
    whole(3, "random steps, then check_integrity", random_run),
)
