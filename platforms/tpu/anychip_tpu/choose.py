"""Which runtime to use: as told by `--runtime`, or the first one installed where there is a TPU."""

from __future__ import annotations

from anychip.config import EngineConfig
from anychip.errors import UserError
from anychip_tpu.probe import ON_HOST, RUNTIMES, look
from anychip_tpu.runtime import Runtime

NAMES = (*RUNTIMES, ON_HOST)
KERNELS = ("auto", "pallas", "none")
"""What `--native-kernels` can be: `auto` takes Pallas on a TPU, `pallas` anywhere, interpreted where there is none."""


def kernel_choice(config: EngineConfig) -> str:
    """Whether attention is to be our Pallas kernel. Raises `UserError` for an unknown name."""
    if config.native_kernels not in KERNELS:
        raise UserError(
            f"The tpu platform has no kernels {config.native_kernels!r}.",
            f"--native-kernels can be: {', '.join(KERNELS)}.",
        )
    return config.native_kernels


def open_runtime(index: int, config: EngineConfig) -> Runtime:
    """The device of this number. Raises `UserError` where its runtime or the TPU is missing."""
    machine = look()
    name = machine.runtimes[0] if config.runtime == "auto" and machine.runtimes else config.runtime
    if name not in NAMES:
        raise UserError(f"The tpu platform has no runtime {name!r}.", f"--runtime can be: {', '.join(NAMES)}.")
    library = "torch-xla" if name == ON_HOST else name
    if library not in machine.runtimes:
        raise UserError(f"{library} is not installed.", f"pip install 'anychip-tpu[{library}]'")
    if name != ON_HOST and not machine.chips:
        raise UserError(
            "No TPU was found on this machine.",
            f"--runtime {ON_HOST} runs on XLA's processor device, for tests; or choose another --device.",
        )
    if library == "torch-tpu":
        from anychip_tpu.torch_tpu import TorchTpu

        return TorchTpu(index)
    from anychip_tpu.torch_xla import TorchXla

    return TorchXla(index, "CPU" if name == ON_HOST else "TPU", config.cache_path / "programs")
