"""Whether TPUs can be used: chips on the PCI bus, their device files, a runtime. No torch, no runtime is loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from anychip.plugin import Probe

SCORE = 100
VENDOR = "0x1ae0"
"""Google's number on the PCI bus, which its network cards and disks have too."""
CHIPS = {
    "0x0027": "v3",
    "0x0056": "v4i",
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "7x",
}
"""Chips by their number on the PCI bus, as jax lists them."""
RUNTIMES = {"torch-tpu": "torch_tpu", "torch-xla": "torch_xla"}
"""Modules of the runtimes, the one that is preferred first."""
INSTALL = "pip install 'anychip-tpu[torch-tpu]', or 'anychip-tpu[torch-xla]'."
NO_TPU = "Run on a machine that has one, or choose another --device."
HAND_IN = "A container has to be given its device files."
ON_HOST = "torch-xla-cpu"
"""The runtime that needs no TPU: XLA's own processor device, for tests."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What of a TPU is there."""

    chips: tuple[str, ...]
    """The kind of each chip on the bus."""
    files: bool
    """Whether this process sees device files of any."""
    runtimes: tuple[str, ...]
    """Those installed."""
    libtpu: bool


def installed(module: str) -> bool:
    """Whether a module could be imported."""
    return importlib.util.find_spec(module) is not None


def look(root: Path = Path("/"), has: Callable[[str], bool] = installed) -> Machine:
    """What there is on this machine."""
    return Machine(
        chips=tuple(sorted(_chips(root))),
        files=any((root / "dev").glob("accel[0-9]*")) or any((root / "dev/vfio").glob("[0-9]*")),
        runtimes=tuple(name for name, module in RUNTIMES.items() if has(module)),
        libtpu=has("libtpu"),
    )


def _chips(root: Path) -> list[str]:
    found = []
    for device in (root / "sys/bus/pci/devices").glob("*"):
        vendor, number = ((device / name).read_text().strip() for name in ("vendor", "device"))
        if vendor == VENDOR and number in CHIPS:
            found.append(CHIPS[number])
    return found


def judge(machine: Machine) -> Probe:
    """Score 0 with what is missing; below 0 where only XLA's processor device can run."""
    if not machine.runtimes:
        found = f"{_chip_count(machine)}, and " if machine.chips else ""
        return _cannot(f"{found}no TPU runtime is installed", INSTALL)
    if not machine.chips:
        if "torch-xla" in machine.runtimes:
            return Probe(-1, f"no TPU was found; with --runtime {ON_HOST}, XLA's processor device, for tests")
        return _cannot(f"{machine.runtimes[0]} is installed, and no TPU was found", NO_TPU)
    if not machine.files:
        return _cannot(f"{_chip_count(machine)}, and none of /dev/accel* and /dev/vfio/* is here", HAND_IN)
    if not machine.libtpu:
        return _cannot(f"{_chip_count(machine)}, and libtpu is missing", INSTALL)
    return Probe(SCORE, "", len(machine.chips))


def _cannot(reason: str, remedy: str) -> Probe:
    return Probe(0, reason, 0, remedy)


def _chip_count(machine: Machine) -> str:
    return f"{len(machine.chips)} TPU {machine.chips[0]} were found"


def probe() -> Probe:
    """Look at this machine."""
    return judge(look())
