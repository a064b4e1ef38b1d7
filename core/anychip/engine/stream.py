"""An open request on the client's side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from anychip.engine.collect import Collected
from anychip.engine.outputs import Delta, TokenLogprobs
from anychip.errors import EngineDeadError
from anychip.sampling_params import SamplingParams


class StreamOwner(Protocol):
    """What a stream asks of the engine's client."""

    last_words: str

    @property
    def dead(self) -> bool:
        """Whether no further delta will come."""

    def abort(self, stream: RequestStream) -> None:
        """Stop the request."""


class RequestStream:
    """An open request: iterate it for deltas. Abandoning the iteration aborts the request."""

    def __init__(self, owner: StreamOwner, collected: Collected) -> None:
        self.collected = collected
        self._owner = owner
        self._changed = asyncio.Event()

    @property
    def request_id(self) -> str:
        """The id given or made."""
        return self.collected.request_id

    @property
    def params(self) -> SamplingParams:
        """How it is sampled."""
        return self.collected.prepared.params

    @property
    def prompt_text(self) -> str | None:
        """The prompt, if it was text."""
        return self.collected.prepared.text

    @property
    def prompt_token_ids(self) -> list[int]:
        """The prompt in token ids."""
        return self.collected.prepared.token_ids

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens found in the prefix cache; known once the first delta is there."""
        return self.collected.num_cached_tokens

    @property
    def waited(self) -> float:
        """Seconds in the queue; known once the first delta is there."""
        return self.collected.waited

    @property
    def prompt_logprobs(self) -> list[TokenLogprobs | None] | None:
        """One a prompt token, None for the first; complete once the first delta of choice 0 is there."""
        return self.collected.prompt_logprobs

    def wake(self) -> None:
        """Called by the engine when something came."""
        self._changed.set()

    def abort(self) -> None:
        """Stop the request; harmless when it is over."""
        self._owner.abort(self)

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """Deltas of all choices until each has a finish reason. Raises `EngineDeadError`."""
        try:
            while True:
                self._changed.clear()
                for delta in self.collected.take():
                    yield delta
                if self.collected.open == 0 and not self.collected.deltas:
                    return
                if self._owner.dead:
                    raise EngineDeadError(self._owner.last_words)
                await self._changed.wait()
        finally:
            self.abort()
