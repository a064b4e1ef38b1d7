"""The batches and files of one server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

from anychip_api.batch.files import FileStore
from anychip_api.errors import ApiError

if TYPE_CHECKING:
    from anychip_api.batch.job import Job
    from anychip_api.options import ServerOptions
    from anychip_api.service import Service

_MOST_REMEMBERED = 1000


class Batches:
    """Batches by id, the oldest first. Finished ones are forgotten when there are too many."""

    def __init__(self, options: ServerOptions) -> None:
        self.files = FileStore(options.max_stored_file_bytes)
        self._jobs: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(options.batch_concurrency)

    @property
    def jobs(self) -> Mapping[str, Job]:
        """All batches that are remembered, by id."""
        return self._jobs

    def start(self, service: Service, job: Job) -> None:
        """Run a batch; raises `ApiError` when too many are open."""
        self._forget()
        self._jobs[job.id] = job
        task = asyncio.create_task(job.run(service, self.files, self._turn))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def get(self, batch_id: str) -> Job:
        """One batch; raises `ApiError` when there is none."""
        job = self._jobs.get(batch_id)
        if job is None:
            message = f"There is no batch {batch_id[:80]!r}. GET /v1/batches lists them; they end with the server."
            raise ApiError(HTTPStatus.NOT_FOUND, message, "batch_id", "not_found")
        return job

    async def close(self) -> None:
        """Abort everything, and delete every file."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.files.close()

    def _forget(self) -> None:
        if len(self._jobs) < _MOST_REMEMBERED:
            return
        over = next((job for job in self._jobs.values() if job.over), None)
        if over is None:
            message = f"{len(self._jobs)} batches are open. Wait until one of them ends."
            raise ApiError(HTTPStatus.TOO_MANY_REQUESTS, message)
        del self._jobs[over.id]
