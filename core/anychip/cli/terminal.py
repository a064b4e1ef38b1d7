"""Writing a model's text to a terminal or a pipe."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TextIO

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def writer(stream: TextIO) -> Callable[[str], None]:
    """A function that writes text at once. A terminal gets no control characters: a model must not steer it."""
    visible = stream.isatty()

    def write(text: str) -> None:
        stream.write(_CONTROL.sub("", text) if visible else text)
        stream.flush()

    return write
