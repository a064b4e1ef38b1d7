"""Memory for weights, apart from the heap, and in huge pages: reading it misses fewer address translations."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
import weakref

import torch

HUGE = 2 << 20
"""Bytes of a huge page."""
CHUNK = 32 << 20
"""Bytes that are reserved at once for what is smaller; the C library gives larger things a mapping of their own too."""
LINE = 64
"""Bytes to which each tensor is aligned."""
ADVISE, COLLAPSE = 14, 25
"""Linux' MADV_HUGEPAGE, and from 6.1 on MADV_COLLAPSE: make a huge page of what lies here, now."""
PATIENCE = 1.0
"""Seconds from the end of a start until pages are joined."""
REST = 40
"""Times as long as joining a page took that the next one waits, while other threads of the process compute."""

Mapping = tuple[weakref.ref[object], int, int]
"""What must live for it, where it begins, and its bytes."""


class Pages:
    """Hands out memory of mappings, each given back once nothing in it is used any more.

    On the heap, weights would lie between what was freed while they were made, and hold its pages.
    """

    def __init__(self) -> None:
        self._chunk = torch.empty(0, dtype=torch.uint8)
        self._mappings: list[Mapping] = []

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a contiguous tensor; a large one itself, as it lies apart already."""
        if tensor.nbytes > CHUNK:
            self._mappings.append((weakref.ref(tensor), tensor.data_ptr(), tensor.nbytes))
            return tensor
        kept = self.take(tensor.nbytes).view(tensor.dtype).view(tensor.shape)
        return kept.copy_(tensor)

    def take(self, size: int) -> torch.Tensor:
        """[size] bytes that begin at a cache line, zero, and no memory until they are written."""
        padded = -(-size // LINE) * LINE
        if padded > CHUNK:
            return self._mapped(padded)[:size]
        if padded > self._chunk.numel():
            self._chunk = self._mapped(CHUNK)
        taken, self._chunk = self._chunk[:size], self._chunk[padded:]
        return taken

    def join_later(self) -> None:
        """Make huge pages of what was handed out so far, in the background: this may take as long as loading did."""
        mappings, self._mappings = self._mappings, []
        if mappings:
            timer = threading.Timer(PATIENCE, _join, (mappings,))
            timer.daemon = True
            timer.start()

    def _mapped(self, size: int) -> torch.Tensor:
        """[size] bytes of a mapping of their own, that begin where a huge page can."""
        mapping = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        whole = torch.frombuffer(mapping, dtype=torch.uint8)  # holds the mapping
        begin = -whole.data_ptr() % HUGE
        self._mappings.append((weakref.ref(mapping), whole.data_ptr() + begin, size))
        return whole[begin : begin + size]


def _join(mappings: list[Mapping]) -> None:
    """Ask for each huge page alone, in a thread that yields to all others; older systems do it in their own time."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for reference, begin, size in mappings:
        for address in range(-(-begin // HUGE) * HUGE, begin + size - HUGE + 1, HUGE):
            started, others = time.perf_counter(), _time_of_others()
            holder = reference()
            if holder is None:
                break
            for advice in (ADVISE, COLLAPSE):
                libc.madvise(address, HUGE, advice)  # a wish: it may fail
            del holder  # so that no more than one page waits for us
            took = time.perf_counter() - started
            if _time_of_others() - others > took / 2:
                time.sleep(REST * took)


def _time_of_others() -> float:
    """Seconds of processor time of this process's other threads."""
    return time.process_time() - time.thread_time()
