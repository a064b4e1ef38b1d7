"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from anychip.engine.outputs import Delta, TokenLogprobs
from anychip.errors import RequestError
from anychip_api.answer import Head
from anychip_api.body import read_schema
from anychip_api.choices import Choice, ChoicesAnswer
from anychip_api.generation import Generation, start
from anychip_api.logprobs import chat_rows, prompt_rows
from anychip_api.sampling import chat_params, check_streaming, renamed
from anychip_api.schemas import ChatRequest, TokenizeRequest
from anychip_api.service import Service

_TOOL_FIELDS = ("tool_calls", "function_call")
_TOOL_ROLES = ("tool", "function")


async def create_chat_completion(service: Service, request: Request) -> Response:
    """Answer a conversation."""
    body, headers = await read_schema(service, request, ChatRequest)
    model = service.model_name(body.model)
    check_streaming(body)
    request_id = f"chatcmpl-{request.scope['request_id']}"
    generation = start_chat(service, body, request_id)
    answer = ChatAnswer(service, body, generation, Head(request_id, model))
    return await answer.respond(request, headers)


def start_chat(service: Service, body: ChatRequest, request_id: str) -> Generation:
    """Begin to answer a conversation; raises `RequestError` about a field of `body`."""
    names = {"prompt": "messages", "logprobs": "top_logprobs"}
    if body.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    try:
        params = chat_params(body, service.engine.default_sampling)
        return start(service, body, [chat_token_ids(service, body)], params, request_id)
    except RequestError as error:
        raise renamed(error, names) from None


def chat_token_ids(service: Service, body: ChatRequest | TokenizeRequest) -> list[int]:
    """Token ids of a conversation in the model's chat template."""
    messages = body.messages or []
    for message in messages:
        _refuse_tools(message)
    tokenizer = service.tokenizer("messages")
    template = service.engine.chat_template
    if template is None:
        raise RequestError(
            "The model has no chat template.",
            "messages",
            "Start the server with --chat-template, or use /v1/completions.",
        )
    continues = bool(body.continue_final_message)
    generates = body.add_generation_prompt if body.add_generation_prompt is not None else not continues
    variables = dict(body.chat_template_kwargs or {})
    if body.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", body.reasoning_effort)
    text = template.render(
        messages, add_generation_prompt=generates, continue_final_message=continues, variables=variables
    )
    return tokenizer.encode(text, add_special_tokens=bool(body.add_special_tokens))


def _refuse_tools(message: Mapping[str, Any]) -> None:
    used = [name for name in _TOOL_FIELDS if message.get(name)]
    if used or message.get("role") in _TOOL_ROLES:
        what = used[0] if used else f"the role {message['role']!r}"
        raise RequestError(f"Messages with {what} are not supported.", "messages", "Leave out tool calls and results.")


class ChatAnswer(ChoicesAnswer):
    """OpenAI's `chat.completion`."""

    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"
    request: ChatRequest

    def __init__(self, service: Service, request: ChatRequest, generation: Generation, head: Head) -> None:
        super().__init__(service, request, generation, head)
        self._begun: set[int] = set()

    def pieces(self, index: int, delta: Delta) -> list[dict[str, Any]]:
        """The role first, then content, then the finish reason with an empty delta."""
        number = self.number(index, delta)
        pieces: list[dict[str, Any]] = []
        if number not in self._begun:
            self._begun.add(number)
            pieces.append(_piece(number, {"role": "assistant", "content": ""}))
            if self.with_token_ids:
                pieces[0]["prompt_token_ids"] = self.generation.streams[index].prompt_token_ids
        logprobs = self._logprobs(delta.token_ids, delta.logprobs)
        if delta.text or logprobs or (self.with_token_ids and delta.token_ids):
            piece = _piece(number, {"content": delta.text})
            piece["logprobs"] = logprobs
            if self.with_token_ids:
                piece["token_ids"] = delta.token_ids
            pieces.append(piece)
        if delta.finish_reason:
            pieces.append({**_piece(number, {}, delta.finish_reason), "stop_reason": delta.stop_reason})
        return pieces

    def choice(self, index: int, number: int, choice: Choice) -> dict[str, Any]:
        """A complete choice."""
        entry: dict[str, Any] = {
            "index": number,
            "message": {"role": "assistant", "content": "".join(choice.texts), "refusal": None},
            "logprobs": self._logprobs(choice.token_ids, choice.logprobs),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
        }
        if self.with_token_ids:
            entry["token_ids"] = choice.token_ids
        return entry

    def extras(self) -> dict[str, Any]:
        """What vLLM says about the prompt."""
        stream = self.generation.streams[0]
        extras: dict[str, Any] = {}
        if self.with_token_ids:
            extras["prompt_token_ids"] = stream.prompt_token_ids
        if self.request.prompt_logprobs is not None:
            extras["prompt_logprobs"] = prompt_rows(self.service.token_texts, stream.prompt_logprobs or [])
        return extras

    def _logprobs(self, token_ids: list[int], positions: list[TokenLogprobs] | None) -> dict[str, Any] | None:
        if not self.request.logprobs or not positions:
            return None
        texts = self.service.token_texts
        return {"content": chat_rows(texts, token_ids, positions, self.request.top_logprobs or 0, self.as_ids)}


def _piece(number: int, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": number, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
