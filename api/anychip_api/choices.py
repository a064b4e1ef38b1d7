"""OpenAI's answers with a list of `choices`: chats and completions."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

from anychip.engine.messages import FinishReason
from anychip.engine.outputs import Delta, TokenLogprobs
from anychip_api.answer import Answer, Head
from anychip_api.errors import ApiError
from anychip_api.event_stream import event
from anychip_api.generation import Generation
from anychip_api.merge import Deltas
from anychip_api.schemas import GenerationRequest
from anychip_api.service import Service

_DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class Choice:
    """One choice of an answer that is sent whole."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None

    @property
    def mean_logprob(self) -> float:
        """Mean log-probability of its tokens, all of which have one."""
        rows = zip(self.token_ids, self.logprobs, strict=True)
        return sum(position[token].logprob for token, position in rows) / max(1, len(self.token_ids))

    def add(self, delta: Delta) -> None:
        """What the choice gained."""
        self.texts.append(delta.text)
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs or ()
        if delta.finish_reason:
            self.finish_reason = delta.finish_reason
            self.stop_reason = delta.stop_reason


class ChoicesAnswer(Answer):
    """Formats one request's choices; `index` below is the prompt's, and a choice is numbered over all prompts."""

    object_name: str
    chunk_name: str

    def __init__(self, service: Service, request: GenerationRequest, generation: Generation, head: Head) -> None:
        super().__init__(generation, head, bool(request.stream))
        self.service = service
        self.request = request
        self.as_ids = bool(request.return_tokens_as_token_ids)
        self.with_token_ids = bool(request.return_token_ids) or service.engine.tokenizer is None
        self._choices = [Choice() for _ in range(len(generation.streams) * generation.choices)]
        options = request.stream_options
        self._continuous = bool(options and options.continuous_usage_stats)
        self._include_usage = bool(options and options.include_usage)

    @abstractmethod
    def pieces(self, index: int, delta: Delta) -> list[dict[str, Any]]:
        """Entries of `choices` for what a choice gained, one a chunk."""

    @abstractmethod
    def choice(self, index: int, number: int, choice: Choice) -> dict[str, Any]:
        """The entry of `choices` of a choice that is complete."""

    def shown(self, choices: list[Choice]) -> list[Choice]:
        """Those of a prompt's choices that the client gets."""
        return choices

    def extras(self) -> dict[str, Any]:
        """More members of the whole answer."""
        return {}

    def number(self, index: int, delta: Delta) -> int:
        """The number of a choice over all prompts."""
        return index * self.generation.choices + delta.index

    def add(self, deltas: Deltas) -> None:
        """Keep what the choices gained."""
        for index, delta in deltas:
            self._choices[self.number(index, delta)].add(delta)

    def whole(self) -> dict[str, Any]:
        """Every choice, and the usage."""
        each = self.generation.choices
        listed: list[dict[str, Any]] = []
        for index in range(len(self.generation.streams)):
            for choice in self.shown(self._choices[index * each : (index + 1) * each]):
                listed.append(self.choice(index, len(listed), choice))
        return {**self.envelope(self.object_name, listed), "usage": self.generation.usage(), **self.extras()}

    def events(self, deltas: Deltas) -> bytes:
        """A chunk for each piece of each delta."""
        return b"".join(self._chunk(piece) for item in deltas for piece in self.pieces(*item))

    def closing(self) -> bytes:
        """The usage, where it was asked for, and the end."""
        if not self._include_usage:
            return _DONE
        return event({**self.envelope(self.chunk_name, []), "usage": self.generation.usage()}) + _DONE

    def failure(self, error: ApiError) -> bytes:
        """The error as it is without a stream."""
        return event(error.body())

    def _chunk(self, piece: dict[str, Any]) -> bytes:
        chunk = self.envelope(self.chunk_name, [piece])
        if self._continuous:
            chunk["usage"] = self.generation.usage()
        elif self._include_usage:
            chunk["usage"] = None
        return event(chunk)

    def envelope(self, name: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """The members around `choices`, of an object or of a chunk."""
        head = self.head
        return {
            "id": head.request_id,
            "object": name,
            "created": head.created,
            "model": head.model,
            "choices": choices,
        }
