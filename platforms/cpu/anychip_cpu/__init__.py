"""The CPU platform of anychip. Importing it needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from anychip.config import EngineConfig
from anychip.plugin.contract import API_VERSION, Platform
from anychip.plugin.hookspec import hookimpl
from anychip.plugin.spec import PlatformSpec, Probe


def _open(devices: Sequence[int], config: EngineConfig) -> Platform:
    from anychip_cpu.native.library import open_library
    from anychip_cpu.platform import CpuPlatform

    return CpuPlatform(open_library(config.cache_path / "native", config.native_kernels))


def _build_kernels(config: EngineConfig) -> Iterator[str]:
    from anychip_cpu.native.build import build_chosen

    return build_chosen(config.cache_path / "native", config.native_kernels)


@hookimpl
def register_platforms(register: Callable[[PlatformSpec], None]) -> None:
    """The host's processors: one device, whichever index; any accelerator scores more."""
    register(
        PlatformSpec(
            name="cpu",
            probe=lambda: Probe(10),
            open=_open,
            build_kernels=_build_kernels,
            api_version=API_VERSION,
        )
    )
