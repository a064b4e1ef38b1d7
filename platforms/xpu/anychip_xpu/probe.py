"""Whether Intel GPUs can be used, read from the files that the kernel shows: no context, no SYCL, no torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from anychip.plugin import PciDevice, Probe, pci_devices
from anychip.plugin.torch_build import built_for

SCORE = 100
INTEL = "8086"
DISPLAY = "03"
"""How the class of a display controller begins, a GPU without outputs included."""

NO_GPU = "If the machine has one, a virtual machine has to be given it, and a container /sys and /dev/dri."
NO_DRIVER = "Boot a kernel whose driver `i915` or `xe` knows this GPU, with its firmware; `dmesg` says what is missing."
NOT_GIVEN = "A container has to be given /dev/dri, such as with `--device /dev/dri`."
NOT_OPEN = "Add this user to the group that owns the file, mostly `render`, and log in again."
BUILD = "Install the build of PyTorch for Intel GPUs, as PyTorch's install page says."


def probe(root: Path = Path("/"), torch_folder: Path | None = None) -> Probe:
    """Score 0 with a reason where there is no GPU, no driver, no access, or another build of torch.

    Integrated GPUs count too. Whether Intel's compute runtime knows them is asked when one is opened.
    """
    if not any(map(_is_gpu, pci_devices(root))):
        return Probe.cannot("there is no Intel GPU on the PCI bus", NO_GPU)
    nodes = list(_render_nodes(root))
    if not nodes:
        return Probe.cannot("the kernel has no driver for the Intel GPU", NO_DRIVER)
    given = [node for node in nodes if node.exists()]
    if not given:
        return Probe.cannot(f"{_shown(nodes[0], root)} is not there", NOT_GIVEN)
    usable = [node for node in given if os.access(node, os.R_OK | os.W_OK)]
    if not usable:
        return Probe.cannot(f"{_shown(given[0], root)} may not be opened", NOT_OPEN)
    if not built_for("xpu", torch_folder):
        return Probe.cannot("this build of PyTorch is not for Intel GPUs", BUILD)
    return Probe(SCORE, "", len(usable))


def _is_gpu(found: PciDevice) -> bool:
    return found.vendor == INTEL and found.kind.startswith(DISPLAY)


def _render_nodes(root: Path) -> Iterator[Path]:
    """Where programs reach each Intel GPU, as its driver says: whether it is there is another matter."""
    for node in sorted((root / "sys/class/drm").glob("renderD*")):
        if _read(node / "device/vendor") == f"0x{INTEL}":
            yield root / "dev/dri" / node.name


def _shown(node: Path, root: Path) -> str:
    return f"/{node.relative_to(root)}"


def _read(file: Path) -> str:
    """Its only line; nothing where it has just been taken out, or is hidden from us."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
