"""What a device has to bring that compiles a program for each shape before it can run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

Outputs = tuple[torch.Tensor, ...]
Program = Callable[[torch.Tensor], Outputs]
"""From one tensor on the device to what it leaves there; what it writes to in place, such as caches, is kept."""


class Compiler(Protocol):
    """A library that compiles what a function does on the device."""

    @property
    def device(self) -> torch.device:
        """Where its tensors live."""

    def compile(self, program: Program) -> Program:
        """The same program as one executable a shape, made when it is first called; it waits for nothing."""

    def synchronize(self) -> None:
        """Wait until the device has done all that was submitted."""

    def compilations(self) -> int:
        """Executables that this object had to have made so far."""


class CompiledWhileServingError(RuntimeError):
    """A step made the device compile after the warm-up, which holds up everyone: the list of shapes has a hole."""
