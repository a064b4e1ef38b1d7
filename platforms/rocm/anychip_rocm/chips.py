"""What AMD's chips can do, by architecture, and the tiles that fit each: compiled without a spill, not measured.

CDNA (gfx9)         64 lanes    512 registers a lane for 4 warps, 256 for 8    matrix instructions v_mfma
RDNA (gfx11, 12)    32 lanes    256 registers a lane                           matrix instructions v_wmma
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch

from anychip.errors import UserError
from anychip.triton.chip import Chip
from anychip.triton.packing import FORMATS
from anychip.triton.tuning import Tile, Tuning, WeightTile

CDNA = Tuning(
    lanes=64,
    query_coded_small=Tile(64, 32, 4, 2),
    query_coded=Tile(64, 32, 4, 2),
    query_wide=Tile(64, 32, 4, 2),
)
MI200 = replace(CDNA, query_medium=Tile(128, 32, 8, 2), query_large=Tile(128, 32, 8, 2))
"""For gfx90a, where tiles of 64 keys spill four registers."""
ROOMY = replace(
    CDNA,
    thin=WeightTile(64, 128, 4, 4),
    thin_float32=WeightTile(32, 64, 4, 4),
    experts_few=WeightTile(64, 128, 4, 3),
    experts_some=WeightTile(64, 128, 4, 3),
    experts_many=WeightTile(128, 64, 8, 3),
    experts_float32=WeightTile(32, 32, 4, 3),
    codes_packed=WeightTile(64, 128, 8, 3),
    codes_bytes=WeightTile(64, 256, 4, 3),
    codes_many=WeightTile(128, 128, 8, 3),
)
"""For 160 KiB of fast memory: more tiles of weights are under way. Larger tiles of attention would spill."""
RDNA = Tuning(
    context_large=Tile(16, 16, 4, 2),
    context_coded=Tile(16, 32, 8, 1),
    context_float32=Tile(16, 16, 8, 1),
    query_float32=Tile(16, 16, 8, 1),
    thin_float32=WeightTile(32, 32, 4, 2),
    query_small=Tile(64, 32, 8, 1),
    query_medium=Tile(64, 32, 8, 1),
    query_large=Tile(64, 32, 8, 1),
    query_coded_small=Tile(64, 16, 8, 1),
    query_coded=Tile(64, 16, 8, 1),
    query_wide=Tile(16, 16, 4, 1),
    codes_packed=WeightTile(32, 128, 8, 1),
    codes_bytes=WeightTile(64, 128, 4, 2),
    codes_whole=WeightTile(64, 128, 8, 2),
    codes_many=WeightTile(128, 64, 8, 2),
)


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture."""

    name: str
    local_memory: int
    """Bytes that a program may use of its compute unit's fast memory (LDS)."""
    float8: torch.dtype | None
    """The dialect of 8-bit floats that its matrix instructions read, if they read any."""
    tuning: Tuning

    @property
    def formats(self) -> tuple[str, ...]:
        """Quantized formats that are kept as they are."""
        return tuple(name for name in FORMATS if name != "fp8" or self.float8 is not None)

    @property
    def caches(self) -> tuple[str, ...]:
        """Types of KV cache beside the model's own; codes of 8-bit floats are those of checkpoints."""
        return ("int8", "fp8") if self.float8 == torch.float8_e4m3fn else ("int8",)

    def chip(self, processors: int) -> Chip:
        """One with so many compute units."""
        # hipBLASLt's products in 8 bits have crashed on some of these chips (rocm-libraries, issue 5205): ours do them.
        float8 = self.float8 or torch.float8_e4m3fn
        return Chip(processors, tuning=self.tuning, float8=float8, library_codes=False)

    def check(self, quantization: str | None) -> None:
        """Raise `UserError` if the format was asked for and would only lose accuracy here."""
        if quantization is not None and quantization not in self.formats:
            raise UserError(
                f"{self.name} has no arithmetic on 8-bit floats, so --quantization {quantization} would round the "
                "weights and gain nothing.",
                "Use --quantization int8 or int4.",
            )


CHIPS: Mapping[str, Architecture] = MappingProxyType(
    {
        found.name: found
        for found in (
            Architecture("gfx90a", 64 * 1024, None, MI200),
            Architecture("gfx942", 64 * 1024, torch.float8_e4m3fnuz, CDNA),
            Architecture("gfx950", 160 * 1024, torch.float8_e4m3fn, ROOMY),
            Architecture("gfx1100", 64 * 1024, None, RDNA),
            Architecture("gfx1201", 64 * 1024, torch.float8_e4m3fn, RDNA),
        )
    }
)
"""By name, as `anychip_rocm.names.SOLD_AS`."""
