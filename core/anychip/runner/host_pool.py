"""Torch's pool of threads, sized and bound once for an engine."""

from __future__ import annotations

import os

import torch

from anychip.config import EngineConfig
from anychip.runner.host_threads import HostThreads, bind_threads, choose_threads, own_threads

WORK = 1 << 20
"""Elements of a sum that takes all threads."""


def start_pool(config: EngineConfig) -> HostThreads:
    """Make torch compute on the host as `config` says. Raises `UserError` for processors we may not use.

    Under OMP_PROC_BIND, OpenMP has bound this thread to one core when it was loaded; its own count is of all of them.
    """
    allowed, count = os.sched_getaffinity(0), config.threads
    if len(allowed) == 1 and config.threads_bind == "auto":
        count = count or max(1, torch.get_num_threads())
    threads = choose_threads(config.threads_bind, count, allowed)
    torch.set_num_threads(len(threads.processors))
    if threads.bound:
        before = own_threads()
        torch.ones(WORK).add_(1)
        bind_threads(threads, own_threads() - before)
    return threads
