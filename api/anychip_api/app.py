"""The FastAPI application over one engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from anychip.version import __version__
from anychip_api import status, texts
from anychip_api.anthropic import routes as messages
from anychip_api.batch import routes as batch
from anychip_api.body import IGNORED_HEADER
from anychip_api.chat import create_chat_completion
from anychip_api.completions import create_completion
from anychip_api.errors import as_api_error, internal_error
from anychip_api.gate import HANDLER, Gate, route_path
from anychip_api.inside import answer
from anychip_api.openapi import describe
from anychip_api.options import ServerOptions
from anychip_api.page import PAGE, ROOT, show_page
from anychip_api.pooling.embeddings import create_embeddings, pool
from anychip_api.pooling.labels import classify
from anychip_api.pooling.scores import create_scores, rerank
from anychip_api.rate_limit import RateLimit
from anychip_api.responses import routes as responses
from anychip_api.service import Handler, Service
from anychip_api.token_route import generate_tokens
from anychip_api.tracing import Traced

if TYPE_CHECKING:
    from anychip import AsyncEngine

Extension = Callable[[FastAPI, "AsyncEngine"], None]

_ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("POST", "/v1/chat/completions", create_chat_completion),
    ("POST", "/v1/completions", create_completion),
    ("POST", "/v1/responses", responses.create_response),
    ("GET", "/v1/responses/{response_id}", responses.get_response),
    ("DELETE", "/v1/responses/{response_id}", responses.delete_response),
    ("POST", "/v1/responses/{response_id}/cancel", responses.cancel_response),
    ("GET", "/v1/responses/{response_id}/input_items", responses.list_input_items),
    ("POST", "/v1/messages", messages.create_message),
    ("POST", "/v1/messages/count_tokens", messages.count_tokens),
    ("POST", "/inference/v1/generate", generate_tokens),
    ("GET", "/v1/models", status.list_models),
    ("GET", "/v1/models/{model:path}", status.get_model),
    ("POST", "/v1/embeddings", create_embeddings),
    ("POST", "/v1/score", create_scores),
    ("POST", "/score", create_scores),
    ("POST", "/v1/rerank", rerank),
    ("POST", "/v2/rerank", rerank),
    ("POST", "/rerank", rerank),
    ("POST", "/classify", classify),
    ("POST", "/pooling", pool),
    ("POST", "/tokenize", texts.tokenize),
    ("POST", "/detokenize", texts.detokenize),
    ("GET", "/tokenizer_info", texts.tokenizer_info),
    ("POST", "/v1/files", batch.upload_file),
    ("GET", "/v1/files", batch.list_files),
    ("GET", "/v1/files/{file_id}", batch.get_file),
    ("GET", "/v1/files/{file_id}/content", batch.get_file_content),
    ("DELETE", "/v1/files/{file_id}", batch.delete_file),
    ("POST", "/v1/batches", batch.create_batch),
    ("GET", "/v1/batches", batch.list_batches),
    ("GET", "/v1/batches/{batch_id}", batch.get_batch),
    ("POST", "/v1/batches/{batch_id}/cancel", batch.cancel_batch),
    ("GET", "/health", status.health),
    ("GET", "/ping", status.health),
    ("POST", "/ping", status.health),
    ("GET", "/load", status.load),
    ("GET", "/version", status.version),
    ("GET", "/server_info", status.server_info),
    ("GET", "/metrics", status.metrics),
)


class Application(FastAPI):
    """A FastAPI application with the service behind its routes."""

    def __init__(self, service: Service) -> None:
        root = service.options.root_path
        super().__init__(title="anychip", version=__version__, redoc_url=None, root_path=root)
        self.service = service

    def openapi(self) -> dict[str, Any]:
        """The description behind /docs."""
        if self.openapi_schema is None:
            self.openapi_schema = describe(super().openapi(), [(method, path) for method, path, _ in _ROUTES])
        return self.openapi_schema


def create_app(engine: AsyncEngine, options: ServerOptions, extensions: Iterable[Extension] = ()) -> Application:
    """The application of one server; any number may live in a process.

    `extensions` are plugins' `register_routes`: each is called with the application and the engine.
    """
    app = Application(make_service(engine, options))
    for method, path, handler in _ROUTES:
        app.add_route(path, _endpoint(app.service, path, handler), methods=[method])
    app.add_exception_handler(HTTPException, _on_error)
    app.add_exception_handler(RequestValidationError, _on_error)
    for path in (ROOT, PAGE + "{name}"):
        app.add_route(path, _endpoint(app.service, path, show_page), methods=["GET"])
    _add_middleware(app, options)
    for extend in extensions:
        extend(app, engine)
    return app


def _add_middleware(app: Application, options: ServerOptions) -> None:
    """From the inside: traces of what passes, the gate, and answers to browsers' questions, which carry no key."""
    if app.service.traces:
        app.add_middleware(Traced, traces=app.service.traces)
    limit = RateLimit(options.rate_limit) if options.rate_limit else None
    app.add_middleware(Gate, observe=app.service.metrics.on_response, api_keys=options.api_key, rate_limit=limit)
    if options.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=options.allowed_origins,
            allow_methods=options.allowed_methods,
            allow_headers=options.allowed_headers,
            allow_credentials=options.allow_credentials,
            expose_headers=("x-request-id", IGNORED_HEADER, "retry-after"),
        )


def make_service(engine: AsyncEngine, options: ServerOptions) -> Service:
    """What answers the routes, over HTTP or not."""
    return Service(engine, options, {path: handler for method, path, handler in _ROUTES if method == "POST"})


def _endpoint(service: Service, path: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        request.scope[HANDLER] = path
        return await answer(service, path, handler, request)

    return endpoint


async def _on_error(request: Request, error: Exception) -> Response:
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else None
    return (as_api_error(error) or internal_error()).response(route_path(request.scope), headers)
