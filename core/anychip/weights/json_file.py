"""JSON files that come with a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from anychip.errors import UserError


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; raises `UserError` if it cannot be read or holds something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.", "Check the path and its permissions.") from None
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}.", "Download it again.") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} holds no JSON object.", "Download it again.")
    return value


def read_optional_json_object(path: Path) -> dict[str, Any]:
    """Like `read_json_object`, and an empty object if there is no such file."""
    return read_json_object(path) if path.is_file() else {}
