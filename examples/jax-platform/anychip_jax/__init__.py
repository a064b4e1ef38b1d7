"""An example platform: JAX through the narrow door, with a runner of its own and no kernel of torch's."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence

from anychip.plugin import EngineConfig, Platform, PlatformSpec, Probe, hookimpl


def probe() -> Probe:
    """Below every real platform: it runs only when asked for. JAX is not loaded for that, as it starts threads."""
    found = importlib.util.find_spec("jax") is not None
    return Probe(-1, "an example") if found else Probe.cannot("JAX is not installed", "pip install jax")


def open_jax(devices: Sequence[int], config: EngineConfig) -> Platform:
    """Open the device of one rank."""
    from anychip_jax.platform import JaxPlatform

    return JaxPlatform(devices[0])


@hookimpl
def register_platforms(register: Callable[[PlatformSpec], None]) -> None:
    """Offer the platform."""
    register(PlatformSpec(name="jax", probe=probe, open=open_jax, api_version=1))
