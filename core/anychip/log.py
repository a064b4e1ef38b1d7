"""One logger, one line a message, on standard error."""

from __future__ import annotations

import logging

logger = logging.getLogger("anychip")


def setup_logging(level: str) -> None:
    """Print messages of `level` and above as `HH:MM:SS level message`."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S"))
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
