"""The bytes behind each token, for decoders whose tokens are byte strings laid end to end.

That is so for byte-level vocabularies and for sentencepiece with byte fallback, which is nearly every language
model. Text is then the UTF-8 reading of the joined bytes, and streaming needs no second decode.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, NamedTuple

from tokenizers import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class ByteRule(NamedTuple):
    """How a decoder turns a token into bytes.

    `byte_level`: each character spells one byte. Otherwise `replacements` are made and `<0xAB>` is a byte.
    `strip`: how many characters `strip_character` are taken off the beginning of the whole text.
    """

    byte_level: bool
    replacements: tuple[tuple[str, str], ...] = ()
    strip: int = 0
    strip_character: str = " "

    def encode(self, token: str) -> bytes:
        """The bytes of one token."""
        if self.byte_level:
            return _spelled_bytes(token)
        for old, new in self.replacements:
            token = token.replace(old, new)
        match = _BYTE_TOKEN.fullmatch(token)
        return bytes([int(match[1], 16)]) if match else token.encode("utf-8")


def find_byte_rule(backend: Tokenizer) -> ByteRule | None:
    """The rule of a tokenizer's decoder, or None for a decoder that is not a plain joining of bytes."""
    if backend.decoder is None:
        return None
    state: dict[str, Any] = json.loads(backend.decoder.__getstate__())
    steps = state["decoders"] if state["type"] == "Sequence" else [state]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return ByteRule(byte_level=True)
    head = [step for step in steps if step["type"] == "Replace"]
    tail = kinds[len(head) :]
    plain = all("String" in step["pattern"] for step in head)
    if not plain or tail not in (["ByteFallback"], ["ByteFallback", "Fuse"], ["ByteFallback", "Fuse", "Strip"]):
        return None
    replacements = tuple((step["pattern"]["String"], step["content"]) for step in head)
    if tail[-1] != "Strip":
        return ByteRule(byte_level=False, replacements=replacements)
    last = steps[-1]
    if last["stop"] != 0:
        return None
    return ByteRule(False, replacements, last["start"], last["content"])


@cache
def _byte_spelling() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes stand for themselves, the rest for characters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    spelling = {chr(byte): byte for byte in printable}
    spelling.update({chr(256 + index): byte for index, byte in enumerate(hidden)})
    return spelling


def _spelled_bytes(token: str) -> bytes:
    spelling = _byte_spelling()
    try:
        return bytes([spelling[character] for character in token])
    except KeyError:  # an added token is not spelled in the byte alphabet
        return token.encode("utf-8")
