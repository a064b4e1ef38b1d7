"""The process that compiles ahead: `python -m anychip.triton.ahead.compiling BACKEND COUNT`.

Its standard input names a file that holds its work. It has one thread and compiles nothing itself, so that it may fork:
each kernel has a process, which ends with it.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from triton import knobs
from triton.runtime.cache import triton_key

from anychip.engine.phases import Phases
from anychip.triton.ahead.forks import Forks
from anychip.triton.ahead.launchers import build_launcher, build_loader
from anychip.triton.ahead.process import START, mark

if TYPE_CHECKING:
    from anychip.triton.ahead.work import Work

PATIENCE = 60.0
"""Seconds that it waits to be told what to compile."""
POLITE = 10
"""Niceness of what is compiled later, beside serving."""


class OwnProcess:
    """Triton's hook before it compiles a kernel: forks a process that does, and skips it here.

    Raises `SystemExit` when standard input is closed: the process that asked is gone.
    """

    def __init__(self, work: Work, forks: Forks) -> None:
        self._work, self._forks = work, forks
        self._seen: set[tuple[str, str, str]] = set()

    def __call__(self, *, key: Any, fn: Any, **_: Any) -> bool:
        """Whether Triton is to skip it: True here, False in the fork."""
        from anychip.triton.ahead.absent import use_absent

        kernel = (fn.module, fn.name, str(key))
        if kernel in self._seen:
            return True
        self._seen.add(kernel)
        if _can_read(0):
            raise SystemExit("nobody needs it any more")  # standard input was closed
        if not self._forks.fork():
            return True
        use_absent(self._work.target, LastLaunch)
        return False


class LastLaunch:
    """In place of Triton's launcher in a fork: compiles the real launcher too, and ends the process at the launch."""

    def __init__(self, source: Any, metadata: Any) -> None:
        build_launcher(source, metadata)

    def __call__(self, *arguments: Any) -> None:
        """End the process; nothing is launched."""
        os._exit(0)


def launch_all(work: Work, forks: Forks) -> Iterator[str]:
    """Rehearse the model's steps, which compiles all kernels in forks; yields the name of each step, see `rehearse`."""
    from triton.compiler.compiler import make_backend
    from triton.runtime.driver import driver

    from anychip.triton.ahead.absent import use_absent
    from anychip.triton.ahead.outlines import Outlines
    from anychip.triton.ahead.rehearsal import Rehearsal, rehearse

    use_absent(work.target)
    make_backend(driver.active.get_current_target()).hash()  # asks for the assembler's version, once for all of them
    knobs.runtime.jit_cache_hook = OwnProcess(work, forks)
    with Outlines():  # type: ignore[no-untyped-call]  # torch has no type for it
        yield from rehearse(Rehearsal(work.platform), work.config, work.source)


def prepare(backend: str) -> None:
    """Do all that is the same for every model before being told which: imports, Triton's own key, its C modules."""
    gc.disable()  # importing makes objects by the hundred thousand, of which none is garbage
    if Forks(1).fork():
        build_loader(backend)
        os._exit(0)
    hashing = Thread(target=triton_key)
    hashing.start()
    import anychip.triton.ahead.outlines
    import anychip.triton.ahead.work  # noqa: F401 (and with it torch, and what rehearses)
    from anychip.triton.keys import settle_keys

    settle_keys()
    hashing.join()
    gc.freeze()


def run(backend: str, count: int) -> None:
    """Compile what standard input asks for, if anything, `count` kernels at once; make the markers if all succeed."""
    phases, forks = Phases(), Forks(count)
    prepare(backend)
    phases.end("imports")
    if not _can_read(PATIENCE):
        return
    path = sys.stdin.readline().strip()
    if not path:
        return
    work, likely = pickle.loads(Path(path).read_bytes())
    phases.end("nothing to do")
    for word in launch_all(work, forks):
        if word == "start":
            phases.end("rehearsal")
            forks.finish()
            phases.end("kernels")
            os.write(1, START + f"{forks.done} of {forks.begun} kernels in {phases}\n".encode())
            os.nice(POLITE)
    forks.finish()
    if forks.done == forks.begun:
        mark(work.marker)
        if likely is not None:
            mark(likely)


def _can_read(patience: float) -> bool:
    return bool(select.select([sys.stdin], [], [], patience)[0])


def main() -> None:
    """Run, and end without unwinding on any error: a fork must not go on as its parent would."""
    try:
        run(sys.argv[1], int(sys.argv[2]))
    except BaseException:  # noqa: BLE001 (a fork must not go on where its parent would)
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
