"""What the launches of kernels depend on, of a chip."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from anychip.triton.tuning import Tuning


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip as its platform describes it; the defaults promise little."""

    processors: int
    """Streaming multiprocessors, or compute units."""
    overlap: bool = False
    """Whether a kernel may be started before the one whose results it needs has ended (programmatic dependent launch).
    Every kernel in between must wait for the one before it, as all of ours do: programs/order.py."""
    tuning: Tuning = field(default_factory=Tuning)
    """Sizes of tiles."""
    float8: torch.dtype = torch.float8_e4m3fn
    """The type of 8-bit floats that its matrix instructions read, if it has such."""
    library_codes: bool = True
    """Whether torch's library multiplies matrices of 8-bit integers, and of 8-bit floats with a scale a row."""
    descriptors: bool = False
    """Whether it copies tiles of a matrix to shared memory by itself, given a descriptor of the matrix (NVIDIA's tensor
    memory accelerator)."""
    fragments: bool = False
    """Whether weights of 4 bits are packed for NVIDIA's mma.m16n8k16 and its arithmetic on two 16-bit numbers in one
    register (compute capability 8.0 and newer)."""

    @property
    def order(self) -> dict[str, bool]:
        """Arguments that every launch takes, so that kernels run in order; see `overlap`."""
        return {"OVERLAP": True, "launch_pdl": True} if self.overlap else {"OVERLAP": False}
