"""Text to token ids and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

import tokenizers

from anychip.errors import RequestError
from anychip.text.chat_template import ChatTemplate
from anychip.text.detokenizer import ByteDetokenizer, IncrementalDetokenizer, WindowDetokenizer
from anychip.text.token_bytes import find_byte_rule

_LONG = 16_384
"""Characters of a text that is tokenized in another way, with the same ids."""


class Tokenizer:
    """One model's tokenizer.

    `special_tokens` maps roles (`bos_token`, `eos_token`, ...) to tokens, for templates as well.
    `chat_templates` maps names to Jinja sources; `default` is the usual one.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        special_tokens: Mapping[str, str],
        chat_templates: Mapping[str, str] | None = None,
    ) -> None:
        self.backend = backend
        self.special_tokens = dict(special_tokens)
        self.chat_templates = dict(chat_templates or {})
        self._byte_rule = find_byte_rule(backend)
        self._bytes: dict[int, bytes] = {}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; `add_special_tokens` puts what the model expects around it, such as a BOS.

        Raises `RequestError` for a text with half a surrogate pair, as bytes become that are no UTF-8.
        """
        try:
            return self._encode(text, add_special_tokens)
        except TypeError:
            raise RequestError("The text is no valid Unicode.", "prompt", "Send UTF-8.") from None

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        if len(text) > _LONG:  # in this form it keeps no place of each token and lets other threads run
            (encoding,) = self.backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        else:
            encoding = self.backend.encode(text, add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return ids

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of token ids: what a stream of the same ids joins to. Unknown ids give nothing."""
        if self._byte_rule is None:
            return self._backend_decode(skip_special_tokens)(list(token_ids))
        detokenizer = self.stream(skip_special_tokens)
        return "".join([*map(detokenizer.push, token_ids), detokenizer.flush()])

    def stream(
        self, skip_special_tokens: bool = True, prompt_ids: Sequence[int] = (), visible: Sequence[str] = ()
    ) -> IncrementalDetokenizer:
        """A detokenizer for one output that continues `prompt_ids`; `visible` special tokens are not skipped."""
        skipped = self._special_ids if skip_special_tokens else frozenset()
        if visible:
            skipped -= {self.token_to_id(token) for token in visible}
        if self._byte_rule is not None:
            return ByteDetokenizer(partial(self._visible_bytes, skipped), self._byte_rule, prompt_ids)
        decode = self._backend_decode(skip_special_tokens and not visible)
        return WindowDetokenizer(decode, skipped.__contains__, prompt_ids)

    def id_to_token(self, token_id: int) -> str | None:
        """The token as the vocabulary spells it; None for an id without one."""
        token: str | None = self.backend.id_to_token(token_id) if 0 <= token_id < 1 << 32 else None
        return token

    def token_to_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it."""
        token_id: int | None = self.backend.token_to_id(token)
        return token_id

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for, which need not be whole characters; empty for an id without a token."""
        return self._token_bytes(token_id)

    def is_special(self, token_id: int) -> bool:
        """Whether `skip_special_tokens` leaves this id out."""
        return token_id in self._special_ids

    @property
    def all_special_ids(self) -> list[int]:
        """Ids that `skip_special_tokens` leaves out, in order."""
        return sorted(self._special_ids)

    @cached_property
    def vocab_size(self) -> int:
        """The largest id plus one, added tokens included."""
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @property
    def bos_token(self) -> str | None:
        """The token that begins a text."""
        return self.special_tokens.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        """The token that ends a text."""
        return self.special_tokens.get("eos_token")

    @property
    def bos_token_id(self) -> int | None:
        """Id of `bos_token`."""
        return None if self.bos_token is None else self.token_to_id(self.bos_token)

    @property
    def eos_token_id(self) -> int | None:
        """Id of `eos_token`."""
        return None if self.eos_token is None else self.token_to_id(self.eos_token)

    @cached_property
    def adds_bos(self) -> bool:
        """Whether `encode` begins even an empty text with a BOS."""
        ids = self.encode("")
        return bool(ids) and ids[0] == self.bos_token_id

    @property
    def chat_template(self) -> str | None:
        """Source of the model's usual chat template."""
        return self.chat_templates.get("default")

    @cached_property
    def chat(self) -> ChatTemplate | None:
        """The compiled chat template, None for a model without one."""
        return ChatTemplate(self.chat_templates, self.special_tokens) if self.chat_templates else None

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        added = self.backend.get_added_tokens_decoder()
        return frozenset(token_id for token_id, token in added.items() if token.special)

    def _token_bytes(self, token_id: int) -> bytes:
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._spell(token_id)
        return known

    def _visible_bytes(self, skipped: frozenset[int], token_id: int) -> bytes:
        return b"" if token_id in skipped else self._token_bytes(token_id)

    def _spell(self, token_id: int) -> bytes:
        token = self.id_to_token(token_id)
        if token is None:
            return b""
        if self._byte_rule is None:
            return self._backend_decode(False)([token_id]).encode("utf-8")
        return self._byte_rule.encode(token)

    def _backend_decode(self, skip_special_tokens: bool) -> Callable[[list[int]], str]:
        def decode(token_ids: list[int]) -> str:
            text: str = self.backend.decode(token_ids, skip_special_tokens=skip_special_tokens)
            return text

        return decode
