"""The op x platform table of README.md and docs/platforms.md, from what the platforms of this repository say.

`python ci/platforms_table.py` writes it, `--check` only compares. The column of a platform that cannot run on this
machine stays as it is, or says Untested.
"""

from __future__ import annotations

import sys
from pathlib import Path

import embed
from anychip.ops.registry import OPS
from anychip.plugin.registry import Registry
from anychip.testing.subject import Subject
from anychip.testing.support import UNTESTED, markdown, support
from sources import ROOT

NAME = "platforms"
DOCUMENTS = ("README.md", "docs/platforms.md")


def platforms(root: Path) -> list[str]:
    """Names of the platforms of this repository."""
    return ["reference", *sorted(path.parent.name for path in root.glob("platforms/*/pyproject.toml"))]


def table(before: str) -> str:
    """The table; `before` is the one that stands there now."""
    usable = {found.spec.name for found in Registry().platforms if found.usable}
    known = columns(before)
    found = {}
    for name in platforms(ROOT):
        if name in usable:
            with Subject(name) as subject:
                found[name] = support(subject)
        else:
            found[name] = known.get(name, dict.fromkeys(OPS, UNTESTED))
    return markdown({f"`{name}`": column for name, column in found.items()})


def columns(text: str) -> dict[str, dict[str, str]]:
    """A table read back: by platform and op."""
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in text.splitlines()]
    if len(rows) < 2:
        return {}
    head, body = rows[0], rows[2:]
    return {name: {row[0]: row[place] for row in body} for place, name in enumerate(head) if place}


def main() -> int:
    """Write or compare both documents."""
    before = embed.part((ROOT / DOCUMENTS[-1]).read_text(encoding="utf-8"), NAME)
    return embed.run(NAME, dict.fromkeys(DOCUMENTS, table(before)))


if __name__ == "__main__":
    sys.exit(main())
