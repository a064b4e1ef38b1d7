"""Recording what a step launches as a graph of the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from anychip.runner.bucket import Replay
from anychip.runner.inputs import Computed


@dataclass(frozen=True, slots=True)
class GraphKind:
    """Torch's class of graphs for one type of device, and what its `capture_begin` is told."""

    new: Callable[[], Any]
    options: Mapping[str, Any] = field(default_factory=dict)


class Graphs:
    """Captures steps that never run at the same time, so that they share one pool of memory."""

    def __init__(self, device: torch.device, kind: GraphKind) -> None:
        self._kind = kind
        self._module = torch.get_device_module(device)
        self._pool = self._module.graph_pool_handle()
        self._stream = self._module.Stream(device)

    def __call__(self, step: Replay) -> Replay:
        """See `anychip.runner.bucket.Capture`. Nothing runs while capturing, and nothing is waited for."""
        graph = self._kind.new()
        with self._module.stream(self._stream):
            graph.capture_begin(self._pool, **self._kind.options)
            try:
                computed = step()
            finally:
                graph.capture_end()

        def replay() -> Computed:
            graph.replay()
            return computed

        return replay
