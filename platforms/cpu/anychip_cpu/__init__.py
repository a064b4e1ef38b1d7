"""The CPU platform of anychip. Importing it needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anychip.plugin.contract import Platform, PlatformSpec, Probe
from anychip.plugin.hookspec import hookimpl


def _open(devices: Sequence[int]) -> Platform:
    from anychip.config import make_config
    from anychip_cpu.platform import CpuPlatform

    platform = CpuPlatform()
    platform.look_for_library(make_config({}), build=False)
    return platform


@hookimpl
def register_platforms(register: Callable[[PlatformSpec], None]) -> None:
    """The host's processors: one device, whichever index; any accelerator scores more."""
    register(PlatformSpec(name="cpu", probe=lambda: Probe(10), open=_open, extra="anychip[cpu]"))
