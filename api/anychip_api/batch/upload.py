"""From a multipart form to a stored file."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.types import Message, Receive

from anychip.errors import RequestError
from anychip_api.batch.files import FileStore, StoredFile
from anychip_api.errors import ApiError

PURPOSE = "batch"
SHORTEST, LONGEST = 3600, 2592000
"""Seconds that a file may be kept, where the client limits them."""

_FRAME = 64 * 1024
"""Bytes of a form around its file."""
_MOST_FIELDS = 16


async def store_upload(request: Request, store: FileStore, most_bytes: int) -> StoredFile:
    """Take in a form with `file` and `purpose`. Raises `RequestError` and `ApiError` about its fields."""
    limit = min(most_bytes, store.free)
    limited = Request(request.scope, _Limited(request.receive, limit + _FRAME, _too_large(limit, most_bytes)))
    async with limited.form(max_files=1, max_fields=_MOST_FIELDS, max_part_size=_FRAME) as form:
        purpose, lifetime = _read_fields(form)
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise RequestError("file is required.", "file", "Send a multipart form with a file.")
        if (file.size or 0) > limit:
            raise _too_large(limit, most_bytes)
        path = store.new_path()
        await run_in_threadpool(_copy, file, path)
        return store.add(path, file.filename or "upload", purpose, lifetime)


def read_lifetime(anchor: Any, seconds: Any, param: str) -> int:
    """Seconds of OpenAI's expiry policy."""
    if anchor != "created_at":
        raise RequestError(f"{param}.anchor must be created_at.", param, "Send created_at.")
    if type(seconds) is not int or not SHORTEST <= seconds <= LONGEST:
        raise RequestError(f"{param}.seconds must be between {SHORTEST} and {LONGEST}.", param, "Change it.")
    return seconds


def _read_fields(form: Mapping[str, Any]) -> tuple[str, int | None]:
    purpose = form.get("purpose")
    if purpose != PURPOSE:
        raise RequestError(f"purpose must be {PURPOSE!r}: files are only read by batches here.", "purpose", "Send it.")
    anchor, seconds = form.get("expires_after[anchor]"), form.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return PURPOSE, None
    number = int(seconds) if isinstance(seconds, str) and seconds.isascii() and seconds.isdecimal() else seconds
    return PURPOSE, read_lifetime(anchor, number, "expires_after")


def _copy(upload: UploadFile, path: Path) -> None:
    upload.file.seek(0)
    with path.open("wb") as target:
        shutil.copyfileobj(upload.file, target)


def _too_large(limit: int, most_bytes: int) -> ApiError:
    if limit < most_bytes:
        text = f"The files here have {max(limit, 0)} bytes left. Delete some, or raise --max-stored-file-bytes."
    else:
        text = f"The file is larger than {limit} bytes. Send several, or raise --max-file-bytes."
    return ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text, "file")


class _Limited:
    """Receives a body that may not be longer than `limit`."""

    def __init__(self, receive: Receive, limit: int, error: ApiError) -> None:
        self._receive = receive
        self._left = limit
        self._error = error

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise self._error
        return message
