"""Compiling a model's kernels while it is loaded, in other processes, which fill Triton's cache on the disk.

One helper process is started before this one imports torch, so that both import at the same time. Told what the model
is, it rehearses all steps and compiles each kernel in a process forked for that: compiling.py. Nothing depends on it:
a kernel that it leaves out, or fails at, is compiled where it is first launched.
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
"""Most kernels that are compiled at once; a start needs few more."""
ROOM = 1 << 30
"""Bytes of the host's memory that have to be free for each of them; one takes less than half of it."""
EARLY = 4
"""Processors from which the helper is started before it is known whether there is anything to compile."""
PATIENCE = 60.0
"""Seconds that a start waits for the helper at most."""
START = b"start "
"""The helper writes a line that begins with it once all that a start needs is compiled."""
DECIDE = (
    *("task", "pooling", "dtype", "quantization", "quantization_group_size", "quantization_symmetric"),
    *("block_size", "kv_cache_dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens"),
)
"""Fields of the config on which it depends which kernels a model's steps launch."""
SMALL = 256 << 20
"""Bytes of weights up to which a model is loaded before a helper would have imported torch: it gets none."""
BACKENDS = ("cuda", "hip")
"""Triton's backends that compile without a device."""


class Helpers:
    """A helper process and those that it forks. Call `begin`, `wait` before the first launch, `close` at the end.

    `backend` is Triton's name of the device's kind, `count` how many kernels to compile at once, `likely` a file to be
    made once all are compiled, see `start_early`.
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
        """Tell the helper what to compile, without waiting. False: it has ended, or could not be told."""
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
        """Wait until all that a start needs is compiled, or the helper has ended, or `patience` seconds since `begin`.

        Returns whether all is compiled, and logs how long that took or why it is not.
        """
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
        """Kill the helper and its forks, if they still run."""
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
    """Start a helper before torch is imported here and the model is known; None where it would likely be for nothing.

    That is: the model was compiled before with these options, or is small, or there are fewer than `processors`.
    """
    count, likely = _count(), _likely(config)
    small = config.model.startswith("demo") or _is_small(Path(config.model))
    if not config.compile_ahead or count < processors - 1 or small or likely.exists():
        return None
    return _start(backend, likely)


def start_helpers(work: Work, early: Helpers | None = None) -> Helpers | None:
    """Have a helper compile `work`: the one that was started early, if it still runs, or a new one.

    None where nothing is to be gained, or no process can be started; an early helper is closed then.
    """
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
    """Make an empty file, a marker; where it cannot be written there is none."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def marker(name: str) -> Path:
    """Where a file of ours lies in Triton's cache."""
    return Path(triton.knobs.cache.dir) / "anychip" / name


def programs_hash() -> str:
    """A hash of the sources of our programs, the device's code."""
    programs = sorted(Path(__file__).parents[1].glob("*programs/*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in programs)).hexdigest()


def _count() -> int:
    return min(MOST, len(os.sched_getaffinity(0)) - 1, host_memory().free // ROOM)


def _is_small(path: Path) -> bool:
    return 0 < sum(file.stat().st_size for file in path.glob("*.safetensors")) < SMALL


def _likely(config: EngineConfig) -> Path:
    """A marker named after what is known before the model and the device are: this was compiled on some device."""
    options = [getattr(config, field) for field in ("model", "revision", "device", *DECIDE)]
    what = (programs_hash(), triton.__version__, options)
    return marker("likely-" + hashlib.sha256(repr(what).encode()).hexdigest()[:32])
