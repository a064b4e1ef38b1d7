"""What launches depend on, of the chip."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chip:
    """A device of `processors` (multiprocessors, compute units).

    `overlap`: a program may be started before the one whose results it waits for has ended (programmatic dependent
    launch). Every launch between two such programs must then wait too, as all of ours do.
    """

    processors: int
    overlap: bool = False
    shared_memory: int = 64 * 1024
    """Bytes of fast memory that one program may use."""

    def stages(self, wanted: int) -> int:
        """How many tiles of a loop may be under way: fewer where there is little fast memory."""
        return wanted if self.shared_memory > 64 * 1024 else min(wanted, 2)

    @property
    def order(self) -> dict[str, bool]:
        """Arguments of every launch."""
        return {"OVERLAP": True, "launch_pdl": True} if self.overlap else {"OVERLAP": False}
