"""Recording what a step launches as a CUDA graph."""

from __future__ import annotations

import torch

from anychip.runner.bucket import Replay
from anychip.runner.inputs import Computed


class Graphs:
    """Captures steps that never run at the same time, so that they share one pool of memory."""

    def __init__(self, device: torch.device) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)

    def __call__(self, step: Replay) -> Replay:
        """See `anychip.runner.bucket.Capture`. Nothing runs while capturing, and nothing is waited for."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            # Steps under way elsewhere in the process are none of this capture's business.
            graph.capture_begin(self._pool, capture_error_mode="thread_local")
            try:
                computed = step()
            finally:
                graph.capture_end()

        def replay() -> Computed:
            graph.replay()
            return computed

        return replay
