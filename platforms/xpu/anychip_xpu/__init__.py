"""The Intel platforms of anychip. Importing it needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anychip.plugin import API_VERSION, EngineConfig, Platform, PlatformSpec, hookimpl
from anychip_xpu.ipex import probe as probe_ipex
from anychip_xpu.probe import probe


def _open(devices: Sequence[int], config: EngineConfig) -> Platform:
    from anychip_xpu.platform import open_gpu

    return open_gpu(devices[0])


def _open_ipex(devices: Sequence[int], config: EngineConfig) -> Platform:
    from anychip_xpu.ipex_platform import IpexPlatform

    return IpexPlatform()


@hookimpl
def register_platforms(register: Callable[[PlatformSpec], None]) -> None:
    """Intel GPUs, numbered as Level Zero does; and processors through Intel's extension of torch 2.8, by name only."""
    register(PlatformSpec(name="xpu", probe=probe, open=_open, api_version=API_VERSION))
    register(PlatformSpec(name="ipex", probe=probe_ipex, open=_open_ipex, api_version=API_VERSION))
