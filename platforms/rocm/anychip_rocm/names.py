"""Names of AMD's architectures that this platform knows, and what is sold under each. Loads without torch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SOLD_AS: Mapping[str, str] = MappingProxyType(
    {
        "gfx90a": "Instinct MI210, MI250, MI250X",
        "gfx942": "Instinct MI300A, MI300X, MI325X",
        "gfx950": "Instinct MI350X, MI355X",
        "gfx1100": "Radeon RX 7900, Radeon PRO W7800, W7900",
        "gfx1201": "Radeon RX 9070, Radeon AI PRO R9700",
    }
)


def name_of(version: int) -> str:
    """An architecture as the driver writes it, 90402, by its name, gfx942: two digits of each part but the first."""
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}"
