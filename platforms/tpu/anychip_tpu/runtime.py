"""The seam between the platform and the library that reaches the TPU. Everything else here knows neither library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from anychip.plugin.contract import Memory
from anychip.runner.compiler import Compiler


class Runtime(Compiler, Protocol):
    """One device, through one library."""

    @property
    def description(self) -> str:
        """Library, version and kind of device, for the start-up log."""

    @property
    def is_tpu(self) -> bool:
        """Whether the device is a TPU, and not the host's processor."""

    def memory(self) -> Memory:
        """Free and total bytes of the device, what programs needed at their peak counted as taken."""

    def call_jax(self, function: Callable[..., Any], *tensors: torch.Tensor) -> torch.Tensor:
        """A function of JAX's arrays to one array, as a part of the program that calls it.

        Traced once for each shape; the same `function` has to be the same object.
        """

    def host_ops(self) -> tuple[str, ...]:
        """Operators that ran on the host so far because the library cannot compile them."""
