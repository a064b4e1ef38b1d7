"""The hook of the built-in platform; importing it needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anychip.config import EngineConfig
from anychip.plugin.contract import API_VERSION, Platform
from anychip.plugin.hookspec import hookimpl
from anychip.plugin.spec import PlatformSpec, Probe


def _open(devices: Sequence[int], config: EngineConfig) -> Platform:
    from anychip.reference.platform import ReferencePlatform

    return ReferencePlatform()


@hookimpl
def register_platforms(register: Callable[[PlatformSpec], None]) -> None:
    """Plain torch operators, on whatever torch's default device is; any other platform scores more."""
    register(PlatformSpec(name="reference", probe=lambda: Probe(1), open=_open, api_version=API_VERSION))
