"""A driver for Triton of a GPU that is not there: kernels are compiled for it as they would be, launches do nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.driver import driver

MOST_THREADS = 1024
"""Threads that a program may have at most, which Triton asks of a driver."""


@dataclass(frozen=True, slots=True)
class Target:
    """A chip as Triton's compiler names it."""

    backend: str
    """Such as cuda or hip."""
    architecture: int | str
    """Such as 90 or gfx942."""
    lanes: int
    """Threads of a warp."""
    shared_memory: int
    """Bytes that a program may take; one that needs more is refused."""


def current_target(shared_memory: int) -> Target:
    """The target of the GPU in use, whose programs may take `shared_memory` bytes."""
    found = driver.active.get_current_target()
    return Target(found.backend, found.arch, found.warp_size, shared_memory)


def use_absent(target: Target, launcher: Callable[[Any, Any], Any] | None = None) -> None:
    """From here on all launches of this process compile for `target` and launch nothing.

    `launcher` stands in for Triton's: called with a program's source and metadata, it returns what is called with the
    arguments of each launch.
    """
    driver.set_active(AbsentDriver(target, launcher or _Launcher))
    with contextlib.suppress(ImportError):  # Triton for Intel's GPUs asks a device each time, the others once a process
        from triton.compiler.compiler import max_shared_mem

        max_shared_mem.cache_clear()


class _Loader:
    """What Triton asks of a driver to load a kernel."""

    def __init__(self, shared_memory: int) -> None:
        self.shared_memory = shared_memory

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": self.shared_memory, "multiprocessor_count": 1, "warpSize": 32}

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        return 1, 1, 0, 0, MOST_THREADS

    def unload_module(self, module: int) -> None:
        return


class _Launcher:
    """Launches nothing."""

    def __init__(self, source: Any, metadata: Any) -> None:
        return

    def __call__(self, *arguments: Any) -> None:
        return


class AbsentDriver(DriverBase):  # type: ignore[misc]  # Triton has no types
    """Triton's driver of one target."""

    def __init__(self, target: Target, launcher: Callable[[Any, Any], Any]) -> None:
        self.launcher_cls = launcher
        self.target = GPUTarget(target.backend, target.architecture, target.lanes)
        self.utils = _Loader(target.shared_memory)

    @classmethod
    def is_active(cls) -> bool:
        """Whether it can be used: always."""
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Nothing is made of the name."""
        return ty

    def get_current_target(self) -> GPUTarget:
        """What is compiled for."""
        return self.target

    def get_current_device(self) -> int:
        """The only one."""
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one."""

    def get_current_stream(self, device: int = 0) -> int:
        """No stream."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """Tensors without memory do for what launches nothing."""
        return torch.device("meta")

    def get_benchmarker(self) -> Any:
        """Nothing can be measured."""
        raise AssertionError("nothing is measured on a GPU that is not there")
