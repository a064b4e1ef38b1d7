"""Results of lanes whose environment few machines have, each recorded with a hash of the sources that it covers.

`python ci/recorded.py NAME` fails if any of them has changed since: the lane has to run again where its environment is.
`python ci/recorded.py NAME write < RESULT` records a result, as the lane does when it is called with `record`.

A record is ci/recorded/NAME.json; who adds a lane writes `covers`, patterns of files, and an empty `result`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from sources import ROOT

FOLDER = "ci/recorded"


def fingerprint(covers: list[str], root: Path = ROOT) -> str:
    """A hash over the names and contents of all files that match. Raises `ValueError` for a pattern without any."""
    digest = hashlib.sha256()
    for pattern in covers:
        found = sorted(path for path in root.glob(pattern) if path.is_file() and "__pycache__" not in path.parts)
        if not found:
            raise ValueError(f"no file matches {pattern}")
        for path in found:
            digest.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes() + b"\n")
    return digest.hexdigest()


def problem(record: dict[str, Any], name: str, root: Path = ROOT) -> str:
    """Why a record cannot be relied on, or nothing."""
    if record.get("sources") == fingerprint(record["covers"], root):
        return ""
    return f"the recorded result of lane {name} is older than the sources it covers: ci/lane_{name}.sh record"


def main() -> int:
    """Compare or write."""
    name, *mode = sys.argv[1:]
    path = ROOT / FOLDER / f"{name}.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    if mode == ["write"]:
        result = [line.rstrip() for line in sys.stdin]
        record = {"covers": record["covers"], "sources": fingerprint(record["covers"]), "result": result}
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"recorded: {len(result)} lines in {path.relative_to(ROOT)}")
        return 0
    found = problem(record, name)
    print(found or f"recorded: {name} is as new as its sources")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
