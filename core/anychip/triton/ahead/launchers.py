"""What Triton compiles in C before it can launch anything. Needs no device, and no torch."""

from __future__ import annotations

import importlib
from typing import Any

DRIVERS = {
    "cuda": ("triton.backends.nvidia.driver", "CudaUtils", "CudaLauncher"),
    "hip": ("triton.backends.amd.driver", "HIPUtils", "HIPLauncher"),
}
"""By backend: the module, its class that loads programs, and the one that launches them."""


def build_loader(backend: str) -> None:
    """Compile what loads programs, into Triton's cache."""
    module, loader, _ = DRIVERS[backend]
    getattr(importlib.import_module(module), loader)()


def build_launcher(source: Any, metadata: Any) -> None:
    """Compile what launches one program: before version 3.7 Triton has one for each list of argument types."""
    name, _, launcher = DRIVERS[metadata.target.backend]
    module = importlib.import_module(name)
    if "make_launcher" in vars(module):
        getattr(module, launcher)(source, metadata)
