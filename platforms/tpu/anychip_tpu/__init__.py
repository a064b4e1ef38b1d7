"""The TPU platform of anychip. Importing it needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anychip.plugin import API_VERSION, EngineConfig, Platform, PlatformSpec, hookimpl
from anychip_tpu.probe import probe


def _open(devices: Sequence[int], config: EngineConfig) -> Platform:
    from anychip_tpu.choose import kernel_choice, open_runtime
    from anychip_tpu.platform import TpuPlatform

    return TpuPlatform(open_runtime(devices[0], config), kernel_choice(config))


@hookimpl
def register_platforms(register: Callable[[PlatformSpec], None]) -> None:
    """Google's TPUs, numbered as the runtime does."""
    register(PlatformSpec(name="tpu", probe=probe, open=_open, api_version=API_VERSION))
