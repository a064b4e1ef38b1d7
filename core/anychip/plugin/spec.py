"""What a plugin registers of a platform, before any device is opened. Part of the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anychip.config import EngineConfig
    from anychip.plugin.contract import Platform


@dataclass(frozen=True, slots=True)
class Probe:
    """What a platform says of this machine. Score 0: it cannot run here, and `reason` says why. No side effects.

    `auto` takes the highest positive score: 1 is the reference, 10 a host's processors, 100 an accelerator. One below 0
    runs only when it is asked for by name.
    """

    score: int
    """How well it runs here, as above."""
    reason: str = ""
    """Why it cannot run here, or runs less well than it could."""
    devices: int = 1
    """How many it finds."""
    remedy: str = ""
    """What the user can install or change where it cannot run, as a sentence."""

    @classmethod
    def cannot(cls, reason: str, remedy: str) -> Probe:
        """A platform that cannot run here: why, and what to do about it."""
        return cls(0, reason, 0, remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformSpec:
    """What a plugin registers: a name, a probe without side effects, and how to open it."""

    name: str
    """What `--device` takes."""
    probe: Callable[[], Probe]
    """Called in any process, at any time."""
    open: Callable[[Sequence[int], EngineConfig], Platform]
    """Called with device indices, and the config before a platform has filled in what was left open."""
    api_version: int
    """Version of the contract it was made for, written as a number: `API_VERSION` is that of the anychip that runs."""
    build_kernels: Callable[[EngineConfig], Iterable[str]] | None = None
    """Compile kernels ahead of their first use, a line for each; None where there is nothing to compile."""
