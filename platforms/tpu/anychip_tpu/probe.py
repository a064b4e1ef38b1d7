"""Whether TPUs can be used: chips on the PCI bus, their device files, a runtime. No torch, no runtime is loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from anychip.plugin import Probe, pci_devices

SCORE = 100
VENDOR = "1ae0"
"""Google's number on the PCI bus, which its network cards and disks have too."""
CHIPS = {
    "0027": "v3",
    "0056": "v4i",
    "005e": "v4",
    "0062": "v5p",
    "0063": "v5e",
    "006f": "v6e",
    "0076": "7x",
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
    ours = (found.device for found in pci_devices(root) if found.vendor == VENDOR)
    return [CHIPS[number] for number in ours if number in CHIPS]


def judge(machine: Machine) -> Probe:
    """Score 0 with what is missing; below 0 where only XLA's processor device can run."""
    if not machine.runtimes:
        found = f"{_chip_count(machine)}, and " if machine.chips else ""
        return Probe.cannot(f"{found}no TPU runtime is installed", INSTALL)
    if not machine.chips:
        if "torch-xla" in machine.runtimes:
            return Probe(-1, f"no TPU was found; with --runtime {ON_HOST}, XLA's processor device, for tests")
        return Probe.cannot(f"{machine.runtimes[0]} is installed, and no TPU was found", NO_TPU)
    if not machine.files:
        return Probe.cannot(f"{_chip_count(machine)}, and none of /dev/accel* and /dev/vfio/* is here", HAND_IN)
    if not machine.libtpu:
        return Probe.cannot(f"{_chip_count(machine)}, and libtpu is missing", INSTALL)
    return Probe(SCORE, "", len(machine.chips))


def _chip_count(machine: Machine) -> str:
    return f"{len(machine.chips)} TPU {machine.chips[0]} were found"


def probe() -> Probe:
    """Look at this machine."""
    return judge(look())
