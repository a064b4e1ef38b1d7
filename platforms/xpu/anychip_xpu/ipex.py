"""Whether Intel's extension for PyTorch can be used.

Intel ended the extension with torch 2.8. What pip's index has of it are builds for processors alone, so it is a
platform of its own, which runs by name only. Importing this needs no torch.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from anychip.plugin import Probe

PACKAGE = "intel-extension-for-pytorch"
VERSION = "2.8"
"""The last one, which goes with the torch of the same number."""
INSTALL = f"Install it with `pip install torch==2.8.0 {PACKAGE}==2.8.0`, in an environment of its own."


def probe() -> Probe:
    """Below 0, so that nothing but its name starts it: loading the extension replaces some of torch's operators."""
    found = _version(PACKAGE)
    if not found:
        return Probe.cannot(f"{PACKAGE} is not installed", INSTALL)
    torch = _version("torch")
    if not (_is(found) and _is(torch)):
        return Probe.cannot(f"{PACKAGE} {found} with torch {torch}: only {VERSION} of both is known to work", INSTALL)
    return Probe(-1, "Intel's extension for PyTorch, on the processor: for comparisons")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _is(found: str) -> bool:
    return found.startswith(f"{VERSION}.")
