"""A model's vocabulary in the form that grammars are matched against."""

from __future__ import annotations

from collections.abc import Sequence

from llguidance import LLTokenizer, TokenizerWrapper

from anychip.text.tokenizer import Tokenizer


def grammar_vocabulary(tokenizer: Tokenizer, size: int, eos_ids: Sequence[int]) -> LLTokenizer:
    """The tokens of a model with `size` logits; some tenths of a second of work for a large vocabulary."""
    return LLTokenizer(TokenizerWrapper(_Wrapped(tokenizer, size, eos_ids)), eos_token=list(eos_ids) or [size])


class _Wrapped:
    """What llguidance asks of a tokenizer. A model without an end of sequence gets one that it cannot sample."""

    def __init__(self, tokenizer: Tokenizer, size: int, eos_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        special = {token for token in (*tokenizer.all_special_ids, *eos_ids) if token < size}
        self.tokens = [tokenizer.token_bytes(token) for token in range(size)]
        for token in eos_ids:
            self.tokens[token] = self.tokens[token] or b"<eos>"
        if not eos_ids:
            special.add(size)
            self.tokens.append(b"<eos>")
        self.special_token_ids = sorted(special)
        self._ids = {data: token for token, data in enumerate(self.tokens) if data and token not in special}
        self._longest = max(map(len, self._ids), default=0)
        self.eos_token_id = eos_ids[0] if eos_ids else size
        self.bos_token_id = tokenizer.bos_token_id

    def __call__(self, data: bytes) -> list[int]:
        """Token ids whose bytes join to `data`, those of the tokenizer where it adds nothing of its own."""
        ids = self._tokenizer.encode(data.decode("utf-8", "replace"), False)
        if b"".join(self.tokens[token] for token in ids) == data:
            return ids
        return self._longest_matches(data)

    def _longest_matches(self, data: bytes) -> list[int]:
        """The longest token that fits, again and again; what no token begins is left out."""
        ids: list[int] = []
        while data:
            length = next((n for n in range(min(len(data), self._longest), 0, -1) if data[:n] in self._ids), 0)
            if not length:
                break
            ids.append(self._ids[data[:length]])
            data = data[length:]
        return ids
