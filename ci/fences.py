"""The fenced shell blocks of a Markdown file, and the marker on the line above each.

`python3 ci/fences.py README.md run` prints the one block marked `<!-- run -->`. Needs nothing but Python.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OPEN = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\s*$")
MARKER = re.compile(r"^\s*<!-- (?P<name>[a-z]+)(?:: (?P<detail>.+?))? -->\s*$")
SHELLS = {"bash", "sh", "shell", "console", "zsh"}


@dataclass(frozen=True)
class Fence:
    """A fenced block. `marker` and `detail` come from `<!-- marker: detail -->` above it; `line` is its first."""

    line: int
    language: str
    marker: str
    detail: str
    text: str


def fences(markdown: str) -> Iterator[Fence]:
    """Every fenced block, in order."""
    lines = markdown.splitlines()
    start = 0
    while start < len(lines):
        opening = OPEN.match(lines[start])
        if not opening:
            start += 1
            continue
        indent = len(opening["indent"])
        end = start + 1
        while end < len(lines) and lines[end].strip() != "```":
            end += 1
        above = MARKER.match(lines[start - 1]) if start else None
        text = "\n".join(line[indent:] for line in lines[start + 1 : end]) + "\n"
        name, detail = (above["name"], above["detail"] or "") if above else ("", "")
        yield Fence(start + 2, opening["language"], name, detail, text)
        start = end + 1


def shell_fences(markdown: str) -> list[Fence]:
    """The blocks that a reader would paste into a shell."""
    return [fence for fence in fences(markdown) if fence.language in SHELLS]


def main() -> int:
    """Print the one block of a file that carries a marker."""
    path, marker = Path(sys.argv[1]), sys.argv[2]
    found = [fence for fence in shell_fences(path.read_text(encoding="utf-8")) if fence.marker == marker]
    if len(found) != 1:
        print(f"{path} has {len(found)} blocks marked <!-- {marker} -->; it needs exactly one", file=sys.stderr)
        return 2
    print(found[0].text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
