"""The AMD platform of anychip. Importing it needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anychip.plugin import API_VERSION, EngineConfig, Platform, PlatformSpec, hookimpl
from anychip_rocm.probe import probe


def _open(devices: Sequence[int], config: EngineConfig) -> Platform:
    from anychip.triton.ahead.process import start_early

    early = start_early("hip", config)  # before torch is imported, which takes as long there as here
    from anychip_rocm.platform import open_gpu

    return open_gpu(devices[0], config.quantization, early)


@hookimpl
def register_platforms(register: Callable[[PlatformSpec], None]) -> None:
    """AMD GPUs, numbered as HIP does."""
    register(PlatformSpec(name="rocm", probe=probe, open=_open, api_version=API_VERSION))
