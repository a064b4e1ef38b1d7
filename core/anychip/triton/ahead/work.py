"""What is to be compiled for a model on a device."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
import triton

from anychip.config import EngineConfig
from anychip.plugin.contract import Capabilities, ModelSource
from anychip.triton.ahead.absent import Target
from anychip.triton.ahead.process import DECIDE, marker, programs_hash
from anychip.triton.ahead.rehearsal import KernelsOf, StepsOf, as_captured
from anychip.triton.chip import Chip


@dataclass(frozen=True, slots=True)
class Work:
    """All that decides which kernels there are."""

    target: Target
    chip: Chip
    capabilities: Capabilities
    kernels_of: KernelsOf
    captures: bool
    config: EngineConfig
    source: ModelSource
    steps_of: StepsOf = as_captured

    @property
    def name(self) -> str:
        """The same for the same kernels, of the same Triton."""
        options = [getattr(self.config, field) for field in DECIDE]
        versions = (programs_hash(), triton.__version__, torch.__version__)
        what = (*versions, self.target, self.chip, options, self.source.config)
        return hashlib.sha256(repr(what).encode()).hexdigest()[:32]

    @property
    def marker(self) -> Path:
        """A file that is there once all of it was compiled into the cache it lies in."""
        return marker(self.name)
