"""TorchTPU: a step is traced by torch.compile and compiled as one graph. Untested: it has no device without a TPU.

What is used of it is `torch.tpu.synchronize`, `get_device_name`, `get_device_properties`, its count of programs that
were compiled, and the backend `tpu` of torch.compile.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
from torch._dynamo import config as dynamo

from anychip.plugin.contract import Memory
from anychip.runner.compiler import Outputs, Program

MOST_PROGRAMS = 1024
"""Programs of one function that torch.compile keeps apart; the shapes of a plan are fewer."""


class TorchTpu:
    """A TPU core by its number."""

    def __init__(self, index: int) -> None:
        import torch_tpu  # noqa: F401 (registers the device, if importing torch has not done so)

        self._tpu: Any = torch.get_device_module("tpu")
        self._device = torch.device("tpu", index)
        self._tpu.set_device(index)
        self._made = 0
        self._ops: dict[Callable[..., Any], Callable[..., Any]] = {}

    @property
    def device(self) -> torch.device:
        """See `Compiler.device`."""
        return self._device

    @property
    def description(self) -> str:
        """See `Runtime.description`."""
        return f"torch-tpu {version('torch-tpu')}, {self._tpu.get_device_name(self._device.index)}"

    @property
    def is_tpu(self) -> bool:
        """See `Runtime.is_tpu`."""
        return True

    def compile(self, program: Program) -> Program:
        """See `Compiler.compile`."""
        compiled = compiled_by("tpu", program)

        def run(packed: torch.Tensor) -> Outputs:
            before = self._tpu._get_cache_misses()
            outputs = compiled(packed)
            self._made += self._tpu._get_cache_misses() - before
            return outputs

        return run

    def synchronize(self) -> None:
        """See `Compiler.synchronize`."""
        self._tpu.synchronize(self._device.index)

    def compilations(self) -> int:
        """See `Compiler.compilations`."""
        return self._made

    def memory(self) -> Memory:
        """See `Runtime.memory`. The library does not say what is in use: tensors are counted, but nothing else."""
        total = int(self._tpu.get_device_properties(self._device.index).total_memory)
        return Memory(max(0, total - held_bytes(self._device)), total)

    def call_jax(self, function: Callable[..., Any], *tensors: torch.Tensor) -> torch.Tensor:
        """See `Runtime.call_jax`."""
        if function not in self._ops:
            # torch.library keeps operators of a process by name.
            self._ops[function] = self._tpu.pallas.jax_op(f"anychip_tpu::jax{id(function)}", function)
        result: torch.Tensor = self._ops[function](*tensors)
        return result

    def host_ops(self) -> tuple[str, ...]:
        """See `Runtime.host_ops`: a graph that cannot be compiled whole is an error here."""
        return ()


def compiled_by(backend: Any, program: Program) -> Program:
    """A program as one graph of torch.compile, for the shape it is first called with."""
    compiled = torch.compile(program, backend=backend, fullgraph=True, dynamic=False)

    def run(packed: torch.Tensor) -> Outputs:
        with dynamo.patch(recompile_limit=MOST_PROGRAMS, accumulated_recompile_limit=MOST_PROGRAMS):
            outputs: Outputs = compiled(packed)
        return outputs

    return run


def held_bytes(device: torch.device) -> int:
    """Bytes of all tensors on a device, memory that several share counted once."""
    storages = {}
    for candidate in gc.get_objects():
        if type(candidate) in (torch.Tensor, torch.nn.Parameter) and candidate.device == device:
            storage = candidate.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())
