"""What is on a machine's PCI bus, read from the files that the kernel shows. Part of the contract."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DEVICES = "sys/bus/pci/devices"


@dataclass(frozen=True, slots=True)
class PciDevice:
    """What one device says it is, in small hexadecimal digits, as `lspci -n` writes them."""

    vendor: str
    """Four digits."""
    device: str
    """Four digits, the vendor's own number."""
    kind: str
    """Six digits of the PCI class: display controllers begin with 03, processing accelerators with 12."""


def pci_devices(root: Path = Path("/")) -> Iterator[PciDevice]:
    """All that can be read, in the bus's order; what is taken out meanwhile or hidden from us is passed over."""
    for device in sorted((root / DEVICES).glob("*")):
        try:
            words = [(device / name).read_text().strip().removeprefix("0x") for name in ("vendor", "device", "class")]
        except OSError:
            continue
        yield PciDevice(*words)
