"""Token ids as the strings and bytes that log-probabilities show."""

from __future__ import annotations

from anychip.text.tokenizer import Tokenizer


class TokenTexts:
    """How each token is shown: its text, and its bytes.

    A token that is only part of a character is written `bytes:\\xf0\\x9f`, as OpenAI does. Without a tokenizer, or
    where a request asks for ids, it is `token_id:N`.
    """

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, tuple[str, list[int]]] = {}

    def show(self, token_id: int, as_id: bool = False) -> tuple[str, list[int]]:
        """The text and the bytes of one token."""
        if as_id or self._tokenizer is None:
            return f"token_id:{token_id}", self._show(token_id)[1]
        return self._show(token_id)

    def _show(self, token_id: int) -> tuple[str, list[int]]:
        known = self._known.get(token_id)
        if known is None:
            data = self._tokenizer.token_bytes(token_id) if self._tokenizer else b""
            known = self._known[token_id] = (_readable(data), list(data))
        return known


def _readable(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
