"""What a helper is told to compile: a model, on a device, with some options."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
import triton

from anychip.config import EngineConfig
from anychip.plugin.contract import ModelSource
from anychip.triton.ahead.absent import Target
from anychip.triton.ahead.process import DECIDE, marker, programs_hash
from anychip.triton.ahead.rehearsal import Rehearsed


@dataclass(frozen=True, slots=True)
class Work:
    """All on which it depends which kernels are compiled. Picklable."""

    target: Target
    platform: Rehearsed
    config: EngineConfig
    source: ModelSource

    @property
    def name(self) -> str:
        """A hash of all of it, of our programs, and of the versions of Triton and torch."""
        options = [getattr(self.config, field) for field in DECIDE]
        versions = (programs_hash(), triton.__version__, torch.__version__)
        what = (*versions, self.target, self.platform.chip, options, self.source.config)
        return hashlib.sha256(repr(what).encode()).hexdigest()[:32]

    @property
    def marker(self) -> Path:
        """The file that is there once all kernels are compiled in the cache in which it lies."""
        return marker(self.name)
