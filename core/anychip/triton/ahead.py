"""Compiling a model's kernels while its weights are loaded, in processes that share Triton's cache on the disk.

Each process rehearses all steps and compiles what no other has claimed. Nothing depends on them: what they leave out,
or a failure, is compiled where it is launched.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton

from anychip.config import EngineConfig
from anychip.log import logger
from anychip.plugin.contract import Capabilities, ModelSource
from anychip.runner.host_memory import host_memory
from anychip.triton.absent import Target, use_absent
from anychip.triton.chip import Chip
from anychip.triton.rehearsal import KernelsOf, Rehearsal, rehearse

MOST = 12
"""Processes at once: there are few kernels a start needs."""
ROOM = 2 << 30
"""Bytes of the host's memory that have to be free for each; one takes less than half."""
PATIENCE = 60.0
"""Seconds after which a start goes on without them."""
START = b"start\n"
"""What a process says once everything a start needs is compiled or claimed."""
DECIDE = (
    *("task", "pooling", "dtype", "quantization", "quantization_group_size", "quantization_symmetric"),
    *("block_size", "kv_cache_dtype", "max_num_seqs", "max_num_batched_tokens"),
)
"""Options that decide which kernels there are."""
SMALL = 256 << 20
"""Bytes of weights that are loaded before a helper has imported torch."""
BACKENDS = ("cuda", "hip")
"""Triton's names of those that compile without a device."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be compiled."""

    target: Target
    chip: Chip
    capabilities: Capabilities
    kernels_of: KernelsOf
    captures: bool
    config: EngineConfig
    source: ModelSource

    @property
    def name(self) -> str:
        """The same for the same kernels, of the same Triton."""
        programs = sorted(Path(__file__).with_name("programs").glob("*.py"))
        ours = hashlib.sha256(b"".join(path.read_bytes() for path in programs)).hexdigest()
        options = [getattr(self.config, field) for field in DECIDE]
        what = (ours, triton.__version__, torch.__version__, self.target, self.chip, options, self.source.config)
        return hashlib.sha256(repr(what).encode()).hexdigest()[:32]

    @property
    def marker(self) -> Path:
        """A file that is there once all of it was compiled into the cache it lies in."""
        return Path(triton.knobs.cache.dir) / "anychip" / self.name


class Helpers:
    """Processes at work. `wait` before the first launch, `close` at the end."""

    def __init__(self, work: Work, count: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="anychip-compile-")
        self._began = time.monotonic()
        self._errors = Path(self._folder.name) / "errors"
        command = [sys.executable, "-m", "anychip.triton.ahead", self._folder.name]
        with self._errors.open("ab") as errors:
            self._processes = [
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
                for _ in range(count)
            ]
        for number, process in enumerate(self._processes):
            assert process.stdin is not None, "asked for above"
            pickle.dump((work, number == 0), process.stdin)
            process.stdin.close()

    def wait(self, patience: float = PATIENCE) -> int:
        """Until all have compiled what a start needs, or ended; how many got that far."""
        waiting = {process.stdout.fileno() for process in self._processes if process.stdout is not None}
        deadline, done = self._began + patience, 0
        while waiting and (left := deadline - time.monotonic()) > 0:
            for stream in select.select([*waiting], [], [], left)[0]:
                waiting.remove(stream)
                done += os.read(stream, len(START)) == START
        if done < len(self._processes):
            last = self._errors.read_text(errors="replace").strip().rpartition("\n")[2] or "they take too long"
            logger.info("kernels are compiled as they are needed, not all ahead: %s", last)
        return done

    def close(self) -> None:
        """End them."""
        for process in self._processes:
            process.kill()
            process.wait()
            assert process.stdout is not None, "asked for above"
            process.stdout.close()
        self._processes = []
        self._folder.cleanup()


def start_helpers(work: Work) -> Helpers | None:
    """Processes for all processors but one, as memory allows; None where there is nothing to gain."""
    count = min(MOST, len(os.sched_getaffinity(0)) - 1, host_memory().free // ROOM)
    stored = sum(path.stat().st_size for path in work.source.path.glob("*.safetensors"))
    small = 0 < stored < SMALL
    if small or count < 1 or work.target.backend not in BACKENDS or work.marker.exists():
        return None
    return Helpers(work, count)


def compile_claimed(work: Work, claims: Path) -> Iterator[str]:
    """Rehearse in this process, compiling what no other process has claimed in the folder `claims`."""
    use_absent(work.target)
    triton.knobs.runtime.jit_cache_hook = _Claims(claims)
    rehearsal = Rehearsal(work.chip, work.capabilities, work.kernels_of, work.captures)
    yield from rehearse(rehearsal, work.config, work.source)


@dataclass(frozen=True, slots=True)
class _Claims:
    """Triton's hook before it compiles: whether to leave it out."""

    folder: Path

    def __call__(self, *, key: Any, fn: Any, **_: Any) -> bool:
        name = hashlib.sha256(f"{fn.module}.{fn.name} {key}".encode()).hexdigest()
        try:
            os.close(os.open(self.folder / name, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return True
        return False


def main() -> None:
    """One process: work comes on standard input."""
    work, marks = pickle.load(sys.stdin.buffer)
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    for word in compile_claimed(work, Path(sys.argv[1])):
        if word == "start":
            out.write(START)
    if marks:
        work.marker.parent.mkdir(parents=True, exist_ok=True)
        work.marker.touch()


if __name__ == "__main__":
    main()
