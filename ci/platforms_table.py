"""The tables of README.md and docs/platforms.md: op x platform, and how far each claim was tried, from docs/records/.

`python ci/platforms_table.py` writes them, `--check` only compares. Where a platform can run,
`anychip conform NAME --record docs/records/NAME.json` writes its record, and a test compares how its ops run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import embed
from anychip.testing.record import Record, claims_table, columns, read_record
from anychip.testing.support import markdown
from sources import ROOT

RECORDS = "docs/records"
TABLES = {"platforms": ("docs/platforms.md",), "claims": ("README.md", "docs/platforms.md")}
"""Documents that have each table."""


def platforms(root: Path) -> list[str]:
    """Names of the platforms: the built-in one, those of this repository, then others that have a record."""
    ours = ["reference", *sorted(path.parent.name for path in root.glob("platforms/*/pyproject.toml"))]
    return [*ours, *sorted({path.stem for path in (root / RECORDS).glob("*.json")} - {*ours})]


def records(root: Path = ROOT) -> list[Record]:
    """The record of each platform; one without a file is untested."""
    return [read_record(root / RECORDS / f"{name}.json", name) for name in platforms(root)]


def tables(root: Path = ROOT) -> Mapping[str, str]:
    """Each table by its name."""
    found = records(root)
    return {"platforms": markdown(columns(found)), "claims": claims_table(found)}


def main() -> int:
    """Write or compare every document."""
    return max(embed.run(name, dict.fromkeys(TABLES[name], table)) for name, table in tables().items())


if __name__ == "__main__":
    sys.exit(main())
