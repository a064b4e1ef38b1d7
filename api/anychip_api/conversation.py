"""A conversation made ready: the prompt, how to sample, and how to read the answer.

Every route that answers a conversation goes this way: it brings its request into the form of a `ChatRequest`, calls
`start_chat`, and reads the deltas of each choice with a reader of its own, `reading.reader()`. What a reader gives are
the typed parts of `anychip_api.parsers.parts`; `Message` puts them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anychip.errors import RequestError
from anychip.sampling_params import SamplingParams
from anychip_api.constraint import callable_parser, constrain
from anychip_api.generation import Generation, start
from anychip_api.long_text import encode_prompt
from anychip_api.messages import prepare_message
from anychip_api.parsers.hermes import HermesToolParser
from anychip_api.parsers.registry import Parsers
from anychip_api.reader import Reading
from anychip_api.sampling import chat_params, renamed
from anychip_api.schemas import ChatRequest, TokenizeRequest
from anychip_api.service import Service
from anychip_api.structured import check_structure
from anychip_api.tools import Tools, read_tools


@dataclass(frozen=True, slots=True)
class PreparedChat:
    """A conversation in token ids, its sampling, and how its answers are read."""

    token_ids: list[int]
    params: SamplingParams
    reading: Reading


async def start_chat(service: Service, body: ChatRequest, request_id: str) -> tuple[Generation, Reading]:
    """Begin to answer a conversation; raises `RequestError` about a field of `body`."""
    names = {"prompt": "messages", "logprobs": "top_logprobs"}
    if body.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    try:
        prepared = await prepare_chat(service, body)
        return start(service, body, [prepared.token_ids], prepared.params, request_id), prepared.reading
    except RequestError as error:
        raise renamed(error, names) from None


async def prepare_chat(service: Service, body: ChatRequest) -> PreparedChat:
    """Check a chat request and render its prompt. Raises `RequestError`."""
    params = chat_params(body, service.engine.default_sampling)
    tools = read_tools(body.tools, body.tool_choice, body.parallel_tool_calls)
    parsers = _used_parsers(service.parsers, tools)
    text = render_chat(service, body, tools)
    token_ids = await encode_prompt(service, text, bool(body.add_special_tokens), "messages")
    reading = Reading(
        parsers=parsers,
        functions=tools.functions,
        prompt=text,
        named=tools.named,
        most_calls=_most_calls(tools),
        shows_reasoning=body.include_reasoning is not False,
    )
    params = constrain(params, tools, reading, service.tokenizer("messages"))
    await check_structure(service, body, params)
    return PreparedChat(token_ids, params.replace(visible_tokens=reading.markers), reading)


def render_chat(service: Service, body: ChatRequest | TokenizeRequest, tools: Tools) -> str:
    """The prompt of a conversation in the model's chat template."""
    service.tokenizer("messages")
    template = service.engine.chat_template
    if template is None:
        raise RequestError(
            "The model has no chat template.",
            "messages",
            "Start the server with --chat-template, or use /v1/completions.",
        )
    continues = bool(body.continue_final_message)
    generates = body.add_generation_prompt if body.add_generation_prompt is not None else not continues
    return template.render(
        [prepare_message(index, message) for index, message in enumerate(body.messages or ())],
        tools=_shown(tools),
        add_generation_prompt=generates,
        continue_final_message=continues,
        variables=_variables(body),
    )


def _variables(body: ChatRequest | TokenizeRequest) -> Mapping[str, Any]:
    variables = dict(body.chat_template_kwargs or {})
    if body.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", body.reasoning_effort)
    return variables


def _shown(tools: Tools) -> Sequence[Mapping[str, Any]] | None:
    """The tools for the template: none where none may be called."""
    return tools.definitions if tools.mode != "none" and tools.definitions else None


def _used_parsers(parsers: Parsers, tools: Tools) -> Parsers:
    """Without tools a text that looks like a call is just text."""
    if not tools.functions:
        return Parsers(reasoning=parsers.reasoning)
    if tools.mode == "required":
        return replace(parsers, tool=callable_parser(parsers.tool, HermesToolParser))
    if tools.mode == "auto" and parsers.tool is None:
        raise RequestError(
            "This server cannot read tool calls: no parser suits the model's chat template.",
            "tools",
            "Start it with --tool-call-parser, or leave tools out.",
        )
    return parsers


def _most_calls(tools: Tools) -> int | None:
    if tools.mode == "none":
        return 0
    return None if tools.parallel else 1
