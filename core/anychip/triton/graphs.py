"""Recording what a step launches as a graph of the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch

from anychip.runner.bucket import Replay
from anychip.runner.inputs import Computed

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class GraphKind:
    """Torch's class of graphs for one type of device."""

    new: Callable[[], Any]
    """Makes an empty graph, such as torch.cuda.CUDAGraph."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of its `capture_begin`."""


def _take(size: int, device: torch.device) -> None:
    """Allocate `size` bytes and free them at once; launch something, as a graph must not be empty."""
    torch.empty(max(1, size), dtype=torch.uint8, device=device)[:1].zero_()


class Graphs:
    """Captures steps as graphs. They never run at the same time, so they share one pool of `size` bytes of memory.

    The pool is allocated whole at the start: as it grew with each graph, pieces left by small steps would not do for
    larger ones.
    """

    def __init__(self, device: torch.device, kind: GraphKind, size: int) -> None:
        self._kind = kind
        self._module = torch.get_device_module(device)
        self._pool = self._module.graph_pool_handle()
        self._stream = self._module.Stream(device)
        self._first, _ = self._record(partial(_take, size, device))

    def __call__(self, step: Replay) -> Replay:
        """See `anychip.runner.bucket.Capture`. While capturing nothing is computed."""
        graph, computed = self._record(step)

        def replay() -> Computed:
            graph.replay()
            return computed

        return replay

    def _record(self, function: Callable[[], Made]) -> tuple[Any, Made]:
        """The graph of all that `function` launches, and what it returned."""
        graph = self._kind.new()
        with self._module.stream(self._stream):
            graph.capture_begin(self._pool, **self._kind.options)
            try:
                made = function()
            finally:
                graph.capture_end()
        return graph, made
