"""POST /v1/completions."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from anychip.engine.outputs import Delta, TokenLogprobs
from anychip.errors import RequestError
from anychip_api.answer import Head
from anychip_api.body import read_schema
from anychip_api.choices import Choice, ChoicesAnswer
from anychip_api.generation import Generation, Prompt, start
from anychip_api.logprobs import (
    TextOffsets,
    add_completion_rows,
    completion_columns,
    prompt_offsets,
    prompt_rows,
)
from anychip_api.long_text import encode_long
from anychip_api.sampling import check_streaming, completion_params
from anychip_api.schemas import CompletionRequest
from anychip_api.service import Service
from anychip_api.structured import check_structure


async def create_completion(service: Service, request: Request) -> Response:
    """Continue one or more prompts."""
    body, headers = await read_schema(service, request, CompletionRequest)
    model = service.model_name(body.model)
    check_streaming(body)
    params = completion_params(body, service.engine.default_sampling)
    await check_structure(service, body, params)
    prompts = await encode_long(service, read_prompts(body.prompt), body.add_special_tokens is not False)
    request_id = f"cmpl-{request.scope['request_id']}"
    generation = start(service, body, prompts, params, request_id)
    answer = CompletionAnswer(service, body, generation, Head(request_id, model))
    return await answer.respond(request, headers)


def read_prompts(prompt: Any) -> list[Prompt]:
    """The prompts of a request: text, token ids, or a list of either; raises `RequestError` for anything else."""
    if prompt is None:
        raise RequestError("prompt is required.", "prompt", "Send text, token ids, or a list of either.")
    if isinstance(prompt, str) or _are_ids(prompt):
        return [prompt]
    if isinstance(prompt, list) and prompt and all(isinstance(one, str) or _are_ids(one, True) for one in prompt):
        return list(prompt)
    what = "is an empty list" if prompt == [] else "is neither text, token ids, nor a list of either"
    raise RequestError(f"prompt {what}.", "prompt", 'Send for example "text", [1, 2, 3], or ["one", "two"].')


def _are_ids(value: Any, may_be_empty: bool = False) -> bool:
    return isinstance(value, list) and (bool(value) or may_be_empty) and {*map(type, value)} <= {int}


class CompletionAnswer(ChoicesAnswer):
    """OpenAI's `text_completion`."""

    object_name = chunk_name = "text_completion"
    request: CompletionRequest

    def __init__(self, service: Service, request: CompletionRequest, generation: Generation, head: Head) -> None:
        super().__init__(service, request, generation, head)
        self._offsets: dict[int, TextOffsets] = {}
        self._begun: set[int] = set()
        self._held: list[tuple[int, Delta]] = []
        self._scores_echo = bool(request.echo) and request.logprobs is not None
        self._scored: set[int] = set()

    def pieces(self, index: int, delta: Delta) -> list[dict[str, Any]]:
        """One chunk, or none when there is nothing to see. An echo's log-probabilities come with choice 0."""
        if not self._scores_echo or index in self._scored:
            return self._piece(index, delta)
        if delta.index != 0:
            self._held.append((index, delta))
            return []
        self._scored.add(index)
        ready = [(index, delta), *(item for item in self._held if item[0] == index)]
        self._held = [item for item in self._held if item[0] != index]
        return [piece for item in ready for piece in self._piece(*item)]

    def shown(self, choices: list[Choice]) -> list[Choice]:
        """With `best_of` the best ones: those with the highest log-probability a token, as OpenAI has it."""
        count = self.request.n or 1
        if count == len(choices):
            return choices
        return sorted(choices, key=lambda choice: choice.mean_logprob, reverse=True)[:count]

    def choice(self, index: int, number: int, choice: Choice) -> dict[str, Any]:
        """A complete choice."""
        text = self._echo(index) + "".join(choice.texts)
        entry = self._entry(index, number, text, choice.token_ids, choice.logprobs)
        entry["finish_reason"] = choice.finish_reason
        entry["stop_reason"] = choice.stop_reason
        stream = self.generation.streams[index]
        if self.with_token_ids:
            entry["prompt_token_ids"] = stream.prompt_token_ids
        if self.request.prompt_logprobs is not None:
            entry["prompt_logprobs"] = prompt_rows(self.service.token_texts, stream.prompt_logprobs or [])
        return entry

    def _piece(self, index: int, delta: Delta) -> list[dict[str, Any]]:
        number = self.number(index, delta)
        text = (self._echo(index) if number not in self._begun else "") + delta.text
        entry = self._entry(index, number, text, delta.token_ids, delta.logprobs or [])
        if self.with_token_ids and number not in self._begun:
            entry["prompt_token_ids"] = self.generation.streams[index].prompt_token_ids
        self._begun.add(number)
        if not (text or delta.finish_reason or entry["logprobs"] or self.with_token_ids):
            return []
        entry["finish_reason"] = delta.finish_reason
        entry["stop_reason"] = delta.stop_reason
        return [entry]

    def _echo(self, index: int) -> str:
        if not self.request.echo:
            return ""
        stream = self.generation.streams[index]
        if stream.prompt_text is not None:
            return stream.prompt_text
        tokenizer = self.service.engine.tokenizer
        return "" if tokenizer is None else tokenizer.decode(stream.prompt_token_ids, skip_special_tokens=False)

    def _entry(
        self, index: int, number: int, text: str, token_ids: list[int], logprobs: list[TokenLogprobs]
    ) -> dict[str, Any]:
        entry: dict[str, Any] = {"index": number, "text": text, "logprobs": None}
        if self.request.logprobs is not None:
            entry["logprobs"] = self._logprobs(index, number, token_ids, logprobs)
        if self.with_token_ids:
            entry["token_ids"] = token_ids
        return entry

    def _logprobs(
        self, index: int, number: int, token_ids: list[int], logprobs: list[TokenLogprobs]
    ) -> dict[str, list[Any]] | None:
        columns = completion_columns()
        texts = self.service.token_texts
        offsets = self._offsets.get(number)
        if offsets is None:
            offsets = self._offsets[number] = self._begin(index, columns)
        rows = [(token, offsets.add(token), one) for token, one in zip(token_ids, logprobs, strict=True)]
        add_completion_rows(columns, texts, rows, self.as_ids)
        return columns if columns["tokens"] else None

    def _begin(self, index: int, columns: dict[str, list[Any]]) -> TextOffsets:
        """Write an echo's rows; offsets go on behind the echo."""
        stream = self.generation.streams[index]
        tokenizer = self.service.engine.tokenizer
        echo = self._echo(index)
        if self._scores_echo:
            starts = prompt_offsets(tokenizer, stream.prompt_token_ids, echo)
            rows = zip(stream.prompt_token_ids, starts, stream.prompt_logprobs or [], strict=True)
            add_completion_rows(columns, self.service.token_texts, rows, self.as_ids)
        if tokenizer is None:
            return TextOffsets(None)
        skip = self.request.skip_special_tokens is not False
        return TextOffsets(tokenizer.stream(skip, stream.prompt_token_ids), len(echo))
