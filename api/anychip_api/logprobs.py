"""Log-probabilities in the shapes of OpenAI's two routes, and vLLM's prompt_logprobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from anychip.engine.outputs import TokenLogprobs
from anychip.text.detokenizer import IncrementalDetokenizer
from anychip.text.tokenizer import Tokenizer
from anychip_api.tokens import TokenTexts

LOWEST = -9999.0
"""Stands for minus infinity, which JSON cannot write."""


class TextOffsets:
    """Where each token begins in the text of its choice; a character split over tokens belongs to its last one."""

    def __init__(self, detokenizer: IncrementalDetokenizer | None, start: int = 0) -> None:
        self._detokenizer = detokenizer
        self._offset = start

    def add(self, token_id: int) -> int:
        """The offset of the next token."""
        offset = self._offset
        if self._detokenizer is not None:
            self._offset += len(self._detokenizer.push(token_id))
        return offset


def prompt_offsets(tokenizer: Tokenizer | None, token_ids: Sequence[int], text: str) -> list[int]:
    """Where each token of an echoed prompt begins; a BOS that the tokenizer put in front takes no room."""
    if tokenizer is None:
        return [0] * len(token_ids)
    bos = tokenizer.bos_token
    added = bool(token_ids) and token_ids[0] == tokenizer.bos_token_id and not (bos and text.startswith(bos))
    offsets = TextOffsets(tokenizer.stream(skip_special_tokens=False))
    starts = [0] * added + [offsets.add(token_id) for token_id in token_ids[added:]]
    return [min(start, len(text)) for start in starts]


def completion_columns() -> dict[str, list[Any]]:
    """An empty logprobs object of /v1/completions."""
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


def add_completion_rows(
    columns: dict[str, list[Any]],
    texts: TokenTexts,
    rows: Iterable[tuple[int, int, TokenLogprobs | None]],
    as_ids: bool,
) -> None:
    """Append (token id, text offset, log-probabilities) rows; a prompt's first token has no log-probabilities."""
    for token_id, offset, position in rows:
        columns["tokens"].append(texts.show(token_id, as_ids)[0])
        columns["text_offset"].append(offset)
        if position is None:
            columns["token_logprobs"].append(None)
            columns["top_logprobs"].append(None)
            continue
        columns["token_logprobs"].append(_finite(position[token_id].logprob))
        top: dict[str, float] = {}
        for other_id, other in position.items():
            top.setdefault(texts.show(other_id, as_ids)[0], _finite(other.logprob))
        columns["top_logprobs"].append(top)


def chat_rows(
    texts: TokenTexts, token_ids: Iterable[int], positions: Iterable[TokenLogprobs], top: int, as_ids: bool
) -> list[dict[str, Any]]:
    """Entries of `logprobs.content`, each with the `top` best alternatives from the best on."""
    rows: list[dict[str, Any]] = []
    for token_id, position in zip(token_ids, positions, strict=True):
        best = sorted(position.items(), key=lambda item: item[1].rank)[:top]
        entry = _chat_token(texts, token_id, position[token_id].logprob, as_ids)
        entry["top_logprobs"] = [_chat_token(texts, other_id, other.logprob, as_ids) for other_id, other in best]
        rows.append(entry)
    return rows


def prompt_rows(texts: TokenTexts, positions: Sequence[TokenLogprobs | None]) -> list[dict[str, Any] | None]:
    """vLLM's `prompt_logprobs`: by token id, None for the first token."""
    return [None if position is None else _by_id(texts, position) for position in positions]


def _by_id(texts: TokenTexts, position: TokenLogprobs) -> dict[str, Any]:
    return {
        str(token_id): {
            "logprob": _finite(one.logprob),
            "rank": one.rank,
            "decoded_token": texts.show(token_id)[0],
        }
        for token_id, one in position.items()
    }


def _chat_token(texts: TokenTexts, token_id: int, logprob: float, as_ids: bool) -> dict[str, Any]:
    text, data = texts.show(token_id, as_ids)
    return {"token": text, "logprob": _finite(logprob), "bytes": data}


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)
