"""torch-xla: operators are recorded as they are called, and the whole record is compiled and run at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch_xla
from torch_xla import runtime
from torch_xla.backends import set_mat_mul_precision
from torch_xla.core import xla_builder, xla_model
from torch_xla.debug import metrics

from anychip.plugin.contract import Memory
from anychip.runner.compiler import Outputs, Program
from anychip.runner.host_memory import host_memory

NO_MEMORY = "RESOURCE_EXHAUSTED"
READS_SCALARS = "aten::_local_scalar_dense"


class TorchXla:
    """A device of PJRT, by its type (`TPU` or `CPU`) and number."""

    def __init__(self, index: int, kind: str, cache: Path) -> None:
        runtime.set_device_type(kind)
        if kind != "CPU" and not torch_xla._XLAC._xla_computation_cache_is_initialized():
            # The processor's executables can be written and not read back.
            cache.mkdir(parents=True, exist_ok=True)
            runtime.initialize_cache(str(cache), readonly=False)
        self._kind = kind
        self._made = 0
        self._traced: dict[Any, Callable[..., Any]] = {}
        self._device: torch.device = torch_xla.device(index)
        if kind != "CPU":  # a matrix product of float32 is one, and not of bfloat16
            set_mat_mul_precision("highest")

    @property
    def device(self) -> torch.device:
        """See `Compiler.device`."""
        return self._device

    @property
    def description(self) -> str:
        """See `Runtime.description`."""
        return f"torch-xla {torch_xla.__version__}, PJRT's {self._kind}"

    @property
    def is_tpu(self) -> bool:
        """See `Runtime.is_tpu`."""
        return self._kind == "TPU"

    def compile(self, program: Program) -> Program:
        """See `Compiler.compile`. It is recorded anew each time, and the same record finds its executable again."""

        def run(packed: torch.Tensor) -> Outputs:
            before = _compilations()
            with out_of_memory(), torch_xla.compile(full_graph=True, name="step"):
                outputs = program(packed)
            self._made += _compilations() - before
            return outputs

        return run

    def synchronize(self) -> None:
        """See `Compiler.synchronize`."""
        with out_of_memory():
            torch_xla.sync(wait=True)
            xla_model.wait_device_ops()

    def compilations(self) -> int:
        """See `Compiler.compilations`."""
        return self._made

    def memory(self) -> Memory:
        """See `Runtime.memory`."""
        if not self.is_tpu:
            return host_memory()
        info = xla_model.get_memory_info(self._device)
        return Memory(max(0, info["bytes_limit"] - info["peak_bytes_used"]), info["bytes_limit"])

    def call_jax(self, function: Callable[..., Any], *tensors: torch.Tensor) -> torch.Tensor:
        """See `Runtime.call_jax`. JAX only traces: it never opens the device, which is this process's already."""
        key = function, tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors)
        if key not in self._traced:
            self._traced[key] = traced(function, tensors, self._kind.lower())
        result: torch.Tensor = self._traced[key](tensors)[0]
        return result

    def host_ops(self) -> tuple[str, ...]:
        """See `Runtime.host_ops`."""
        names = (name for name in metrics.counter_names() if name.startswith("aten::"))
        return tuple(sorted(name for name in names if name != READS_SCALARS))


def _compilations() -> int:
    """Of all devices and engines of this process."""
    timed = metrics.metric_data("CompileTime")
    return 0 if timed is None else int(timed[0])


def traced(function: Callable[..., Any], tensors: Sequence[torch.Tensor], platform: str) -> Callable[..., Any]:
    """A function of JAX's arrays as one of tensors of these shapes."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_use_shardy_partitioner", False)  # torch-xla cannot read what it writes
    shapes = (jax.ShapeDtypeStruct(tuple(tensor.shape), str(tensor.dtype)[6:]) for tensor in tensors)
    lowered = jax.jit(lambda *arrays: (function(*arrays),), keep_unused=True).trace(*shapes)
    module = lowered.lower(lowering_platforms=(platform,)).compiler_ir("hlo").as_serialized_hlo_module_proto()
    called: Callable[..., Any] = xla_builder.xla_computation_as_func(
        xla_builder.computation_from_module_proto("jax", module), "jax"
    )
    return called


@contextmanager
def out_of_memory() -> Iterator[None]:
    """Torch's own exception where the device's memory does not suffice."""
    try:
        yield
    except RuntimeError as error:
        if NO_MEMORY in str(error):
            raise torch.OutOfMemoryError(str(error)) from error
        raise
