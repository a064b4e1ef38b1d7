"""The NVIDIA platform of anychip. Importing it needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anychip.plugin import API_VERSION, EngineConfig, Platform, PlatformSpec, hookimpl
from anychip_cuda.probe import probe


def _open(devices: Sequence[int], config: EngineConfig) -> Platform:
    from anychip.triton.ahead.process import start_early

    early = start_early("cuda", config)  # before torch is imported, which takes as long there as here
    from anychip_cuda.platform import CudaPlatform

    return CudaPlatform(devices[0], early)


@hookimpl
def register_platforms(register: Callable[[PlatformSpec], None]) -> None:
    """NVIDIA GPUs, numbered as CUDA does."""
    register(PlatformSpec(name="cuda", probe=probe, open=_open, api_version=API_VERSION))
