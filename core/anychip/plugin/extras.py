"""Platforms that the distribution has an extra for, and which of their chips this machine shows.

No name is written here. The extras stand in the metadata of the distribution, and beside it lies a table of what a
machine's PCI bus shows of each one's chips.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any

from anychip.plugin.pci import PciDevice, pci_devices

DISTRIBUTION = "anychip"
CHIPS = "extra_metadata/chips.toml"
"""The table, within the folder of the distribution's metadata."""

_REQUIREMENT = re.compile(rf"^{DISTRIBUTION}-[\w-]+\b.*;.*\bextra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of the distribution that brings a platform, and one of its chips if the machine has any."""

    name: str
    seen: str = ""
    """Such as `a Toy GPU (1234:5678)`."""

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"pip install '{DISTRIBUTION}[{self.name}]'"

    @property
    def sentence(self) -> str:
        """What is missing, and what to do."""
        there = f" This machine has {self.seen}." if self.seen else ""
        return f"{self.name} is not installed.{there} Install it with `{self.install}`."


def platform_extras(distribution: Distribution | None = None, root: Path = Path("/")) -> tuple[Extra, ...]:
    """The extras that bring a platform: those whose chips the machine shows come first, then by name.

    Without a distribution it is the installed one; there are none where anychip runs from a folder alone.
    """
    try:
        found = distribution or Distribution.from_name(DISTRIBUTION)
    except PackageNotFoundError:
        return ()
    matches = (_REQUIREMENT.match(requirement) for requirement in found.requires or [])
    names = {match["extra"] for match in matches if match}
    chips = tomllib.loads(found.read_text(CHIPS) or "")
    shown = tuple(pci_devices(root))
    extras = [Extra(name, _seen(chips.get(name, {}), shown)) for name in names]
    return tuple(sorted(extras, key=lambda extra: (not extra.seen, extra.name)))


def _seen(known: Mapping[str, Any], devices: tuple[PciDevice, ...]) -> str:
    for found in devices:
        number = f"{found.vendor}:{found.device}"
        if any(fnmatch(f"{number}:{found.kind}", pattern) for pattern in known.get("pci", ())):
            return f"{known['chip']} ({number})"
    return ""
