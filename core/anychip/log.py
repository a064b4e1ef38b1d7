"""One logger, one line a message, on standard error: for people, or as JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

logger = logging.getLogger("anychip")

_OF_EVERY_RECORD = frozenset(logging.makeLogRecord({}).__dict__) | {"asctime", "message", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (UTC), `level`, `message`, `exception`, and what a call gave as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """The record on one line."""
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        entry |= {name: value for name, value in record.__dict__.items() if name not in _OF_EVERY_RECORD}
        return json.dumps(entry, default=str)


def setup_logging(level: str, log_format: str = "text") -> None:
    """Print messages of `level` and above as `HH:MM:SS level message`, or each as a JSON object."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
    handler.setFormatter(JsonFormatter() if log_format == "json" else text)
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
