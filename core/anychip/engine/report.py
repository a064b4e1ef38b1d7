"""What clients have still to be told, and counters since the start."""

from __future__ import annotations

import time

from anychip.cache.manager import CacheManager
from anychip.engine.commit import Outcome
from anychip.engine.messages import Finished, Scheduled, Stats, StepOutputs
from anychip.engine.request import Request


class Report:
    """Collects what happens between two messages to clients."""

    def __init__(self, cache: CacheManager) -> None:
        self.finished: list[Finished] = []
        self.preemptions = 0
        self.steps = 0
        self.last_tokens = 0
        """Tokens of the latest step."""
        self._cache = cache
        self._scheduled: list[Scheduled] = []
        self._queries = self._hits = 0

    @property
    def waits(self) -> bool:
        """Whether there is something to tell clients, apart from a step's outcome."""
        return bool(self.finished or self._scheduled)

    def started(self, request: Request, cached: int) -> None:
        """Note that a request was scheduled for the first time, `cached` of its tokens being in the cache."""
        self._scheduled.append(Scheduled(request.handle, cached, time.monotonic() - request.arrived))
        self._queries += request.prompt_length
        self._hits += cached

    def stats(self, running: int, waiting: int) -> Stats:
        """The counters as they are now."""
        return Stats(
            running=running,
            waiting=waiting,
            blocks_used=self._cache.num_used,
            blocks=self._cache.num_usable,
            prefix_queries_total=self._queries,
            prefix_hits_total=self._hits,
            preemptions_total=self.preemptions,
            steps_total=self.steps,
            scheduled_tokens=self.last_tokens,
        )

    def outputs(self, outcome: Outcome, stats: Stats) -> StepOutputs:
        """The message about a step's outcome and all that was collected, which is then forgotten."""
        scheduled, self._scheduled = tuple(self._scheduled), []
        finished, self.finished = tuple(self.finished), []
        return StepOutputs(
            handles=outcome.handles,
            token_start=outcome.token_start,
            token_ids=outcome.token_ids,
            logprobs=outcome.logprobs,
            vectors=outcome.vectors,
            scheduled=scheduled,
            finished=finished,
            stats=stats,
        )
