"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from anychip.engine.outputs import Delta, TokenLogprobs
from anychip_api.answer import Head
from anychip_api.body import read_schema
from anychip_api.choices import Choice, ChoicesAnswer
from anychip_api.conversation import start_chat
from anychip_api.generation import Generation
from anychip_api.logprobs import chat_rows, prompt_rows
from anychip_api.parsers.parts import Message, Part, Reasoning, Text, ToolCall, ToolCallArguments, ToolCallStart
from anychip_api.reader import ChoiceReader, Reading
from anychip_api.sampling import check_streaming
from anychip_api.schemas import ChatRequest
from anychip_api.service import Service


async def create_chat_completion(service: Service, request: Request) -> Response:
    """Answer a conversation."""
    body, headers = await read_schema(service, request, ChatRequest)
    model = service.model_name(body.model)
    check_streaming(body)
    request_id = f"chatcmpl-{request.scope['request_id']}"
    generation, reading = await start_chat(service, body, request_id)
    answer = ChatAnswer(service, body, generation, Head(request_id, model), reading)
    return await answer.respond(request, headers)


class ChatAnswer(ChoicesAnswer):
    """OpenAI's `chat.completion`."""

    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"
    request: ChatRequest

    def __init__(
        self, service: Service, request: ChatRequest, generation: Generation, head: Head, reading: Reading
    ) -> None:
        super().__init__(service, request, generation, head)
        self._reading = reading
        self._readers: dict[int, ChoiceReader] = {}

    def pieces(self, index: int, delta: Delta) -> list[dict[str, Any]]:
        """The role first, then each part, then the finish reason with an empty delta."""
        number = self.number(index, delta)
        pieces: list[dict[str, Any]] = []
        reader = self._readers.get(number)
        if reader is None:
            reader = self._readers[number] = self._reading.reader()
            pieces.append(_piece(number, {"role": "assistant", "content": ""}))
            if self.with_token_ids:
                pieces[0]["prompt_token_ids"] = self.generation.streams[index].prompt_token_ids
        gained = reader.read(delta)
        logprobs = self._logprobs(delta.token_ids, delta.logprobs)
        shown = [_piece(number, _shown(part)) for part in gained.parts]
        if not shown and (logprobs or (self.with_token_ids and delta.token_ids)):
            shown = [_piece(number, {"content": ""})]
        if shown:
            shown[0]["logprobs"] = logprobs
            if self.with_token_ids:
                shown[0]["token_ids"] = delta.token_ids
        pieces += shown
        if gained.finish_reason:
            pieces.append({**_piece(number, {}, gained.finish_reason), "stop_reason": delta.stop_reason})
        return pieces

    def choice(self, index: int, number: int, choice: Choice) -> dict[str, Any]:
        """A complete choice."""
        whole = Delta(number, "".join(choice.texts), finish_reason=choice.finish_reason)
        gained = self._reading.reader().read(whole)
        entry: dict[str, Any] = {
            "index": number,
            "message": self._message(Message().add(gained.parts)),
            "logprobs": self._logprobs(choice.token_ids, choice.logprobs),
            "finish_reason": gained.finish_reason,
            "stop_reason": choice.stop_reason,
        }
        if self.with_token_ids:
            entry["token_ids"] = choice.token_ids
        return entry

    def _message(self, message: Message) -> dict[str, Any]:
        content = message.content if message.content or not message.tool_calls else None
        shown: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if message.tool_calls:
            shown["tool_calls"] = [_whole_call(call) for call in message.tool_calls]
        if self._reading.parsers.reasoning is not None:
            shown["reasoning_content"] = shown["reasoning"] = message.reasoning or None
        return shown

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


def _shown(part: Part) -> dict[str, Any]:
    """The `delta` of a part."""
    match part:
        case Text():
            return {"content": part.text}
        case Reasoning():
            return {"reasoning_content": part.text, "reasoning": part.text}
        case ToolCallStart():
            function = {"name": part.name, "arguments": ""}
            return {"tool_calls": [{"index": part.index, "id": part.id, "type": "function", "function": function}]}
        case ToolCallArguments():
            return {"tool_calls": [{"index": part.index, "function": {"arguments": part.text}}]}


def _whole_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
