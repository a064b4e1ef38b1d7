"""/v1/files and /v1/batches."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from anychip.errors import RequestError
from anychip_api.batch.job import Job, read_window
from anychip_api.batch.lines import URLS
from anychip_api.batch.schema import BatchRequest
from anychip_api.batch.upload import PURPOSE, store_upload
from anychip_api.body import read_schema
from anychip_api.errors import ApiError
from anychip_api.paging import page
from anychip_api.service import Service

_FILES, _BATCHES = 10_000, 100
_FEW = 20


async def upload_file(service: Service, request: Request) -> Response:
    """Keep a file of requests."""
    file = await store_upload(request, service.batches.files, service.options.max_file_bytes)
    return _json(file.shown())


async def list_files(service: Service, request: Request) -> Response:
    """Files, the newest first, of one purpose or of any."""
    purpose = request.query_params.get("purpose")
    files = [file.shown() for file in service.batches.files.all() if purpose in (None, file.purpose)]
    return _json(page(request, files, _FILES, _FILES))


async def get_file(service: Service, request: Request) -> Response:
    """What is known of one file."""
    return _json(service.batches.files.get(request.path_params["file_id"]).shown())


async def get_file_content(service: Service, request: Request) -> Response:
    """The bytes of one file."""
    file = service.batches.files.get(request.path_params["file_id"])
    return FileResponse(file.path, media_type="application/octet-stream", filename=file.name)


async def delete_file(service: Service, request: Request) -> Response:
    """Forget one file; one that a batch reads cannot be deleted."""
    file = service.batches.files.get(request.path_params["file_id"])
    if any(job.request.input_file_id == file.id and not job.over for job in service.batches.jobs.values()):
        message = "A batch reads this file. Cancel the batch first, or wait for its end."
        raise ApiError(HTTPStatus.CONFLICT, message, "file_id")
    service.batches.files.delete(file)
    return _json({"id": file.id, "object": "file", "deleted": True})


async def create_batch(service: Service, request: Request) -> Response:
    """Begin to answer a file of requests."""
    body, headers = await read_schema(service, request, BatchRequest)
    urls = [url for url in URLS if url in service.handlers]
    if body.endpoint not in urls:
        raise RequestError(f"endpoint is {body.endpoint[:80]!r}.", "endpoint", f"It has to be {' or '.join(urls)}.")
    file = service.batches.files.get(body.input_file_id, "input_file_id")
    if file.purpose != PURPOSE:
        raise RequestError("input_file_id names a file of results.", "input_file_id", "Upload one for `batch`.")
    job = Job(body, file, read_window(body.completion_window))
    service.batches.start(service, job)
    return _json(job.shown(), headers)


async def list_batches(service: Service, request: Request) -> Response:
    """Batches, the newest first."""
    return _json(page(request, [job.shown() for job in service.batches.jobs.values()], _FEW, _BATCHES))


async def get_batch(service: Service, request: Request) -> Response:
    """How one batch is doing."""
    return _json(service.batches.get(request.path_params["batch_id"]).shown())


async def cancel_batch(service: Service, request: Request) -> Response:
    """Abort what runs of one batch; its results so far stay."""
    job = service.batches.get(request.path_params["batch_id"])
    if job.over:
        raise ApiError(HTTPStatus.CONFLICT, f"The batch is {job.status}. Only an open one can be cancelled.")
    job.cancel()
    return _json(job.shown())


def _json(answer: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(answer), headers=headers, media_type="application/json")
