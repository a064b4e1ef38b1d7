"""From an HTTP request to a checked schema."""

from __future__ import annotations

from http import HTTPStatus
from typing import TypeVar

from starlette.requests import Request

from anychip_api.errors import ApiError
from anychip_api.fields import check_extra_fields, header_value
from anychip_api.schemas import SamplingRequest, Schema, TokensRequest
from anychip_api.service import Service

IGNORED_HEADER = "x-anychip-ignored"

S = TypeVar("S", bound=Schema)


async def read_schema(service: Service, request: Request, schema: type[S]) -> tuple[S, dict[str, str]]:
    """The body as `schema`, and the headers that the answer has to carry.

    Raises pydantic's ValidationError, `RequestError` for a field that cannot be honoured, `ApiError` for a body of the
    wrong kind or size.
    """
    _check_content_type(request)
    body = schema.model_validate_json(await _read(request, service.options.max_body_bytes))
    if isinstance(body, SamplingRequest | TokensRequest):
        service.engine.inputs.require("generate")
    ignored = check_extra_fields(body.model_extra or {}, service.options.strict_fields, schema.refused)
    ignored += body.without_effect()
    if not ignored:
        return body, {}
    service.note_ignored(request.url.path, ignored)
    return body, {IGNORED_HEADER: header_value(ignored)}


def _check_content_type(request: Request) -> None:
    # A web page of another origin may send any other type without asking first.
    content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if content_type != "application/json":
        message = f"The request's content type is {content_type!r}. Send `Content-Type: application/json`."
        raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        message = f"The request's body is encoded as {encoding!r}. Send it as it is, without content-encoding."
        raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)


async def _read(request: Request, limit: int) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int) -> ApiError:
    message = f"The request body is larger than {limit} bytes. Send less, or start the server with --max-body-bytes."
    return ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
