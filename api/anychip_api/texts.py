"""/tokenize, /detokenize and /tokenizer_info, in vLLM's shapes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from anychip.errors import RequestError
from anychip_api.body import read_schema
from anychip_api.conversation import render_chat
from anychip_api.long_text import encode
from anychip_api.schemas import DetokenizeRequest, TokenizeRequest
from anychip_api.service import Service
from anychip_api.tools import read_tools


async def tokenize(service: Service, request: Request) -> Response:
    """Token ids of a prompt, or of messages in the chat template."""
    body, headers = await read_schema(service, request, TokenizeRequest)
    service.model_name(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise RequestError("Exactly one of prompt and messages is required.", "prompt", "Send one of them.")
    tokenizer = service.tokenizer("prompt")
    if body.prompt is None:
        text = render_chat(service, body, read_tools(body.tools, None, None))
        token_ids = await encode(service, text, bool(body.add_special_tokens), "messages")
    else:
        token_ids = await encode(service, body.prompt, body.add_special_tokens is not False, "prompt")
    answer: dict[str, Any] = {
        "count": len(token_ids),
        "max_model_len": service.engine.info.max_model_len,
        "tokens": token_ids,
        "token_strs": [tokenizer.id_to_token(one) for one in token_ids] if body.return_token_strs else None,
    }
    return _json(answer, headers)


async def detokenize(service: Service, request: Request) -> Response:
    """Text of token ids, special tokens included."""
    body, headers = await read_schema(service, request, DetokenizeRequest)
    service.model_name(body.model)
    tokenizer = service.tokenizer("tokens")
    service.check_token_ids(body.tokens, "tokens")
    text = await asyncio.to_thread(tokenizer.decode, body.tokens, bool(body.skip_special_tokens))
    return _json({"prompt": text}, headers)


async def tokenizer_info(service: Service, request: Request) -> Response:
    """Special tokens and chat template, for clients that tokenize by this server."""
    del request
    tokenizer = service.tokenizer("tokenizer")
    template = tokenizer.chat_templates.get("default")
    return _json({**tokenizer.special_tokens, "chat_template": template}, {})


def _json(answer: dict[str, Any], headers: dict[str, str]) -> Response:
    return Response(msgspec.json.encode(answer), headers=headers, media_type="application/json")
