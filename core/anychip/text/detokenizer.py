"""Text out of token ids as they come, each character once and whole."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol

from anychip.text.token_bytes import ByteRule

_REPLACEMENT = "\ufffd"
_LONGEST_CHARACTER = 4
_LONGEST_WAIT = 16
_CONTEXT_TOKENS = 8


class IncrementalDetokenizer(Protocol):
    """Turns the ids of one output into text. The pieces of `push` and `flush` join to the one-shot decode."""

    def push(self, token_id: int) -> str:
        """Text that is newly complete; a character split over tokens comes with its last token."""

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed, else nothing."""


class ByteDetokenizer:
    """For tokens that are byte strings: a UTF-8 reading of the joined bytes."""

    def __init__(self, token_bytes: Callable[[int], bytes], rule: ByteRule, prompt_ids: Sequence[int] = ()) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strip = rule.strip
        self._strip_character = rule.strip_character
        self._continue_prompt(prompt_ids)

    def push(self, token_id: int) -> str:
        """Text that is newly complete."""
        text = self._decoder.decode(self._token_bytes(token_id))
        return self._without_lead(text) if self._strip else text

    def flush(self) -> str:
        """What is left at the end."""
        text = self._decoder.decode(b"", final=True)
        return self._without_lead(text) if self._strip else text

    def _continue_prompt(self, prompt_ids: Sequence[int]) -> None:
        """Take over a character that the prompt ends in the middle of; only a text's beginning is stripped."""
        end = b""
        for token_id in reversed(prompt_ids):
            end = self._token_bytes(token_id) + end
            if len(end) >= _LONGEST_CHARACTER:
                break
        if end:
            self._decoder.decode(end)
            self._strip = 0

    def _without_lead(self, text: str) -> str:
        while self._strip and text:
            if not text.startswith(self._strip_character):
                self._strip = 0
                break
            text = text[len(self._strip_character) :]
            self._strip -= 1
        return text


class WindowDetokenizer:
    """For any other decoder: decodes a short window twice and takes what the new token added.

    The window begins at the last token that gave text, so its cost does not grow with the output.
    """

    def __init__(
        self, decode: Callable[[list[int]], str], skips: Callable[[int], bool], prompt_ids: Sequence[int] = ()
    ) -> None:
        self._decode = decode
        self._skips = skips
        self._ids = [token_id for token_id in prompt_ids[-_CONTEXT_TOKENS:] if not skips(token_id)]
        self._complete = len(self._ids)

    def push(self, token_id: int) -> str:
        """Text that is newly complete."""
        if self._skips(token_id):
            return ""
        self._ids.append(token_id)
        text = self._added()
        waiting = len(self._ids) - self._complete
        if not text or (text.endswith(_REPLACEMENT) and waiting < _LONGEST_WAIT):
            return ""
        self._advance()
        return text

    def flush(self) -> str:
        """What is left at the end."""
        text = self._added()
        self._advance()
        return text

    def _added(self) -> str:
        before = self._decode(self._ids[: self._complete])
        return self._decode(self._ids)[len(before) :]

    def _advance(self) -> None:
        self._ids = self._ids[self._complete :]
        self._complete = len(self._ids)
