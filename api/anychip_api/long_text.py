"""Long texts are tokenized beside the event loop, and no further than the model could take."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from anychip.errors import RequestError
from anychip.text.tokenizer import Tokenizer
from anychip_api.service import Service

LONG = 16_384
"""Characters that are tokenized at once, in a few milliseconds."""
_CHARACTERS_PER_TOKEN = 8
"""A text is looked at so far first: most that are longer than that cannot fit."""
_EDGE = 64
"""Tokens at the end of a part that may come out otherwise in the whole text."""


async def encode(service: Service, text: str, add_special_tokens: bool, param: str) -> list[int]:
    """Token ids of a text of any length; others' requests go on meanwhile. Raises `RequestError` about `param`."""
    tokenizer = service.tokenizer(param)
    if len(text) <= LONG:
        return tokenizer.encode(text, add_special_tokens)
    return await asyncio.to_thread(tokenizer.encode, text, add_special_tokens)


async def encode_prompt(service: Service, text: str, add_special_tokens: bool, param: str) -> list[int]:
    """The same for a prompt, which has to fit: one that cannot is refused before it is tokenized to its end."""
    limit = service.engine.info.max_model_len
    part = text[: max(LONG, limit * _CHARACTERS_PER_TOKEN)]
    if len(part) < len(text):
        await asyncio.to_thread(_check_length, service.tokenizer(param), part, limit, param)
    return await encode(service, text, add_special_tokens, param)


async def encode_long(service: Service, prompts: Sequence[Any], add_special_tokens: bool) -> list[Any]:
    """Prompts whose long texts have come to token ids already; the engine tokenizes the short ones."""
    return [
        {"prompt": prompt, "prompt_token_ids": await encode_prompt(service, prompt, add_special_tokens, "prompt")}
        if isinstance(prompt, str) and len(prompt) > LONG
        else prompt
        for prompt in prompts
    ]


def _check_length(tokenizer: Tokenizer, part: str, limit: int, param: str) -> None:
    count = len(tokenizer.encode(part, add_special_tokens=False)) - _EDGE
    if count > limit:
        raise RequestError(
            f"This model's maximum context length is {limit} tokens, but the prompt has more than {count} tokens.",
            param,
            "Shorten the prompt, or start the server with a larger --max-model-len.",
        )
