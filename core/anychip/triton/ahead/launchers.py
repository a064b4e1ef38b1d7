"""Compiling the C modules that Triton loads and launches programs with. Needs neither a device nor torch."""

from __future__ import annotations

import importlib
from typing import Any

DRIVERS = {
    "cuda": ("triton.backends.nvidia.driver", "CudaUtils", "CudaLauncher"),
    "hip": ("triton.backends.amd.driver", "HIPUtils", "HIPLauncher"),
}
"""By backend: the module, its class that loads programs, and the one that launches them."""


def build_loader(backend: str) -> None:
    """Compile the module that loads programs, into Triton's cache."""
    module, loader, _ = DRIVERS[backend]
    getattr(importlib.import_module(module), loader)()


def build_launcher(source: Any, metadata: Any) -> None:
    """Compile the module that launches one program; from version 3.7 on Triton needs none of its own for each."""
    name, _, launcher = DRIVERS[metadata.target.backend]
    module = importlib.import_module(name)
    if "make_launcher" in vars(module):
        getattr(module, launcher)(source, metadata)
