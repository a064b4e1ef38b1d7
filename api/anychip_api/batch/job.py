"""One batch of the server, from its input file to its results."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anychip.errors import EngineDeadError, RequestError
from anychip.log import logger
from anychip_api.batch.files import FileStore, StoredFile
from anychip_api.batch.lines import Problem, read_lines, scan
from anychip_api.batch.results import Result, Usage, unanswered
from anychip_api.batch.running import run_lines
from anychip_api.batch.schema import BatchRequest
from anychip_api.service import Service

MOST_REQUESTS = 50_000
_WINDOW = re.compile(r"([1-9]\d{0,4})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_OUTCOMES = {
    "expired": ("batch_expired", "The completion window ended before this request was done."),
    "cancelled": ("batch_cancelled", "The batch was cancelled before this request was done."),
    "failed": ("batch_failed", "The engine ended before this request was done."),
}


def read_window(text: str) -> int:
    """Seconds of a completion window such as 24h."""
    found = _WINDOW.fullmatch(text)
    if found is None:
        raise RequestError("completion_window must be a time such as 24h.", "completion_window", "Send 24h.")
    return int(found[1]) * _SECONDS[found[2]]


class Job:
    """A batch and its state; `run` is called once."""

    def __init__(self, request: BatchRequest, source: StoredFile, window: int) -> None:
        self.id = f"batch_{uuid.uuid4().hex}"
        self.request = request
        self.status = "validating"
        self._source = source
        self._lifetime = request.output_expires_after.lifetime() if request.output_expires_after else None
        self._times: dict[str, int] = {"created_at": int(time.time())}
        self._times["expires_at"] = self._times["created_at"] + window
        self._counts = {"total": 0, "completed": 0, "failed": 0}
        self._usage = Usage()
        self._problems: list[Problem] = []
        self._left: set[str] = set()
        self._files: dict[str, str] = {}
        self._cancel = asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether nothing will change any more."""
        return self.status in ("failed", "completed", "expired", "cancelled")

    def cancel(self) -> None:
        """Abort what runs; what is done stays."""
        if not self.over and self.status != "cancelling":
            self._become("cancelling")
            self._cancel.set()

    async def run(self, service: Service, store: FileStore, turn: asyncio.Semaphore) -> None:
        """Check the input file, run its lines, and store the results. `turn` limits requests over all batches."""
        results = _Results(store)
        try:
            found = await asyncio.to_thread(scan, self._source.path, (self.request.endpoint,), MOST_REQUESTS)
            self._problems, self._left, self._counts["total"] = found.problems, found.ids, len(found.ids)
            if self._problems:
                self._become("failed")
                return
            if not self._cancel.is_set():
                self._become("in_progress")
            outcome = await self._run_lines(service, turn, results)
            self._finish(outcome, results, store)
        except Exception:  # noqa: BLE001 -- a bug ends this batch, and is logged
            logger.exception("The batch %s failed.", self.id)
            self._become("failed")
        finally:
            results.close()

    async def _run_lines(self, service: Service, turn: asyncio.Semaphore, results: _Results) -> str:
        """Run the lines until all are done, time is up or the batch is cancelled; returns which, or "failed"."""

        def take(result: Result) -> None:
            if not result.was_run:
                raise EngineDeadError(service.engine.last_words)
            self._usage.add(result)
            self._left.discard(result.custom_id)
            self._counts["completed" if result.went_well else "failed"] += 1
            results.add(result)

        workers = min(service.options.batch_concurrency, self._counts["total"])
        running = asyncio.create_task(run_lines(service, read_lines(self._source.path), workers, turn, take))
        cancelled = asyncio.create_task(self._cancel.wait())
        try:
            left = max(0.0, self._times["expires_at"] - time.time())
            await asyncio.wait({running, cancelled}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                return "failed" if running.exception() else "completed"
            return "cancelled" if self._cancel.is_set() else "expired"
        finally:
            cancelled.cancel()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await running

    def _finish(self, outcome: str, results: _Results, store: FileStore) -> None:
        if outcome in _OUTCOMES:
            for custom_id in sorted(self._left):
                results.add(unanswered(custom_id, *_OUTCOMES[outcome]))
        else:
            self._become("finalizing")
        for kind, path in results.paths():
            name = f"{self.id}_{kind}.jsonl"
            self._files[f"{kind}_file_id"] = store.add(path, name, "batch_output", self._lifetime).id
        self._become(outcome)

    def _become(self, status: str) -> None:
        self.status = status
        self._times[f"{status}_at"] = int(time.time())

    def shown(self) -> dict[str, Any]:
        """OpenAI's batch object."""
        problems = [{"code": p.code, "message": p.message, "line": p.line, "param": None} for p in self._problems]
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.request.endpoint,
            "errors": {"object": "list", "data": problems} if problems else None,
            "input_file_id": self._source.id,
            "completion_window": self.request.completion_window,
            "status": self.status,
            "output_file_id": self._files.get("output_file_id"),
            "error_file_id": self._files.get("error_file_id"),
            **{name: self._times.get(name) for name in _TIMES},
            "request_counts": dict(self._counts),
            "usage": self._usage.shown(),
            "metadata": self.request.metadata,
        }


_TIMES = tuple(
    f"{name}_at"
    for name in (
        "created", "in_progress", "expires", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled",
    )
)  # fmt: skip


class _Results:
    """The output and the error file of a batch, each written once there is something for it."""

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self._open: dict[str, Any] = {}
        self._paths: dict[str, Path] = {}

    def add(self, result: Result) -> None:
        """Write a result as a line of the file that it belongs in."""
        kind = "output" if result.went_well else "error"
        if kind not in self._open:
            self._paths[kind] = self._store.new_path()
            self._open[kind] = self._paths[kind].open("wb")
        self._open[kind].write(result.line())

    def paths(self) -> Iterator[tuple[str, Path]]:
        """Where each file lies; nothing more can be added."""
        self.close()
        yield from self._paths.items()

    def close(self) -> None:
        """Close the files, so that all is written."""
        for file in self._open.values():
            file.close()
