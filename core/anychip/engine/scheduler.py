"""The scheduler. One rule: each step closes the gap between the tokens a request owns and those computed, in a budget.

Chunked prefill, prefix hits, preemption and recomputation all fall out of it; there is no prefill and no decode.
`schedule` may run ahead of `commit`: a row whose newest token is still on the device owns it already.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from anychip.cache.manager import CacheManager
from anychip.cache.prefix import BlockHash
from anychip.engine.assemble import StepRecord, assemble, share
from anychip.engine.batch import AdmittedRow, Batch, Int32, StepResult
from anychip.engine.commit import Outcome, computed, read_result
from anychip.engine.messages import Finished, Stats, StepOutputs, Submit
from anychip.engine.policy import Policy
from anychip.engine.report import Report
from anychip.engine.request import Leaving, Request, Rows
from anychip.engine.reuse import PrefixReuse
from anychip.engine.steady import Steady, may_repeat
from anychip.engine.waiting import WaitingQueue
from anychip.plugin.contract import KVPlan

if TYPE_CHECKING:
    from anychip.grammar.follow import Follower


class Scheduler:
    """Decides what each step computes, and learns what it brought."""

    def __init__(self, plan: KVPlan, policy: Policy | None = None) -> None:
        self.plan = plan
        self.policy = policy or Policy()
        self.cache = CacheManager(plan, self.policy.prefix_caching)
        self.rows = Rows(plan.max_num_seqs, plan.max_model_len)
        self.reuse = PrefixReuse(self.cache, self.rows)
        self.waiting = WaitingQueue()
        self.requests: dict[int, Request] = {}
        self._active: Int32 = np.zeros(0, np.int32)
        """Rows that run, in the order of their requests' keys."""
        self._steady: Steady | None = None
        self._retired: list[int] = []
        self._arrivals = 0
        self._committed_step = 0
        self._preempting = 0
        """Rows that left and will wait again once a step under way is done."""
        self._report = Report(self.cache)

    @property
    def has_work(self) -> bool:
        """Whether a further `schedule` may still have something to do, or something is left to say."""
        return bool(len(self._active) or len(self.waiting) or self._report.finished)

    @property
    def stats(self) -> Stats:
        """Counters now."""
        return self._report.stats(len(self._active), len(self.waiting))

    def add(self, message: Submit, follower: Follower | None = None) -> None:
        """Queue a sequence, which may follow a grammar. The client has checked that it fits `max_model_len`."""
        request = Request.of(message, self._arrivals, self.policy.by_priority)
        longest = self.plan.max_model_len + request.pool  # a vector takes no position
        assert len(request.tokens) > 0 and request.limit <= longest, "the client let a bad length pass"
        request.follower = follower
        self._arrivals += 1
        self.requests[request.handle] = request
        self.waiting.push(request)

    def abort(self, handles: Iterable[int]) -> None:
        """Stop these sequences; a handle that has finished or never was is passed over."""
        for handle in handles:
            self.end(Finished(handle, "abort"))

    def end(self, finished: Finished) -> None:
        """Stop a sequence and say why, unless it has finished."""
        request = self.requests.get(finished.handle)
        if request is None:
            return
        if request.row < 0:
            self.waiting.abort(request)
        self._end(request, finished)

    def reset_prefix_cache(self) -> None:
        """Forget every cached block that no row holds."""
        self.cache.reset_prefix_cache()

    def schedule(self) -> tuple[Batch, StepRecord] | None:
        """The next step, or None when there is nothing that could run now."""
        if self._steady is not None:
            if self._goes_on(self._steady):
                self._report.steps += 1
                return self._steady.batch, self._steady.record(self._report.steps)
            self._settle()
        preemptions = self._report.preemptions
        rows, counts = self._continue_running()
        roomy = self._report.preemptions == preemptions and self._preempting == 0
        admitted, new_rows, new_counts = self._admit(counts) if roomy and len(self.waiting) else ([], [], [])
        if new_rows:
            rows = np.concatenate([rows, np.array(new_rows, np.int32)])
            counts = np.concatenate([counts, np.array(new_counts, np.int32)])
        if len(rows) == 0:
            return None
        self._report.steps += 1
        tables = tuple(group.table for group in self.cache.groups)
        batch, record = assemble(self.rows, rows, counts, tables, self.plan.block_size, self._report.steps)
        self._report.last_tokens = batch.num_tokens
        if admitted or self._retired:
            batch = replace(batch, admitted=tuple(admitted), retired=tuple(self._retired))
            self._retired = []
        elif not self._waits() and len(rows) == len(self._active) and may_repeat(batch, self.rows, self.cache):
            self._steady = Steady(self.rows, self.cache, batch, record)
        return batch, record

    def commit(self, record: StepRecord, result: StepResult) -> StepOutputs:
        """Take in what a step brought; steps are committed in order."""
        self._committed_step = record.step
        steady = self._steady
        if steady is not None and record.step >= steady.first.step and steady.note(record, result):
            if steady.fills(record):
                self.reuse.publish(record.rows, record.ends)
            return self._outputs(Outcome(steady.handles, steady.token_start, steady.newest.tobytes()))
        rows, ends = computed(self.rows, record, result)
        outcome = read_result(self.rows, record, result)
        self.reuse.publish(rows, ends)
        for finished in outcome.finished:
            if finished.handle in self.requests:
                self._end(self.requests[finished.handle], finished)
        if self.rows.num_left:
            self._release_left(record)
        return self._outputs(outcome)

    def report(self) -> StepOutputs | None:
        """What is left to say without a step: aborts of waiting requests, mostly."""
        if not self._report.waits:
            return None
        return self._outputs(Outcome())

    def check_integrity(self) -> None:
        """Recount rows and blocks; call it when no step is under way."""
        in_use = set(self._active.tolist())
        self.rows.check_integrity(in_use)
        held = {row for group in self.cache.groups for row in np.flatnonzero(group.counts).tolist()}
        assert held <= in_use, "an empty row holds blocks"
        assert set(self.reuse.coming.values()) <= in_use, "an empty row has blocks coming"
        self.cache.check_integrity()

    def _waits(self) -> bool:
        """Whether a request may be taken up, or a row's end is still to be told."""
        return bool(self._retired or (len(self.waiting) and self.rows.free))

    def _goes_on(self, steady: Steady) -> bool:
        known = self._committed_step == self._report.steps
        return not self._waits() and steady.known == known and steady.advance()

    def _settle(self) -> None:
        """Go back to working each step out from the rows."""
        if self._steady is not None:
            self._steady.settle(self._report.steps, self._committed_step)
            self._steady = None

    def _continue_running(self) -> tuple[Int32, Int32]:
        """Rows already running and how many tokens each computes."""
        state, active = self.rows, self._active
        if state.followed and self.policy.ahead > 1:
            active = state.followable(active, self._report.steps + 1 - self.policy.ahead)
        gap = np.minimum(state.num_tokens[active], state.limit[active] - 1) - state.num_computed[active]
        rows, counts = share(active, gap, self.plan.max_num_batched_tokens)
        lacking = self.cache.lacking(rows, state.num_computed[rows] + counts)
        if len(lacking):
            runs = self._make_room(rows, counts, lacking)
            rows, counts = rows[runs], counts[runs]
        return rows, counts

    def _make_room(self, rows: Int32, counts: Int32, lacking: npt.NDArray[np.intp]) -> np.ndarray:
        """Give the lacking rows their blocks, preempting the last ones if need be; a mask of `rows` that can run."""
        runs = np.ones(len(rows), bool)
        if len(lacking) <= self.cache.num_free and (counts[lacking] == 1).all():
            self.cache.extend(rows[lacking])
            return runs
        index_of = {int(row): index for index, row in enumerate(rows)}
        for index in lacking.tolist():
            row = int(rows[index])
            tokens = int(self.rows.num_computed[row] + counts[index])
            missing = self.cache.missing(row, tokens)
            while runs[index] and self.cache.num_free < missing:
                if self.rows.num_left:
                    runs[index] = False  # blocks come back when a step under way is done
                    break
                victim = int(self._active[-1])
                self._preempt(victim)
                if victim in index_of:
                    runs[index_of[victim]] = False
            if runs[index]:
                self.cache.grow(row, tokens)
        return runs

    def _preempt(self, row: int) -> None:
        self._report.preemptions += 1
        self._leave(row, Leaving.PREEMPTED)

    def _admit(self, running: Int32) -> tuple[list[AdmittedRow], list[int], list[int]]:
        """Take up waiting requests in order while rows, blocks and what `running` rows leave of the budget last."""
        budget = self.plan.max_num_batched_tokens - int(running.sum())
        admitted: list[AdmittedRow] = []
        rows: list[int] = []
        counts: list[int] = []
        deferred: list[Request] = []
        while budget > 0 and len(self.waiting) and self.rows.free:
            request = self.waiting.pop()
            if request.limit < 2:
                self._end(request, Finished(request.handle, "length"))  # one token to score, none to sample
                continue
            if request.follower is not None and not request.follower.ready:
                deferred.append(request)
                continue
            reused = self.reuse.reusable(request)
            if self.reuse.is_coming(request, len(reused)):
                deferred.append(request)
                continue
            if not self._fits(request, reused, budget):
                deferred.append(request)
                break
            row = self._take_up(request, reused)
            admitted.append(request.admission(row))
            gap = min(len(request.tokens), request.limit - 1) - int(self.rows.num_computed[row])
            rows.append(row)
            counts.append(min(gap, budget))
            budget -= counts[-1]
        for request in deferred:
            self.waiting.push(request)
        if rows:
            self._sort_active(rows)
        return admitted, rows, counts

    def _fits(self, request: Request, reused: list[BlockHash], budget: int) -> bool:
        """Whether there are blocks for all its tokens; beside running rows, a hundredth stays free for them to grow."""
        if self.policy.whole_prompts and len(request.tokens) > budget:
            return False
        needed = self.cache.blocks_for(len(request.tokens)) - len(reused)
        reserve = self.cache.num_usable_each // 100 if len(self._active) else 0
        return self.cache.free_after_reuse(reused) >= needed + reserve

    def _take_up(self, request: Request, reused: list[BlockHash]) -> int:
        cached = len(reused) * self.plan.block_size
        row = self.rows.occupy(request, cached)
        self.cache.admit(row, reused, len(request.tokens))
        self.reuse.announce(request, len(reused))
        if not request.started:
            request.started = True
            self._report.started(request, cached)
        return row

    def _sort_active(self, new_rows: list[int]) -> None:
        rows = [*self._active.tolist(), *new_rows]
        rows.sort(key=lambda row: self.rows.request(row).key)
        self._active = np.array(rows, np.int32)

    def _end(self, request: Request, finished: Finished) -> None:
        self._report.finished.append(finished)
        del self.requests[request.handle]
        if request.row >= 0:
            self._leave(request.row, Leaving.FINISHED)

    def _leave(self, row: int, leaving: Leaving) -> None:
        """Stop running a row; its blocks come back at once if no step under way names them."""
        self._settle()
        before = self.rows.leaving[row]
        self.rows.leaving[row] = leaving
        self._preempting += (leaving == Leaving.PREEMPTED) - int(before == Leaving.PREEMPTED)
        if before == Leaving.NO:
            self._active = self._active[self._active != row]
            self.reuse.withdraw(row)
            self.rows.num_left += 1
        if self.rows.last_step[row] <= self._committed_step:
            self._release(row)

    def _release_left(self, record: StepRecord) -> None:
        left = record.rows[self.rows.leaving[record.rows] != Leaving.NO]
        for row in left.tolist():
            if self.rows.requests[row] is not None and self.rows.last_step[row] <= record.step:
                self._release(row)

    def _release(self, row: int) -> None:
        preempted = bool(self.rows.leaving[row] == Leaving.PREEMPTED)
        self.cache.release(row)
        request = self.rows.vacate(row)
        self._retired.append(row)
        self.rows.num_left -= 1
        self._preempting -= preempted
        if preempted:
            self.waiting.push(request)

    def _outputs(self, outcome: Outcome) -> StepOutputs:
        return self._report.outputs(outcome, self.stats)
