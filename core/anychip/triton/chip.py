"""What launches depend on, of the chip."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from anychip.triton.tuning import Tuning


@dataclass(frozen=True, slots=True)
class Chip:
    """A device of `processors` (multiprocessors, compute units), as a platform describes it.

    `overlap`: a program may be started before the one whose results it waits for has ended (programmatic dependent
    launch). Every launch between two such programs must then wait too, as all of ours do.
    """

    processors: int
    overlap: bool = False
    tuning: Tuning = field(default_factory=Tuning)
    float8: torch.dtype = torch.float8_e4m3fn
    """The dialect of 8-bit floats that its matrix instructions read, if it has such."""
    library_codes: bool = True
    """Whether torch's library multiplies matrices of 8-bit integers, and of 8-bit floats with a scale a row."""
    descriptors: bool = False
    """Whether it copies tiles of a matrix by itself, told which matrix (tensor memory accelerator)."""

    fragments: bool = False
    """Whether it has NVIDIA's matrix instructions of 16 rows and arithmetic on two 16-bit numbers in one register
    (compute capability 8.0 and newer), for which weights of four bits are packed."""

    @property
    def order(self) -> dict[str, bool]:
        """Arguments of every launch."""
        return {"OVERLAP": True, "launch_pdl": True} if self.overlap else {"OVERLAP": False}
