"""From the engine's step messages to deltas of text: detokenizing, stop strings, log-probabilities."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from anychip.engine.input import PreparedRequest
from anychip.engine.messages import Finished, FinishReason, LogprobRows, StepOutputs, Vectors
from anychip.engine.outputs import Delta, Logprob, TokenLogprobs
from anychip.sampling_params import SamplingParams
from anychip.text.stop import StopChecker
from anychip.text.tokenizer import Tokenizer


class Choice:
    """One sequence on the client's side: turns its tokens into text and knows when it is over."""

    def __init__(self, index: int, params: SamplingParams, prompt: list[int], tokenizer: Tokenizer | None) -> None:
        self.index = index
        self.params = params
        self.count = 0
        self.finished = False
        speaks = tokenizer is not None and params.detokenize
        self._tokenizer = tokenizer
        skips, visible = params.skip_special_tokens, params.visible_tokens
        self._stream = tokenizer.stream(skips, prompt, visible) if tokenizer and speaks else None
        self._stops = StopChecker(params.stop, params.include_stop_str_in_output) if params.stop and speaks else None

    def feed(self, tokens: list[int], logprobs: list[TokenLogprobs] | None, finished: Finished | None) -> Delta:
        """What new tokens add: their text and log-probabilities, or the end. Tokens after a stop string are dropped.

        `logprobs` has an entry for each token; `finished`: the engine ended the sequence with the last of them.
        """
        delta = Delta(self.index, logprobs=None if self.params.logprobs is None else [])
        for place, token in enumerate(tokens):
            self.count += 1
            delta.token_ids.append(token)
            if logprobs and delta.logprobs is not None:
                delta.logprobs.append(logprobs[place])
            hidden = finished is not None and finished.reason == "stop" and place == len(tokens) - 1
            stop = self._push(delta, token, hidden and not self.params.include_stop_str_in_output)
            if stop is not None:
                self._end(delta, "stop", stop)
                return delta
        if finished is not None:
            stop = self._flush(delta)
            if stop is not None:
                self._end(delta, "stop", stop)
            else:
                self._end(delta, finished.reason, finished.stop_token_id)
            delta.error, delta.refused = finished.error, finished.refused
        return delta

    def _push(self, delta: Delta, token: int, hidden: bool) -> str | None:
        """Add one token's text, unless it is hidden; returns the stop string that it completed, if any."""
        if self._stream is None or hidden:
            return None
        return self._emit(delta, self._stream.push(token))

    def _emit(self, delta: Delta, text: str) -> str | None:
        if self._stops is None or self.count <= self.params.min_tokens:
            delta.text += text
            return None
        text, stop = self._stops.push(text)
        delta.text += text
        return stop

    def _flush(self, delta: Delta) -> str | None:
        """Add the text that was held back."""
        stop = self._emit(delta, self._stream.flush()) if self._stream is not None else None
        if self._stops is not None and stop is None:
            delta.text += self._stops.flush()
        return stop

    def _end(self, delta: Delta, reason: FinishReason, stop: int | str | None) -> None:
        self.finished = True
        delta.finish_reason, delta.stop_reason = reason, stop


class Collected:
    """One request on the client's side. Deltas wait in `deltas` until `take` is called."""

    def __init__(self, request_id: str, prepared: PreparedRequest, tokenizer: Tokenizer | None) -> None:
        self.request_id = request_id
        self.prepared = prepared
        self.tokenizer = tokenizer
        self.choices = {
            submit.handle: Choice(index, prepared.params, prepared.token_ids, tokenizer)
            for index, submit in enumerate(prepared.submits)
        }
        self.open = len(self.choices)
        self.num_cached_tokens = 0
        self.waited = 0.0
        """Seconds until its first sequence was scheduled."""
        wants_prompt = prepared.params.prompt_logprobs is not None
        self.prompt_logprobs: list[TokenLogprobs | None] | None = (
            [None] * len(prepared.token_ids) if wants_prompt else None
        )
        self.deltas: list[Delta] = []

    def add(self, delta: Delta) -> None:
        """Queue a delta, joining it to an untaken one of the same choice."""
        for waiting in self.deltas:
            if waiting.index == delta.index:
                _join(waiting, delta)
                return
        self.deltas.append(delta)

    def take(self) -> list[Delta]:
        """The deltas since the last call."""
        taken, self.deltas = self.deltas, []
        return taken


class Collector:
    """Distributes step messages over the open requests of one client."""

    def __init__(self) -> None:
        self._by_handle: dict[int, Collected] = {}

    def __len__(self) -> int:
        return len(self._by_handle)

    def open(self, collected: Collected) -> None:
        """Expect outputs for this request."""
        for handle in collected.choices:
            self._by_handle[handle] = collected

    def close(self, collected: Collected) -> tuple[int, ...]:
        """Forget a request; returns the handles that the engine still works on."""
        left = tuple(handle for handle in collected.choices if self._by_handle.pop(handle, None) is not None)
        collected.open = 0
        return left

    def requests(self) -> list[Collected]:
        """The open requests."""
        return list(dict.fromkeys(self._by_handle.values()))

    def collect(self, outputs: StepOutputs) -> tuple[list[Collected], tuple[int, ...]]:
        """Take in a message. Returns requests that gained something, and handles to abort, ended by a stop string."""
        for scheduled in outputs.scheduled:
            if (collected := self._by_handle.get(scheduled.handle)) and collected.choices[scheduled.handle].index == 0:
                collected.num_cached_tokens, collected.waited = scheduled.cached_tokens, scheduled.waited
        logprobs = self._logprobs(outputs.logprobs)
        vectors = _vectors(outputs.vectors)
        finished = {ended.handle: ended for ended in outputs.finished}
        touched: dict[Collected, None] = {}
        stopped = []
        for handle, tokens in _tokens(outputs, finished):
            collected = self._by_handle.get(handle)
            if collected is None:
                continue
            choice = collected.choices[handle]
            delta = choice.feed(tokens, logprobs.get(handle), finished.get(handle))
            delta.vector = vectors.get(handle)
            collected.add(delta)
            touched[collected] = None
            if choice.finished:
                collected.open -= 1
                del self._by_handle[handle]
                if handle not in finished:
                    stopped.append(handle)
        return list(touched), tuple(stopped)

    def _logprobs(self, rows: Iterable[LogprobRows]) -> dict[int, list[TokenLogprobs]]:
        """Log-probabilities of sampled tokens by handle; those of prompts go where they belong."""
        sampled: dict[int, list[TokenLogprobs]] = {}
        for row in rows:
            collected = self._by_handle.get(row.handle)
            if collected is None:
                continue
            tokens = _read_logprobs(row, collected.tokenizer)
            if not row.prompt:
                sampled.setdefault(row.handle, []).extend(tokens)
            elif collected.prompt_logprobs is not None:
                collected.prompt_logprobs[row.first : row.first + len(tokens)] = tokens
        return sampled


def _tokens(outputs: StepOutputs, finished: dict[int, Finished]) -> Iterable[tuple[int, list[int]]]:
    """Each handle of a message with its new tokens, those that ended without one included."""
    handles = memoryview(outputs.handles).cast("q").tolist()
    starts = memoryview(outputs.token_start).cast("i").tolist()
    tokens = memoryview(outputs.token_ids).cast("i").tolist()
    for index, handle in enumerate(handles):
        yield handle, tokens[starts[index] : starts[index + 1]]
    for handle in finished.keys() - set(handles):
        yield handle, []


def _vectors(message: Vectors | None) -> dict[int, npt.NDArray[np.float32]]:
    """Vectors by handle."""
    if message is None or not message.handles:
        return {}
    handles = np.frombuffer(message.handles, np.int64).tolist()
    return dict(zip(handles, np.frombuffer(message.values, np.float32).reshape(len(handles), -1), strict=True))


def _read_logprobs(row: LogprobRows, tokenizer: Tokenizer | None) -> list[TokenLogprobs]:
    ids = np.frombuffer(row.token_ids, np.int32).reshape(-1, row.width).tolist()
    values = np.frombuffer(row.values, np.float32).reshape(-1, row.width).tolist()
    ranks = np.frombuffer(row.ranks, np.int32).tolist()
    return [_token_logprobs(*columns, tokenizer) for columns in zip(ids, values, ranks, strict=True)]


def _token_logprobs(ids: list[int], values: list[float], rank: int, tokenizer: Tokenizer | None) -> TokenLogprobs:
    found: TokenLogprobs = {}
    for place, (token, value) in enumerate(zip(ids, values, strict=True)):
        if token not in found:
            text = tokenizer.decode([token], False) if tokenizer else None
            found[token] = Logprob(value, rank if place == 0 else place, text)
    return found


def _join(first: Delta, second: Delta) -> None:
    first.text += second.text
    first.token_ids += second.token_ids
    if second.logprobs is not None:
        first.logprobs = (first.logprobs or []) + second.logprobs
    first.finish_reason, first.stop_reason = second.finish_reason, second.stop_reason
    first.error, first.refused, first.vector = second.error, second.refused, second.vector
