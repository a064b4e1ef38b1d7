"""Compiling a model's kernels beside its start, in processes that share Triton's cache on the disk.

One process is started before this one imports torch, and imports what it needs meanwhile. Told what is to be compiled,
it rehearses all steps and compiles each kernel in a process forked for it: see compiling.py. Nothing depends on them:
what they leave out, or a failure, is compiled where it is launched.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import triton

from anychip.config import EngineConfig, helper_environment
from anychip.log import logger
from anychip.runner.host_memory import host_memory

if TYPE_CHECKING:
    from anychip.triton.ahead.work import Work

MOST = 14
"""Kernels compiled at once: there are few that a start needs."""
ROOM = 1 << 30
"""Bytes of the host's memory that have to be free for each; one takes less than half."""
EARLY = 4
"""Processors from which on a process is started before anybody knows whether it will have anything to do."""
PATIENCE = 60.0
"""Seconds after which a start goes on without them."""
START = b"start "
"""What the process says once everything a start needs is compiled."""
DECIDE = (
    *("task", "pooling", "dtype", "quantization", "quantization_group_size", "quantization_symmetric"),
    *("block_size", "kv_cache_dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens"),
)
"""Options that decide which kernels there are."""
SMALL = 256 << 20
"""Bytes of weights that are loaded before a helper has imported torch."""
BACKENDS = ("cuda", "hip")
"""Triton's names of those that compile without a device."""


class Helpers:
    """The process and those that it forks, for one device. `wait` before the first launch, `close` at the end.

    `likely` is a file to be made once all is compiled.
    """

    def __init__(self, backend: str, count: int, likely: Path | None = None) -> None:
        self.likely = likely
        self._folder = tempfile.TemporaryDirectory(prefix="anychip-compile-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        self._errors = folder / "errors"
        self._began = time.monotonic()
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "anychip.triton.ahead.compiling", backend, str(count)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=helper_environment(folder),
                process_group=0,
                bufsize=0,
            )
        self._end = weakref.finalize(self, _end, self._process, self._folder)

    def begin(self, work: Work) -> bool:
        """Say what is to be compiled; whether there is still somebody to say it to. Waits for nobody."""
        assert self._process.stdin is not None, "asked for above"
        path = Path(self._folder.name) / "work"
        self._began = time.monotonic()
        try:
            path.write_bytes(pickle.dumps((work, self.likely)))
            self._process.stdin.write(f"{path}\n".encode())
        except OSError:  # it has ended, or the disk is full
            return False
        return True

    def wait(self, patience: float = PATIENCE) -> bool:
        """Until all that a start needs is compiled, or the process has ended or takes too long; whether it is."""
        assert self._process.stdout is not None, "asked for above"
        waited, left = time.monotonic(), max(0.0, self._began + patience - time.monotonic())
        heard = bool(select.select([self._process.stdout], [], [], left)[0])
        said = self._process.stdout.readline() if heard else b""
        done = said.startswith(START)
        if done:
            took, here = said.removeprefix(START).decode().strip(), time.monotonic() - waited
            logger.info("compiled ahead: %s; the start waited %.1f s for that", took, here)
        else:
            reason = self._last_error if heard else "it takes too long"
            logger.info("kernels are compiled as they are needed, not all ahead: %s", reason)
        return done

    @property
    def _last_error(self) -> str:
        return self._errors.read_text(errors="replace").strip().rpartition("\n")[2] or "the process has ended"

    def close(self) -> None:
        """End them."""
        self._end()


def _end(process: subprocess.Popen[bytes], folder: tempfile.TemporaryDirectory[str]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    folder.cleanup()


def start_early(backend: str, config: EngineConfig, processors: int = EARLY) -> Helpers | None:
    """Start the process before torch is imported in this one; None where it might be for nothing.

    `processors` is how many there have to be at least.
    """
    count, likely = _count(), _likely(config)
    small = config.model.startswith("demo") or _is_small(Path(config.model))
    if not config.compile_ahead or count < processors - 1 or small or likely.exists():
        return None
    return _start(backend, likely)


def start_helpers(work: Work, early: Helpers | None = None) -> Helpers | None:
    """Have them compile, by the process that was started early if there is one; None where there is nothing to gain."""
    done = work.marker.exists()
    able = work.config.compile_ahead and _count() > 0 and work.target.backend in BACKENDS
    if done or not able or _is_small(work.source.path):
        if early is not None:
            early.close()
            if done and early.likely is not None:
                mark(early.likely)
        return None
    if early is not None:
        if early.begin(work):
            return early
        early.close()
    helpers = _start(work.target.backend, early.likely if early is not None else None)
    if helpers is not None and not helpers.begin(work):
        helpers.close()
        return None
    return helpers


def _start(backend: str, likely: Path | None) -> Helpers | None:
    try:
        return Helpers(backend, _count(), likely)
    except OSError as error:
        logger.info("kernels are compiled as they are needed, not ahead: no process could be started (%s)", error)
        return None


def mark(path: Path) -> None:
    """Make an empty file beside what was compiled, where that is allowed."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def marker(name: str) -> Path:
    """A file of ours in Triton's cache."""
    return Path(triton.knobs.cache.dir) / "anychip" / name


def programs_hash() -> str:
    """The same for the same sources of our programs."""
    programs = sorted(Path(__file__).parents[1].glob("*programs/*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in programs)).hexdigest()


def _count() -> int:
    return min(MOST, len(os.sched_getaffinity(0)) - 1, host_memory().free // ROOM)


def _is_small(path: Path) -> bool:
    return 0 < sum(file.stat().st_size for file in path.glob("*.safetensors")) < SMALL


def _likely(config: EngineConfig) -> Path:
    """A file that is there once this was compiled on some device: what is known before the model and the device are."""
    options = [getattr(config, field) for field in ("model", "revision", "device", *DECIDE)]
    what = (programs_hash(), triton.__version__, options)
    return marker("likely-" + hashlib.sha256(repr(what).encode()).hexdigest()[:32])
