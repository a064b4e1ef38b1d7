"""Random requests and aborts on an engine with too little memory, then a recount of every row and block."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from anychip.config import make_config
from anychip.engine.batch import RowSampling
from anychip.engine.engine import Engine
from anychip.engine.messages import Abort, Finished, StepOutputs, Submit
from anychip.testing.check import require
from anychip.testing.subject import Subject
from anychip.testing.tiny_model import END_OF_SEQUENCE, VOCAB_SIZE

RECOUNT_EVERY = 50
MAX_OPEN = 24
BLOCKS = 40


def random_run(subject: Subject) -> str:
    """Each sequence ends once, with no more tokens than it asked for; nothing is left held."""
    engine = Engine(make_config(subject.options(dtype=subject.dtype)), _quiet)
    block_bytes = engine.info.kv_cache_bytes // engine.info.num_blocks
    engine.close()
    blocks = max(BLOCKS, 2 + engine.info.max_model_len // engine.info.block_size)
    engine = Engine(
        make_config(subject.options(dtype=subject.dtype, kv_cache_memory_bytes=blocks * block_bytes)), _quiet
    )
    try:
        crowd = Crowd(engine, random.Random(5))
        for step in range(1, subject.steps + 1):
            crowd.stir()
            crowd.step()
            if step % RECOUNT_EVERY == 0:
                crowd.drain()
        crowd.drain()
    finally:
        engine.close()
    stats = engine.scheduler.stats
    return f"{stats.steps_total} steps, {len(crowd.limits)} sequences, {stats.preemptions_total} preemptions"


@dataclass
class Crowd:
    """Sequences that come and go at random."""

    engine: Engine
    random: random.Random
    limits: dict[int, int] = field(default_factory=dict)
    """Most tokens of each sequence, by handle."""
    counts: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)

    def stir(self) -> None:
        """Add a few sequences, abort one now and then."""
        while len(self.open) < MAX_OPEN and self.random.random() < 0.4:
            self._submit()
        if self.open and self.random.random() < 0.05:
            self.engine.handle(Abort((self.random.choice(sorted(self.open)),)))

    def step(self) -> None:
        """One step, taking in what it brought."""
        for outputs in self.engine.step():
            self._take(outputs)

    def drain(self) -> None:
        """Run until nothing is left, then recount."""
        while self.engine.has_work:
            self.step()
        require(not self.open, f"{len(self.open)} sequences never ended")
        self.engine.check_integrity()
        used = self.engine.scheduler.stats.blocks_used
        require(used == 0, f"{used} blocks are held though nothing runs")

    def _submit(self) -> None:
        handle = len(self.limits)
        prefix = [self.random.randrange(3)] * self.random.choice((0, 0, 32, 48))
        prompt = prefix + [self.random.randrange(VOCAB_SIZE) for _ in range(self.random.randint(1, 60))]
        limit = self.random.randint(1, 40)
        sampling = RowSampling(
            seed=handle, temperature=self.random.choice((0.0, 0.7, 1.0)), top_k=self.random.choice((0, 5))
        )
        self.limits[handle], self.counts[handle] = limit, 0
        self.open.add(handle)
        self.engine.handle(
            Submit(
                handle=handle,
                prompt=np.array(prompt, np.int32).tobytes(),
                sampling=sampling,
                max_tokens=limit,
                stop_ids=(END_OF_SEQUENCE,),
                eos_ids=(END_OF_SEQUENCE,),
            )
        )

    def _take(self, outputs: StepOutputs) -> None:
        starts = np.frombuffer(outputs.token_start, np.int32)
        for index, handle in enumerate(np.frombuffer(outputs.handles, np.int64).tolist()):
            require(handle in self.open, f"sequence {handle} got tokens after its end")
            self.counts[handle] += int(starts[index + 1] - starts[index])
        for finished in outputs.finished:
            self._end(finished)

    def _end(self, finished: Finished) -> None:
        handle, count = finished.handle, self.counts[finished.handle]
        require(handle in self.open, f"sequence {handle} ended twice")
        require(finished.reason != "error", f"sequence {handle} failed: {finished.error}")
        require(
            count <= self.limits[handle], f"sequence {handle} got {count} tokens of {self.limits[handle]} asked for"
        )
        full = finished.reason != "length" or count == self.limits[handle]
        require(full, f"sequence {handle} ended for its length after {count} tokens of {self.limits[handle]}")
        self.open.discard(handle)


def _quiet(what: str, done: int, total: int) -> None:
    return
