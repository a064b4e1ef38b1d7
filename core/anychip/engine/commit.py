"""From a `StepResult` to what clients are told: sampled tokens, ended sequences, log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from anychip.engine.assemble import StepRecord
from anychip.engine.batch import NOTHING_ALLOWED, Int32, Logprobs, Pooled, StepResult
from anychip.engine.messages import Finished, LogprobRows, Vectors
from anychip.engine.request import Leaving, Rows


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a committed step brought, as `StepOutputs` carries it."""

    handles: bytes = b""
    token_start: bytes = b""
    token_ids: bytes = b""
    finished: tuple[Finished, ...] = ()
    logprobs: tuple[LogprobRows, ...] = ()
    vectors: Vectors | None = None


def read_result(state: Rows, record: StepRecord, result: StepResult) -> Outcome:
    """Write sampled tokens into their rows, and find sequences that ended. Tokens of finished rows are dropped."""
    rows, positions, tokens, keep = _kept(state, record, result)
    state.tokens[rows, positions] = tokens
    finished = [*_errors(state, result), *_ended(state, rows, positions, tokens), *_scored(state, record)]
    vectors = None
    if result.pooled is not None:
        ended, vectors = _pooled(state, result.pooled)
        finished += ended
    logprobs = [*_sampled_logprobs(state, rows, positions, result.logprobs, keep), *_prompt_logprobs(state, result)]
    return Outcome(
        handles=state.handles[rows].tobytes(),
        token_start=np.arange(len(rows) + 1, dtype=np.int32).tobytes(),
        token_ids=tokens.astype(np.int32, copy=False).tobytes(),
        finished=tuple(finished),
        logprobs=tuple(logprobs),
        vectors=vectors,
    )


def computed(state: Rows, record: StepRecord, result: StepResult) -> tuple[Int32, Int32]:
    """Rows of a step whose cached blocks may be shared, and their tokens in the cache; not failed or finished rows."""
    if not (result.errors or state.num_left):
        return record.rows, record.ends
    good = state.leaving[record.rows] != Leaving.FINISHED
    good &= ~np.isin(record.rows, list(result.errors))
    return record.rows[good], record.ends[good]


def _kept(state: Rows, record: StepRecord, result: StepResult) -> tuple[Int32, Int32, Int32, Int32 | None]:
    """Sampled rows, positions and tokens that are kept, and their indices in the result; None: all are kept."""
    rows = result.rows
    assert len(result.token_ids) == len(rows), "one token a row and step, until there is speculation"
    if len(rows) == len(record.sampled):
        positions = record.positions
    else:
        positions = record.positions[np.isin(record.sampled, rows)]
    if not state.num_left:
        return rows, positions, result.token_ids, None
    keep = np.flatnonzero(state.leaving[rows] != Leaving.FINISHED).astype(np.int32)
    return rows[keep], positions[keep], result.token_ids[keep], keep


def _ended(state: Rows, rows: Int32, positions: Int32, tokens: Int32) -> list[Finished]:
    hits = state.stop_ids[rows] == tokens[:, None]
    full = state.limit[rows] <= positions + 1
    if not (np.count_nonzero(hits) or np.count_nonzero(full)):
        return []
    stopped = hits.any(axis=1)
    finished = []
    for index in np.flatnonzero(stopped | full).tolist():
        request, token = state.request(int(rows[index])), int(tokens[index])
        if stopped[index]:
            finished.append(Finished(request.handle, "stop", None if token in request.eos_ids else token))
        else:
            finished.append(Finished(request.handle, "length"))
    return finished


def _scored(state: Rows, record: StepRecord) -> list[Finished]:
    """Ends of sequences that only score their prompt: they are over once all of it is computed."""
    if not state.silent:
        return []
    rows = record.rows
    only = (state.limit[rows] == state.prompt_length[rows]) & (record.ends >= state.limit[rows] - 1)
    only &= state.leaving[rows] != Leaving.FINISHED
    return [Finished(int(state.handles[row]), "length") for row in rows[only].tolist()]


def _pooled(state: Rows, pooled: Pooled) -> tuple[list[Finished], Vectors]:
    """Ends of sequences whose pooled vector came, and these vectors."""
    keep = state.leaving[pooled.rows] != Leaving.FINISHED
    handles = state.handles[pooled.rows[keep]]
    values = np.ascontiguousarray(pooled.vectors[keep], np.float32)
    return [Finished(handle, "stop") for handle in handles.tolist()], Vectors(handles.tobytes(), values.tobytes())


def _errors(state: Rows, result: StepResult) -> list[Finished]:
    return [
        Finished(int(state.handles[row]), "error", error=sentence, refused=sentence == NOTHING_ALLOWED)
        for row, sentence in result.errors.items()
        if state.leaving[row] != Leaving.FINISHED
    ]


def _sampled_logprobs(
    state: Rows, rows: Int32, positions: Int32, logprobs: Logprobs | None, keep: Int32 | None
) -> list[LogprobRows]:
    if logprobs is None:
        return []
    found = []
    for index, where in enumerate(range(len(rows)) if keep is None else keep.tolist()):
        request = state.request(int(rows[index]))
        if request.sampling.logprobs is not None:
            first, width = int(positions[index]), request.sampling.logprobs + 1
            found.append(_slice(request.handle, False, first, width, logprobs, slice(where, where + 1)))
    return found


def _prompt_logprobs(state: Rows, result: StepResult) -> list[LogprobRows]:
    prompt = result.prompt_logprobs
    if prompt is None or len(prompt.rows) == 0:
        return []
    found = []
    edges = [0, *(np.flatnonzero(np.diff(prompt.rows)) + 1).tolist(), len(prompt.rows)]
    for start, end in pairwise(edges):
        row = int(prompt.rows[start])
        if state.leaving[row] == Leaving.FINISHED:
            continue
        request = state.request(row)
        assert request.sampling.prompt_logprobs is not None, "prompt tokens were scored that nobody asked for"
        first, width = int(prompt.positions[start]), request.sampling.prompt_logprobs + 1
        found.append(_slice(request.handle, True, first, width, prompt.logprobs, slice(start, end)))
    return found


def _slice(handle: int, prompt: bool, first: int, width: int, source: Logprobs, where: slice) -> LogprobRows:
    token_ids, values = source.token_ids[where, :width], source.values[where, :width]
    return LogprobRows(
        handle=handle,
        prompt=prompt,
        first=first,
        width=token_ids.shape[1],
        token_ids=np.ascontiguousarray(token_ids, np.int32).tobytes(),
        values=np.ascontiguousarray(values, np.float32).tobytes(),
        ranks=np.ascontiguousarray(source.ranks[where], np.int32).tobytes(),
    )
