"""The engine's loop around a scheduler and the checking device, and what every sequence must have got in the end."""

from dataclasses import dataclass, field

import numpy as np
from tests.engine.device import Device, extend_digest, next_token, score, start_digest

from anychip.engine.request import Leaving
from anychip.engine.scheduler import Policy, Scheduler


@dataclass
class Sequence:
    """One sequence: what was asked and what came back."""

    message: object
    tokens: list = field(default_factory=list)
    logprobs: dict = field(default_factory=dict)
    prompt_logprobs: dict = field(default_factory=dict)
    finished: object = None
    scheduled: int = 0

    @property
    def prompt(self):
        return self.message.prompt_token_ids.tolist()


class Harness:
    """Schedules up to `depth` steps before it commits the first one."""

    def __init__(self, plan, policy=None, depth=1, fails=lambda seed, step, row: False):
        self.plan, self.policy, self.depth = plan, policy or Policy(), depth
        self.scheduler = Scheduler(plan, self.policy)
        self.device = Device(plan, fails)
        self.sequences = {}
        self.under_way = []
        self.batches = []
        self.ticks = 0

    def add(self, *messages):
        for message in messages:
            self.sequences[message.handle] = Sequence(message)
            self.scheduler.add(message)

    def tick(self):
        """One turn of the engine's loop; the batch it submitted, or None."""
        self.ticks += 1
        batch = self.submit()
        if self.under_way and (batch is None or len(self.under_way) >= self.depth):
            self.commit()
        elif report := self.scheduler.report():
            self.receive(report)
        return batch

    def submit(self):
        before = self._running()
        scheduled = self.scheduler.schedule()
        self._check_order(before)
        if scheduled is None:
            return None
        batch, record = scheduled
        self.under_way.append((record, self.device.submit(batch)))
        self.batches.append(batch)
        return batch

    def commit(self):
        self.device.committed()
        record, result = self.under_way.pop(0)
        self.receive(self.scheduler.commit(record, result))
        result.token_ids[:] = -7  # a runner may hand out one array for all its results
        if not self.under_way:
            self.scheduler.check_integrity()

    def drain(self):
        """Run to the end, which must come; the cache must be empty then."""
        limit = self.ticks + 50 + 20 * sum(len(one.prompt) + one.message.max_tokens for one in self.sequences.values())
        while self.scheduler.has_work or self.under_way:
            assert self.ticks < limit, f"no end: {self.scheduler.stats}"
            self.tick()
        self.scheduler.check_integrity()
        assert self.scheduler.cache.num_used == 0
        assert not self.scheduler.reuse.coming
        assert not self.scheduler.requests

    def receive(self, outputs):
        handles = np.frombuffer(outputs.handles, np.int64).tolist()
        start = np.frombuffer(outputs.token_start, np.int32).tolist()
        tokens = np.frombuffer(outputs.token_ids, np.int32).tolist()
        for index, handle in enumerate(handles):
            assert self.sequences[handle].finished is None, "tokens after the end"
            self.sequences[handle].tokens += tokens[start[index] : start[index + 1]]
        for one in outputs.scheduled:
            self.sequences[one.handle].scheduled += 1
        for rows in outputs.logprobs:
            self._receive_logprobs(rows)
        for one in outputs.finished:
            assert self.sequences[one.handle].finished is None, "a sequence ended twice"
            self.sequences[one.handle].finished = one

    def _receive_logprobs(self, rows):
        sequence = self.sequences[rows.handle]
        assert sequence.finished is None
        target = sequence.prompt_logprobs if rows.prompt else sequence.logprobs
        ids = np.frombuffer(rows.token_ids, np.int32).reshape(-1, rows.width).tolist()
        values = np.frombuffer(rows.values, np.float32).reshape(-1, rows.width).tolist()
        ranks = np.frombuffer(rows.ranks, np.int32).tolist()
        for index, found in enumerate(zip(ids, values, ranks, strict=True)):
            assert rows.first + index not in target, "a position was scored twice"
            target[rows.first + index] = found

    def _running(self):
        rows = self.scheduler.rows
        return {one for row, one in enumerate(rows.requests) if one is not None and rows.leaving[row] == Leaving.NO}

    def _check_order(self, before):
        """Requests are taken up in the order of their keys, and the last ones of those that run are preempted."""
        after = self._running()
        preempted, stayed, new = before - after, before & after, after - before
        assert all(out.key > one.key for out in preempted for one in stayed), "not the last one was preempted"
        passed = [one for one in self.scheduler.waiting if new and one.key < max(new, key=lambda one: one.key).key]
        for one in passed:
            assert any(self._shared_blocks(one, other) >= 2 for other in after), "a request was passed over"

    def _shared_blocks(self, one, other):
        if one.root != other.root or not self.policy.prefix_caching:
            return 0
        pairs = zip(one.tokens.tolist(), self.scheduler.rows.tokens[other.row].tolist(), strict=False)
        return next((n for n, (a, b) in enumerate(pairs) if a != b), len(one.tokens)) // self.plan.block_size

    def check(self, handle):
        """What came back equals the model run alone."""
        sequence = self.sequences[handle]
        message, end = sequence.message, sequence.finished
        assert end is not None
        output, logprobs, prompt_logprobs = alone(message)
        if end.reason in ("abort", "error"):
            assert sequence.tokens == output[: len(sequence.tokens)]
            assert sequence.logprobs.items() <= logprobs.items()
            assert sequence.prompt_logprobs.items() <= prompt_logprobs.items()
            return
        assert sequence.tokens == output
        assert sequence.logprobs == logprobs
        assert sequence.prompt_logprobs == prompt_logprobs
        stopped = bool(output) and output[-1] in message.stop_ids
        assert end.reason == ("stop" if stopped else "length")
        asked_for = stopped and output[-1] not in message.eos_ids
        assert end.stop_token_id == (output[-1] if asked_for else None)
        assert sequence.scheduled == (len(sequence.prompt) + message.max_tokens > 1)


def alone(message):
    """Output, log-probabilities and prompt log-probabilities of a sequence that nothing else disturbs."""
    sampling, output, logprobs, prompt_logprobs = message.sampling, [], {}, {}
    digest = start_digest(sampling.seed)
    for position, token in enumerate(message.prompt_token_ids.tolist()):
        if position and sampling.prompt_logprobs is not None:
            prompt_logprobs[position] = score(token, digest, sampling.prompt_logprobs + 1)
        digest = extend_digest(digest, token)
    while len(output) < message.max_tokens:
        token = next_token(digest)
        if sampling.logprobs is not None:
            logprobs[len(message.prompt_token_ids) + len(output)] = score(token, digest, sampling.logprobs + 1)
        output.append(token)
        digest = extend_digest(digest, token)
        if token in message.stop_ids:
            break
    return output, logprobs, prompt_logprobs
