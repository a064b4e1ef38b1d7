"""The device, and what can be done on it."""

from __future__ import annotations

import jax

from anychip.plugin import Capabilities, EngineConfig, Memory, Platform, Runner
from anychip.runner import host_memory
from anychip_jax.runner import JaxRunner


class JaxPlatform(Platform):
    """One device of JAX's default backend."""

    def __init__(self, index: int) -> None:
        self.device = jax.local_devices()[index]

    @property
    def capabilities(self) -> Capabilities:
        """A step may be submitted before the last one's tokens are read: they stay on the device."""
        return Capabilities(dtypes=("float32", "bfloat16"), steps_in_flight=2, token_masks=True)

    def memory(self) -> Memory:
        """What JAX's allocator has left; a device without one lives in the host's memory."""
        stats = self.device.memory_stats()
        return Memory(stats["bytes_limit"] - stats["bytes_in_use"], stats["bytes_limit"]) if stats else host_memory()

    def runner(self, config: EngineConfig) -> Runner:
        """This package's runner."""
        return JaxRunner(self, config)
