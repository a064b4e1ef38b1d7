"""What this machine's processors can do."""

from __future__ import annotations

from functools import cache
from pathlib import Path

BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Flags of /proc/cpuinfo that mean bfloat16 products in hardware: x86, and `bf16` on Arm."""


def processor_flags(cpuinfo: str) -> frozenset[str]:
    """Flags of the first processor in the text of /proc/cpuinfo."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


@cache
def has_bfloat16() -> bool:
    """Whether products of bfloat16 are faster than those of float32 here."""
    path = Path("/proc/cpuinfo")
    return bool(path.exists() and processor_flags(path.read_text()) & BFLOAT16_FLAGS)
