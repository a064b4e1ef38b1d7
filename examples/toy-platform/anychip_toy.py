"""A platform in forty lines: a torch device named `toy`, served through the reference ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from anychip.plugin import EngineConfig, Memory, Platform, PlatformSpec, Probe, hookimpl
from anychip.runner import TorchPlatform


class ToyPlatform(TorchPlatform):
    """The host's processor, pretending to be a chip with 2 GiB of memory of its own."""

    TOTAL = 2 * 2**30

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return torch.device("cpu")

    def memory(self) -> Memory:
        """Free and total bytes: what this process has not taken yet of the toy's memory."""
        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[1]) * 4096
        return Memory(max(self.TOTAL - taken, 0), self.TOTAL)

    def synchronize(self) -> None:
        """Wait for the device. This one has always finished."""


def open_toy(devices: Sequence[int], config: EngineConfig) -> Platform:
    """Open the device of one rank."""
    return ToyPlatform()


@hookimpl
def register_platforms(register: Callable[[PlatformSpec], None]) -> None:
    """Offer the toy, below every real platform: only `--device toy` runs on it."""
    register(PlatformSpec(name="toy", probe=lambda: Probe(-1, "a toy"), open=open_toy, api_version=1))
