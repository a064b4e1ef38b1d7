"""What a request asks of a vector: an embedding, the labels of a text, the score of a pair."""

from __future__ import annotations

from typing import Any

import msgspec

from anychip.errors import RequestError

WHOLE_CONTEXT = -1
"""Of `truncate_prompt_tokens`: as much as the model takes."""


class PoolingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a request for vectors; names are those of vLLM.

    Raises `RequestError` naming the field when a value is out of range.
    """

    truncate_prompt_tokens: int | None = None
    """Keep at most this many tokens of a text, the first ones; -1 keeps what the model takes."""
    dimensions: int | None = None
    """Keep the first values of an embedding only, as Matryoshka models allow."""
    use_activation: bool | None = None
    """Normalize an embedding, turn labels into probabilities; None does what the model's files say."""

    def __post_init__(self) -> None:
        _check_integer("truncate_prompt_tokens", self.truncate_prompt_tokens, (WHOLE_CONTEXT,))
        _check_integer("dimensions", self.dimensions)
        if self.use_activation is not None and not isinstance(self.use_activation, bool):
            raise RequestError(f"use_activation must be true or false, got {self.use_activation!r}.", "use_activation")


def _check_integer(name: str, value: Any, besides: tuple[int, ...] = ()) -> None:
    if value is None or value in besides:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        also = f", or {besides[0]}" if besides else ""
        raise RequestError(f"{name} must be a positive integer{also}, got {value!r}.", name)
