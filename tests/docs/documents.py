"""The shell blocks of the documents, and the `anychip` commands in them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from anychip.cli.app import PARTS
from fences import Fence, shell_fences
from sources import ROOT

OPERATORS = set("();<>|&")


@dataclass(frozen=True)
class Block:
    """A shell block and the document it stands in."""

    document: str
    fence: Fence

    @property
    def place(self) -> str:
        """Where to find it."""
        return f"{self.document}:{self.fence.line}"


@dataclass(frozen=True)
class Command:
    """One call of `anychip`: its subcommand, "" for none, and the flags it is given."""

    subcommand: str
    flags: tuple[str, ...]


def blocks() -> list[Block]:
    """Every shell block of the README, CONTRIBUTING.md and docs/."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        Block(path.relative_to(ROOT).as_posix(), fence)
        for path in paths
        for fence in shell_fences(path.read_text(encoding="utf-8"))
    ]


def commands(text: str) -> list[Command]:
    """The calls of `anychip` in a shell block, through pipes, `&&` and continued lines."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        found += _calls(list(lexer))
    return found


def _calls(words: list[str]) -> list[Command]:
    found, starts = [], True
    for position, word in enumerate(words):
        if starts and word == "anychip":
            found.append(_command(words[position + 1 :]))
        starts = not set(word) - OPERATORS or (starts and "=" in word)
    return found


def _command(words: list[str]) -> Command:
    end = next((index for index, word in enumerate(words) if not set(word) - OPERATORS), len(words))
    arguments = words[:end]
    subcommand = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    if arguments[1:2] and arguments[1] in PARTS.get(subcommand, ()):
        subcommand = f"{subcommand} {arguments[1]}"
    return Command(subcommand, tuple(word.split("=")[0] for word in arguments if word.startswith("-") and word != "-"))
