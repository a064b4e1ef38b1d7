"""The hook of the null platform; importing it needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anychip.config import EngineConfig
from anychip.plugin.contract import API_VERSION, Platform
from anychip.plugin.hookspec import hookimpl
from anychip.plugin.spec import PlatformSpec, Probe


def _open(devices: Sequence[int], config: EngineConfig) -> Platform:
    from anychip.testing.null import NullPlatform

    return NullPlatform()


@hookimpl
def register_platforms(register: Callable[[PlatformSpec], None]) -> None:
    """A device that computes nothing, for measuring the host; `auto` never takes it."""
    register(
        PlatformSpec(
            name="null",
            probe=lambda: Probe(-1, "computes nothing"),
            open=_open,
            api_version=API_VERSION,
        )
    )
