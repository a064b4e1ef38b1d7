"""What is known of a platform, in a file: how each op runs, and how far each claim was tried, when and on what.

`anychip conform NAME --record FILE` writes what it has seen and leaves the rest as it was: what only a compiler or a
person knows stands there too. The table of platforms in the docs is made of these files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from anychip.errors import UserError
from anychip.testing.check import Result
from anychip.testing.subject import Subject
from anychip.testing.support import OWN, support

State = Literal["ran", "compiled", "untested", "none"]
"""`none`: the platform has nothing of the kind."""
CLAIMS = ("kernels", "L0 device", "L1 ops", "L2 attention", "L3 runner", "L4 serving")
"""What may be claimed of a platform: that its kernels compile, and the levels of the kit."""


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How far one thing was tried."""

    state: State = "untested"
    date: str = ""
    """The last time, as YYYY-MM-DD."""
    on: str = ""
    """On what: a chip, or what stood in for one."""
    failed: int = 0
    """Checks that did not pass."""

    @property
    def cell(self) -> str:
        """For a table: `ran 2026-11-30, 2 failed`."""
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.state} {self.date}".rstrip() + failed


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """A platform's file."""

    platform: str
    claims: dict[str, Claim] = {}
    """By name, one of `CLAIMS`; what is missing is untested."""
    ops: dict[str, str] = {}
    """By op: Yes, Reference, By parts or No (reason); what is missing is untested."""

    def claim(self, name: str) -> Claim:
        """How far a claim was tried."""
        return self.claims.get(name, Claim())

    def add(self, results: Sequence[Result], date: str, on: str) -> None:
        """Take in what came of the kit's checks; a level of which nothing was asked stays as it was."""
        for name in CLAIMS:
            level = [result.status for result in results if name.startswith(f"L{result.check.level} ")]
            if set(level) - {"not applicable"}:
                self.claims[name] = Claim("ran", date, on, level.count("failed"))
            elif level:
                self.claims[name] = Claim("none")


def read_record(path: Path, platform: str) -> Record:
    """The record in a file, or an empty one. Raises `UserError` for a file that is something else."""
    if not path.exists():
        return Record(platform)
    try:
        record = msgspec.json.decode(path.read_bytes(), type=Record)
    except msgspec.MsgspecError as error:
        raise UserError(f"{path} is no record of a platform: {error}.", "Name another file.") from None
    if record.platform != platform or not set(record.claims) <= set(CLAIMS):
        raise UserError(f"{path} is the record of something else than {platform!r}.", "Name another file.")
    return record


def write_record(record: Record, path: Path) -> None:
    """Write a record, in an order that does not change from one time to the next."""
    claims = {name: record.claims[name] for name in CLAIMS if name in record.claims}
    encoded = msgspec.json.encode(Record(record.platform, claims, record.ops))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(encoded, indent=1) + b"\n")


class Recorder:
    """Keeps what a run of the kit sees in a file. `on` says what it ran on, in words."""

    def __init__(self, path: Path, on: str) -> None:
        self.path = path
        self.on = on
        self._date = datetime.now(UTC).date().isoformat()
        self._record = Record("")

    def open(self, subject: Subject) -> None:
        """Read the file, and write how each op runs. Raises `UserError` if it is another platform's."""
        self._record = read_record(self.path, subject.chosen.found.spec.name)
        self._record.ops = support(subject)
        write_record(self._record, self.path)

    def add(self, results: Sequence[Result]) -> None:
        """Write what came of the checks."""
        self._record.add(results, self._date, self.on)
        write_record(self._record, self.path)


def claims_table(records: Iterable[Record]) -> str:
    """A row a platform, a column a claim, and what it was tried on."""
    lines = [_line(["platform", *CLAIMS, "on"]), _line(["---"] * (len(CLAIMS) + 2))]
    for record in records:
        claims = [record.claim(name) for name in CLAIMS]
        places = "; ".join(dict.fromkeys(claim.on for claim in claims if claim.on))
        lines.append(_line([f"`{record.platform}`", *(claim.cell for claim in claims), places]))
    return "\n".join(lines)


def columns(records: Iterable[Record]) -> Mapping[str, Mapping[str, str]]:
    """How ops run, by platform, as `markdown` of the kit's support takes it; without those that have no ops."""
    return {f"`{record.platform}`": record.ops for record in records if set(record.ops.values()) != {OWN}}


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
