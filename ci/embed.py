"""Text that a script writes between two markers of a document: `<!-- NAME:begin -->` and `<!-- NAME:end -->`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from sources import ROOT


def part(text: str, name: str) -> str:
    """What lies between a document's markers."""
    found = _pattern(name).findall(text)
    assert len(found) == 1, f"the markers {name}:begin and {name}:end must stand there once"
    return str(found[0]).strip("\n")


def embed(text: str, name: str, content: str) -> str:
    """The document with other content between its markers."""
    part(text, name)
    return _pattern(name).sub(lambda _: f"<!-- {name}:begin -->\n{content}\n<!-- {name}:end -->", text)


def run(name: str, contents: Mapping[str, str]) -> int:
    """Write `contents` by document into this repository; with `--check`, only say which documents are out of date."""
    stale = []
    for document, content in contents.items():
        path = ROOT / document
        before = path.read_text(encoding="utf-8")
        after = embed(before, name, content)
        if before != after:
            stale.append(document)
            if "--check" not in sys.argv:
                path.write_text(after, encoding="utf-8")
    if "--check" not in sys.argv:
        return 0
    for document in stale:
        print(f"{document}: out of date between the markers of {name}; run {Path(sys.argv[0]).name}")
    return 1 if stale else 0


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"<!-- {name}:begin -->\n(.*?)<!-- {name}:end -->", re.DOTALL)
