"""What all routes of one server share."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from anychip.errors import RequestError
from anychip.log import logger
from anychip.text.tokenizer import Tokenizer
from anychip_api.admission import Admission
from anychip_api.batch.batches import Batches
from anychip_api.errors import ApiError
from anychip_api.metrics import Metrics
from anychip_api.options import ServerOptions
from anychip_api.parsers.registry import choose_parsers
from anychip_api.responses.store import ResponseStore
from anychip_api.tokens import TokenTexts
from anychip_api.tracing import Traces

if TYPE_CHECKING:
    from anychip import AsyncEngine
    from anychip_api.generation import Generation

Handler = Callable[["Service", Request], Awaitable[Response]]

_MOST_REMEMBERED = 1000


class Service:
    """The engine with the server's options, metrics and open requests; `handlers` are those of POST, by path."""

    def __init__(self, engine: AsyncEngine, options: ServerOptions, handlers: Mapping[str, Handler]) -> None:
        self.engine = engine
        self.options = options
        self.handlers = handlers
        self.names = options.served_model_name or (engine.config.model,)
        self.created = int(time.time())
        self.metrics = Metrics(engine, self.names[0], options.metrics_prefix)
        self.admission = Admission(engine, options.max_waiting)
        self.token_texts = TokenTexts(engine.tokenizer)
        self.traces = Traces(options.otlp_traces_endpoint) if options.otlp_traces_endpoint else None
        self.batches = Batches(options)
        self.responses = ResponseStore(options.max_stored_responses, options.max_stored_response_bytes)
        self.parsers = choose_parsers(
            options.tool_call_parser, options.reasoning_parser, _template(engine.tokenizer), self._plugin_parsers
        )
        self.open: set[Generation] = set()
        self._noted: set[tuple[str, str]] = set()

    def model_name(self, asked: str | None) -> str:
        """The name that answers carry; raises `ApiError` for a model that is not served."""
        if asked is None:
            return self.names[0]
        if asked not in self.names:
            served = ", ".join(self.names)
            message = f"The model {asked!r} is not served here. Use {served}, or leave `model` out."
            raise ApiError(HTTPStatus.NOT_FOUND, message, "model", "model_not_found")
        return asked

    def tokenizer(self, param: str) -> Tokenizer:
        """The tokenizer; raises `RequestError` about `param` when the server runs without one."""
        if self.engine.tokenizer is None:
            raise RequestError("This server has no tokenizer.", param, "Send token ids to /v1/completions.")
        return self.engine.tokenizer

    def check_token_ids(self, token_ids: Iterable[int], param: str) -> None:
        """Raise `RequestError` for an id outside of the vocabulary."""
        size = self.engine.info.vocab_size
        for token_id in token_ids:
            if not 0 <= token_id < size:
                raise RequestError(f"{param} holds {token_id}; token ids go from 0 to {size - 1}.", param)

    def note_ignored(self, path: str, names: Iterable[str]) -> None:
        """Log once each field that requests send and that has no effect."""
        for name in names:
            if (path, name) not in self._noted and len(self._noted) < _MOST_REMEMBERED:
                self._noted.add((path, name))
                logger.warning("%s: the field %r has no effect here and is ignored.", path, name[:100])

    def close(self) -> None:
        """Send what has not been sent yet; may wait for others."""
        if self.traces:
            self.traces.close()

    def _plugin_parsers(self) -> Mapping[tuple[str, str], str]:
        from anychip.plugin.registry import Registry

        return Registry(self.engine.config.plugins).parsers

    def abort_all(self) -> int:
        """Abort every open request; returns how many there were."""
        waiting = list(self.open)
        for generation in waiting:
            generation.abort("The server is stopping.")
        return len(waiting)


def _template(tokenizer: Tokenizer | None) -> str:
    """All chat templates of a model as one text."""
    return "" if tokenizer is None else "\n".join(tokenizer.chat_templates.values())
