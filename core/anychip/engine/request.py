"""A request inside the engine, and the state of all running requests as arrays."""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from anychip.cache.prefix import BlockHash, root_hash
from anychip.engine.batch import PENDING, POOL, SAMPLE, AdmittedRow, Int32, RowSampling
from anychip.engine.messages import Submit

if TYPE_CHECKING:
    from anychip.grammar.follow import Follower


@dataclass(slots=True, eq=False)
class Request:
    """One sequence. While it runs its tokens and counters live in `Rows`; while it waits, in `tokens`."""

    handle: int
    tokens: Int32
    """Prompt and the output so far; all that is known."""
    prompt_length: int
    limit: int
    """Most tokens it may own: its prompt and max_tokens. A pooled vector counts as a token."""
    sampling: RowSampling
    stop_ids: tuple[int, ...]
    eos_ids: tuple[int, ...]
    root: BlockHash
    priority: int
    arrival: int
    """Number of the request, in the order they came."""
    pool: bool = False
    second_text: int | None = None
    arrived: float = field(default_factory=time.monotonic)
    chain: list[BlockHash] = field(default_factory=list)
    """Hashes of its full blocks, as far as computed."""
    scored: int = 0
    """Prompt tokens whose successor was scored before it was last preempted."""
    follower: Follower | None = None
    """Its place in the grammar that it has to fit."""
    row: int = -1
    started: bool = False
    aborted: bool = False

    @classmethod
    def of(cls, message: Submit, arrival: int, priority: bool) -> Request:
        """The request that a message asks for. `arrival` numbers requests; `priority`: whether theirs counts."""
        prompt = message.prompt_token_ids
        return cls(
            handle=message.handle,
            tokens=prompt,
            prompt_length=len(prompt),
            limit=len(prompt) + message.max_tokens,
            sampling=message.sampling,
            stop_ids=message.stop_ids,
            eos_ids=message.eos_ids,
            root=root_hash(message.cache_salt),
            priority=message.priority if priority else 0,
            arrival=arrival,
            pool=message.pool,
            second_text=message.second_text,
        )

    @property
    def key(self) -> tuple[int, int]:
        """Order among all requests: the lowest runs first and is preempted last."""
        return self.priority, self.arrival

    @property
    def cacheable(self) -> int:
        """Most tokens that may come from the prefix cache: the last one is always computed, and those to be scored."""
        most = max(min(len(self.tokens), self.limit - 1) - 1, 0)
        return most if self.sampling.prompt_logprobs is None else min(self.scored, most)

    def admission(self, row: int) -> AdmittedRow:
        """What the device is told when it is taken up in `row`."""
        history = self.sampling.needs_history
        return AdmittedRow(
            row=row,
            sampling=self.sampling,
            prompt_length=self.prompt_length,
            prompt_token_ids=self.tokens[: self.prompt_length].copy() if history else None,
            output_token_ids=self.tokens[self.prompt_length :].copy() if history else None,
            second_text=self.second_text,
        )


class Leaving(IntEnum):
    """Why a row is scheduled no more, while steps that name it may still be under way."""

    NO = 0
    FINISHED = 1
    """What it still samples is dropped."""
    PREEMPTED = 2
    """What it still samples is kept; then its request waits again."""


class Rows:
    """State of the running requests as arrays by stable row, so that a step is array work, not a loop over requests.

    A row owns `num_tokens` tokens, the newest of which may still be on the device only. `num_computed` of them are in
    the cache, or will be once the steps under way are done.
    """

    def __init__(self, rows: int, max_model_len: int) -> None:
        self.tokens: Int32 = np.zeros((rows, max_model_len + 1), np.int32)
        self.num_tokens: Int32 = np.zeros(rows, np.int32)
        self.num_computed: Int32 = np.zeros(rows, np.int32)
        self.prompt_length: Int32 = np.zeros(rows, np.int32)
        self.limit: Int32 = np.zeros(rows, np.int32)
        self.published: Int32 = np.zeros(rows, np.int32)
        self.last_step = np.zeros(rows, np.int64)
        self.leaving = np.zeros(rows, np.int8)
        self.scored: Int32 = np.zeros(rows, np.int32)
        """Prompt tokens, from the first on, whose successor was scored."""
        self.handles = np.zeros(rows, np.int64)
        self.stop_ids: Int32 = np.full((rows, 1), -1, np.int32)
        self.targets: Int32 = np.full(rows, SAMPLE, np.int32)
        """What a row asks for at its newest token: SAMPLE or POOL."""
        self.requests: list[Request | None] = [None] * rows
        self.free = list(range(rows))
        self.num_left = 0
        """Rows that were left but not released, as a step under way names them."""
        self.scoring: set[int] = set()
        """Rows that still have prompt tokens to score."""
        self.followed: dict[int, Follower] = {}
        """Rows that follow a grammar."""
        self.silent: set[int] = set()
        """Rows that only score their prompt."""

    def request(self, row: int) -> Request:
        """The request in a row in use."""
        request = self.requests[row]
        assert request is not None, "an empty row was asked for its request"
        return request

    def occupy(self, request: Request, cached: int) -> int:
        """Give `request` the lowest free row and return that; its first `cached` tokens are in the cache already."""
        row = heapq.heappop(self.free)
        request.row = row
        self.requests[row] = request
        length = len(request.tokens)
        self.tokens[row, :length] = request.tokens
        self.num_tokens[row] = length
        self.num_computed[row] = cached
        self.prompt_length[row] = request.prompt_length
        self.limit[row] = request.limit
        self.leaving[row] = Leaving.NO
        self.handles[row] = request.handle
        self.scored[row] = request.scored
        self.targets[row] = POOL if request.pool else SAMPLE
        if request.sampling.prompt_logprobs is not None and request.scored < request.prompt_length - 1:
            self.scoring.add(row)
        if request.limit == request.prompt_length:
            self.silent.add(row)
        if request.follower is not None:
            self.followed[row] = request.follower
        self._set_stop_ids(row, request.stop_ids)
        return row

    def followable(self, rows: Int32, known: int) -> Int32:
        """`rows` without those that follow a grammar and whose newest token is unknown: sampled after step `known`."""
        newest = self.tokens[rows, self.num_tokens[rows] - 1]
        waits = (newest == PENDING) & (self.last_step[rows] > known) & np.isin(rows, list(self.followed))
        kept: Int32 = rows[~waits]
        return kept

    def vacate(self, row: int) -> Request:
        """Free a row; returns its request, which takes its tokens along."""
        request = self.request(row)
        request.tokens = self.tokens[row, : self.num_tokens[row]].copy()
        request.scored = int(self.scored[row])
        request.row = -1
        self.requests[row] = None
        self.scoring.discard(row)
        self.silent.discard(row)
        self.followed.pop(row, None)
        heapq.heappush(self.free, row)
        return request

    def check_integrity(self, active: set[int]) -> None:
        """Assert that rows add up, `active` being those that run; call it when no step is under way."""
        assert self.num_left == 0, "a row that left was never released"
        in_use = {row for row, request in enumerate(self.requests) if request is not None}
        assert in_use == active, "rows in use are not the active rows"
        assert in_use.isdisjoint(self.free), "a row is free and in use"
        assert len(in_use) + len(self.free) == len(self.requests), "a row is lost"

    def _set_stop_ids(self, row: int, stop_ids: tuple[int, ...]) -> None:
        width = self.stop_ids.shape[1]
        if len(stop_ids) > width:
            wider = np.full((len(self.stop_ids), len(stop_ids)), -1, np.int32)
            wider[:, :width] = self.stop_ids
            self.stop_ids = wider
        self.stop_ids[row] = -1
        self.stop_ids[row, : len(stop_ids)] = stop_ids
