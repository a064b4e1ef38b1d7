"""Random sequences on an engine with real kernels, and what each must get: what it gets alone, whatever else runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from msgspec import structs

from anychip.config import make_config
from anychip.engine.batch import RowSampling
from anychip.engine.engine import Engine
from anychip.engine.messages import Abort, Finished, LogprobRows, ResetPrefixCache, StepOutputs, Submit

LONGEST = 90
"""Tokens of a sequence."""
CLOSE = 2e-3
"""Log-probabilities in float32 of the same sequence in other company."""

Scores = dict[int, tuple[list[int], list[float]]]


def engine(model: str, device: str, **options: Any) -> Engine:
    """A small engine whose blocks a few sequences fill."""
    given = {"model": model, "device": device, "dtype": "float32", "log_level": "error", "max_model_len": 96}
    small = {"block_size": 16, "max_num_batched_tokens": 48, "max_num_seqs": 5, "threads": 1}
    return Engine(make_config({**given, **small, **options}, {}), lambda what, done, total: None)


@dataclass
class Got:
    """What a sequence was given."""

    message: Submit
    tokens: list[int] = field(default_factory=list)
    logprobs: Scores = field(default_factory=dict)
    prompt_logprobs: Scores = field(default_factory=dict)
    finished: Finished | None = None

    @property
    def plain(self) -> bool:
        """Whether each of its tokens is the likeliest one."""
        sampling = self.message.sampling
        edited = sampling.needs_history or sampling.min_tokens or sampling.logit_bias or sampling.allowed_token_ids
        return sampling.temperature == 0 and not edited

    def take(self, rows: LogprobRows) -> None:
        """Note scores."""
        ids = np.frombuffer(rows.token_ids, np.int32).reshape(-1, rows.width).tolist()
        values = np.frombuffer(rows.values, np.float32).reshape(-1, rows.width).tolist()
        target = self.prompt_logprobs if rows.prompt else self.logprobs
        for place, found in enumerate(zip(ids, values, strict=True), rows.first):
            assert place not in target, "a position was scored twice"
            target[place] = found


class Crowd:
    """An engine and its sequences."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.all: dict[int, Got] = {}
        self.open: set[int] = set()
        self.repeated = 0
        """Turns after which the batch may come again."""

    def submit(self, message: Submit) -> None:
        """One more."""
        self.all[message.handle] = Got(message)
        self.open.add(message.handle)
        self.engine.handle(message)

    def run(self, message: Submit) -> Got:
        """Run one alone, which gets a number of its own."""
        self.submit(structs.replace(message, handle=len(self.all)))
        self.drain()
        return self.all[len(self.all) - 1]

    def step(self) -> None:
        """One turn of the engine's loop."""
        for outputs in self.engine.step():
            self._take(outputs)
        self.repeated += self.engine.scheduler._steady is not None

    def drain(self) -> None:
        """Run to the end; nothing may be held then."""
        while self.engine.has_work:
            self.step()
        assert not self.open, "a sequence never ended"
        self.engine.check_integrity()
        assert self.engine.scheduler.stats.blocks_used == 0

    def _take(self, outputs: StepOutputs) -> None:
        start = np.frombuffer(outputs.token_start, np.int32).tolist()
        tokens = np.frombuffer(outputs.token_ids, np.int32).tolist()
        for index, handle in enumerate(np.frombuffer(outputs.handles, np.int64).tolist()):
            assert handle in self.open, "tokens after the end"
            self.all[handle].tokens += tokens[start[index] : start[index + 1]]
        for rows in outputs.logprobs:
            self.all[rows.handle].take(rows)
        for finished in outputs.finished:
            self.open.remove(finished.handle)
            self.all[finished.handle].finished = finished


def play(crowd: Crowd, random: Random, turns: int, vocabulary: int, grammars: tuple[str, ...] = ()) -> None:
    """Let sequences come and go: bursts and calm, in which steps repeat."""
    for _ in range(turns):
        for _ in range(random.choice((0, 0, 1, 1, 2, 6))):
            crowd.submit(_message(len(crowd.all), random, vocabulary, grammars))
        for _ in range(random.choice((1, 2, 5, 20, 60))):
            crowd.step()
            if crowd.open and random.random() < 0.01:
                crowd.engine.handle(Abort((random.choice(sorted(crowd.open)),)))
        if random.random() < 0.05:
            crowd.engine.handle(ResetPrefixCache())
        if random.random() < 0.15:
            crowd.drain()
    crowd.drain()


def compare(got: Got, wanted: Got) -> None:
    """Whether a sequence got what it gets alone, or the beginning of it where it was stopped from outside."""
    assert got.finished is not None and wanted.finished is not None
    about = f"{got.message}"
    for scores, others in ((got.logprobs, wanted.logprobs), (got.prompt_logprobs, wanted.prompt_logprobs)):
        for place in scores.keys() & others.keys():
            (ids, values), (other_ids, other_values) = scores[place], others[place]
            assert ids[0] == other_ids[0], (place, about)
            np.testing.assert_allclose(sorted(values), sorted(other_values), rtol=CLOSE, atol=CLOSE, err_msg=about)
    if got.finished.reason == "abort":
        assert got.tokens == wanted.tokens[: len(got.tokens)], about
        return
    assert got.tokens == wanted.tokens, about
    assert (got.finished.reason, got.finished.stop_token_id) == (wanted.finished.reason, wanted.finished.stop_token_id)
    assert got.logprobs.keys() == wanted.logprobs.keys(), about
    assert got.prompt_logprobs.keys() == wanted.prompt_logprobs.keys(), about


def likeliest(alone: Crowd, got: Got) -> float:
    """How far a greedy sequence's tokens are from the likeliest ones, at most, when its text is scored in one go."""
    text = got.message.prompt_token_ids.tolist() + got.tokens
    scoring = RowSampling(seed=0, temperature=0.0, prompt_logprobs=1)
    prompt = np.array(text, np.int32).tobytes()
    scores = alone.run(Submit(handle=0, prompt=prompt, sampling=scoring, max_tokens=0)).prompt_logprobs
    places = range(len(text) - len(got.tokens), len(text))
    return max((scores[place][1][1] - scores[place][1][0] for place in places), default=0.0)


def _message(handle: int, random: Random, vocabulary: int, grammars: tuple[str, ...]) -> Submit:
    shared = [3 + place % 7 for place in range(random.choice((0, 0, 15, 16, 33, 48)))]
    prompt = shared + [random.randrange(3, vocabulary) for _ in range(random.choice((1, 2, 9, 17, 40)))]
    most = random.choice((0, 1, 2, 8, 30, LONGEST, LONGEST))
    least = random.choice((0, 0, 0, 12))
    always = (2, 256) if grammars else ()
    ends = tuple(random.sample(range(3, vocabulary), random.choice((0, 0, 2, 9))))
    return Submit(
        handle=handle,
        prompt=np.array(prompt, np.int32).tobytes(),
        sampling=RowSampling(seed=handle, **_sampling(random, vocabulary), min_tokens=least, stop_token_ids=ends),
        max_tokens=min(most, LONGEST - len(prompt)),
        stop_ids=ends,
        eos_ids=(*ends[:1], *always),
        priority=random.randrange(3),
        cache_salt=random.choice(("", "", "other")),
        grammar=random.choice(grammars) if grammars and random.random() < 0.2 and most else "",
    )


def _sampling(random: Random, vocabulary: int) -> Mapping[str, Any]:
    """Mostly plain and greedy, so that steps repeat; now and then anything else."""
    tokens = random.sample(range(3, vocabulary), 12)
    odd: list[Mapping[str, Any]] = [
        {"temperature": 0.8},
        {"temperature": 1.0, "top_k": 5},
        {"temperature": 0.9, "top_p": 0.8, "min_p": 0.02},
        {"presence_penalty": 0.7, "frequency_penalty": 0.3},
        {"repetition_penalty": 1.3},
        {"bad_words": ((tokens[0],), (tokens[1], tokens[2]))},
        {"logit_bias": ((tokens[3], 5.0), (tokens[4], -100.0))},
        {"allowed_token_ids": tuple(tokens)},
        {"logprobs": 2},
        {"logprobs": 0, "temperature": 0.7},
        {"prompt_logprobs": 1},
    ]
    chosen = random.sample(odd, random.choice((0, 0, 0, 1, 2)))
    return {"temperature": 0.0, **{name: value for one in chosen for name, value in one.items()}}
