"""/v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from anychip.errors import RequestError
from anychip_api.answer import Head
from anychip_api.anthropic.answer import MessageAnswer
from anychip_api.anthropic.as_chat import NAMES, chat_fields
from anychip_api.anthropic.schema import CountTokensRequest, MessagesRequest
from anychip_api.as_chat import chat_request, start_as_chat
from anychip_api.body import read_schema
from anychip_api.conversation import render_chat
from anychip_api.long_text import encode_prompt
from anychip_api.sampling import renamed
from anychip_api.service import Service
from anychip_api.tools import read_tools


async def create_message(service: Service, request: Request) -> Response:
    """Answer a conversation."""
    body, headers = await read_schema(service, request, MessagesRequest)
    model = service.model_name(body.model)
    message_id = f"msg_{request.scope['request_id']}"
    generation, reading = await start_as_chat(service, chat_fields(body), NAMES, message_id)
    answer = MessageAnswer(generation, Head(message_id, model), bool(body.stream), reading)
    return await answer.respond(request, headers)


async def count_tokens(service: Service, request: Request) -> Response:
    """How many tokens a conversation has, tools and system prompt included."""
    body, headers = await read_schema(service, request, CountTokensRequest)
    service.model_name(body.model)
    chat = chat_request(chat_fields(body), NAMES)
    try:
        text = render_chat(service, chat, read_tools(chat.tools, chat.tool_choice, chat.parallel_tool_calls))
        token_ids = await encode_prompt(service, text, False, "messages")
    except RequestError as error:
        raise renamed(error, NAMES) from None
    answer = msgspec.json.encode({"input_tokens": len(token_ids)})
    return Response(answer, headers=headers, media_type="application/json")
