"""The tables of flags in docs/serving.md and docs/load.md, from the config structs and the strings below their fields.

`python ci/docs_tables.py` writes them, `--check` only compares.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import embed
from anychip.bench.options import LoadOptions
from anychip.cli.elsewhere import NEEDLESS, NOT_BUILT, RENAMED
from anychip.cli.fields import Field, engine_fields, fields, server_fields

SERVING, LOAD = "docs/serving.md", "docs/load.md"
PIPE = r"\|"


def tables() -> dict[str, tuple[str, str]]:
    """Each table by the name of its markers, with the document it is in."""
    return {
        "server-flags": (SERVING, table(server_fields())),
        "engine-flags": (SERVING, table(engine_fields())),
        "other-flags": (SERVING, elsewhere()),
        "load-flags": (LOAD, table(fields(LoadOptions))),
    }


def table(listed: Iterable[Field]) -> str:
    """A row a flag."""
    return "\n".join(["| flag | default | meaning |", "|---|---|---|", *(row(field) for field in listed)])


def elsewhere() -> str:
    """A row for all flags of other engines that mean the same here."""
    answers: dict[str, list[str]] = {}
    for flag, ours in RENAMED.items():
        answers.setdefault(f"`{ours}`", []).append(flag)
    for flag, why in {**NEEDLESS, **NOT_BUILT}.items():
        answers.setdefault(why, []).append(flag)
    rows = (f"| {', '.join(f'`{flag}`' for flag in flags)} | {answer} |" for answer, flags in answers.items())
    return "\n".join(["| there | here |", "|---|---|", *rows])


def row(field: Field) -> str:
    """Flag, default and docstring of an option."""
    if field.is_switch:
        shown = f"`{field.flag}`, `--no-{field.flag.removeprefix('--')}`"
    else:
        shown = f"`{field.flag} {field.metavar}`".replace("|", PIPE)
    default = f"`{field.shown_default}`" if field.shown_default else ""
    text = field.text.replace("|", PIPE) + (" May be given several times." if field.is_list else "")
    return f"| {shown} | {default} | {text} |"


def main() -> int:
    """Write or compare every table."""
    return max(embed.run(name, {document: content}) for name, (document, content) in tables().items())


if __name__ == "__main__":
    sys.exit(main())
