"""The builds of the kernels: what each needs of a processor, and how it is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anychip_cpu.processor import processor_flags


@dataclass(frozen=True, slots=True)
class Variant:
    """One build of the library. `needs` are flags of /proc/cpuinfo, `options` the compiler's."""

    name: str
    needs: frozenset[str]
    options: tuple[str, ...]
    bfloat16: bool = False
    """Whether products of bfloat16 are in hardware."""
    lanes: int = 16
    """Floats of a vector."""
    tested: bool = True
    """Whether it has ever run; one that has not is only taken by name."""


_AVX2 = frozenset({"avx2", "fma", "f16c"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
_VNNI_BF16 = _AVX512 | {"avx512_vnni", "avx512_bf16"}
_AMX = _VNNI_BF16 | {"amx_tile", "amx_bf16"}
_AVX2_OPTIONS = ("-mavx2", "-mfma", "-mf16c")
_AVX512_OPTIONS = (
    *_AVX2_OPTIONS,
    *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512", "-DANYCHIP_AVX512"),
)
_VNNI_BF16_OPTIONS = (*_AVX512_OPTIONS, "-mavx512vnni", "-mavx512bf16", "-DANYCHIP_VNNI", "-DANYCHIP_BF16")
_AMX_OPTIONS = (*_VNNI_BF16_OPTIONS, "-mamx-tile", "-mamx-bf16", "-DANYCHIP_AMX")

VARIANTS = (
    Variant("amx", _AMX, _AMX_OPTIONS, bfloat16=True, tested=False),
    Variant("avx512_vnni_bf16", _VNNI_BF16, _VNNI_BF16_OPTIONS, bfloat16=True),
    Variant("avx512", _AVX512, _AVX512_OPTIONS),
    Variant("avx2", _AVX2, _AVX2_OPTIONS, lanes=8),
)
"""Best first."""


def supported_variants(flags: frozenset[str] | None = None) -> tuple[Variant, ...]:
    """The variants that a processor with `flags` can run, best first; this machine's processor by default.

    Those that were never tested come last.
    """
    held = _host_flags() if flags is None else flags
    found = (variant for variant in VARIANTS if variant.needs <= held)
    return tuple(sorted(found, key=lambda variant: not variant.tested))


def _host_flags() -> frozenset[str]:
    path = Path("/proc/cpuinfo")
    return processor_flags(path.read_text()) if path.exists() else frozenset()
