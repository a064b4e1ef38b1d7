"""One text or a pair in token ids, cut to a length with the model's special tokens still around it."""

from __future__ import annotations

from dataclasses import dataclass

import tokenizers

from anychip.errors import RequestError
from anychip.text.tokenizer import Tokenizer

FIELD = "truncate_prompt_tokens"


@dataclass(frozen=True, slots=True)
class TokenizedTexts:
    """Token ids of a prompt, and the index of the first one of its second text, where the tokenizer marks it."""

    token_ids: list[int]
    second: int | None = None


def encode_texts(
    tokenizer: Tokenizer, text: str, second: str | None, limit: int | None, add_special_tokens: bool = True
) -> TokenizedTexts:
    """Tokenize a text, or a pair as a cross-encoder takes it; keep at most `limit` tokens, the first ones.

    Of a pair the longer text is cut first. Raises `RequestError` where `limit` leaves no room for the texts.
    """
    backend = tokenizer.backend
    if limit is None:
        found = backend.encode(text, second, add_special_tokens=add_special_tokens)
        return _texts(found)
    parts = [backend.encode(part, add_special_tokens=False) for part in (text, second) if part is not None]
    special = backend.num_special_tokens_to_add(second is not None) if add_special_tokens else 0
    room = limit - special
    if room < len(parts):
        raise RequestError(
            f"{FIELD} {limit} leaves no room for the text beside {special} special tokens.",
            FIELD,
            f"Use at least {special + len(parts)}.",
        )
    for part, count in zip(parts, _shares([len(part.ids) for part in parts], room), strict=True):
        part.truncate(count)
    return _texts(backend.post_process(parts[0], parts[1] if second is not None else None, add_special_tokens))


def cut(token_ids: list[int], limit: int | None) -> list[int]:
    """The first `limit` of some ids."""
    return token_ids if limit is None else token_ids[:limit]


def _shares(lengths: list[int], room: int) -> list[int]:
    """How many tokens of each text stay: whole texts while they fit, then equal parts, the first one's the larger."""
    if sum(lengths) <= room or len(lengths) == 1:
        return [min(length, room) for length in lengths]
    first, second = lengths
    half = room // 2
    if second <= half:
        return [room - second, second]
    if first <= room - half:
        return [first, room - first]
    return [room - half, half]


def _texts(encoding: tokenizers.Encoding) -> TokenizedTexts:
    types: list[int] = encoding.type_ids
    return TokenizedTexts(list(encoding.ids), types.index(1) if 1 in types else None)
