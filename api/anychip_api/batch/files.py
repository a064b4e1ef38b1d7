"""Uploaded files and results, on disk in a folder that ends with the server."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from anychip_api.errors import ApiError


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file. Times are Unix seconds; without `expires_at` it stays until it is deleted."""

    id: str
    name: str
    purpose: str
    path: Path
    size: int
    created_at: int
    expires_at: int | None

    def shown(self) -> dict[str, Any]:
        """OpenAI's file object."""
        shown = {
            "id": self.id,
            "object": "file",
            "bytes": self.size,
            "created_at": self.created_at,
            "filename": self.name,
            "purpose": self.purpose,
            "status": "processed",
        }
        return shown if self.expires_at is None else {**shown, "expires_at": self.expires_at}


class FileStore:
    """Files by id, of at most `most_bytes` in all where they are uploaded."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._files: dict[str, StoredFile] = {}
        self._folder: TemporaryDirectory[str] | None = None

    @property
    def free(self) -> int:
        """Bytes that may still be uploaded; negative once results took more."""
        self._expire()
        return self.most_bytes - sum(file.size for file in self._files.values())

    def new_path(self) -> Path:
        """Where to write a file before it is added."""
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="anychip-files-")
        return Path(self._folder.name) / uuid.uuid4().hex

    def add(self, path: Path, name: str, purpose: str, lifetime: int | None = None) -> StoredFile:
        """Keep the file at `path`, for `lifetime` seconds."""
        now = int(time.time())
        expires_at = None if lifetime is None else now + lifetime
        size = path.stat().st_size
        file = StoredFile(f"file-{uuid.uuid4().hex}", name, purpose, path, size, now, expires_at)
        self._files[file.id] = file
        return file

    def get(self, file_id: str, param: str | None = None) -> StoredFile:
        """One file; raises `ApiError` when there is none."""
        self._expire()
        file = self._files.get(file_id)
        if file is None:
            message = f"There is no file {file_id[:80]!r}. GET /v1/files lists them; they end with the server."
            raise ApiError(HTTPStatus.NOT_FOUND, message, param, "not_found")
        return file

    def all(self) -> list[StoredFile]:
        """Every file, the oldest first."""
        self._expire()
        return list(self._files.values())

    def delete(self, file: StoredFile) -> None:
        """Forget a file; who reads it now can read on."""
        del self._files[file.id]
        file.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Delete everything."""
        self._files.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def _expire(self) -> None:
        now = time.time()
        for file in [one for one in self._files.values() if one.expires_at is not None and one.expires_at <= now]:
            self.delete(file)
