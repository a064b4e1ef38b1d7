"""POST /inference/v1/generate: token ids in, token ids out."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from anychip.engine.outputs import Delta, TokenLogprobs
from anychip_api.answer import Head
from anychip_api.body import read_schema
from anychip_api.choices import Choice, ChoicesAnswer
from anychip_api.errors import invalid_fields
from anychip_api.fields import check_extra_fields
from anychip_api.generation import start
from anychip_api.logprobs import chat_rows, prompt_rows
from anychip_api.sampling import check_streaming, completion_params
from anychip_api.schemas import CompletionRequest, TokensRequest
from anychip_api.service import Service
from anychip_api.structured import check_structure


async def generate_tokens(service: Service, request: Request) -> Response:
    """Continue a prompt in token ids."""
    body, headers = await read_schema(service, request, TokensRequest)
    model = service.model_name(body.model)
    completion = _as_completion(body, service.options.strict_fields)
    check_streaming(completion)
    params = completion_params(completion, service.engine.default_sampling)
    await check_structure(service, completion, params)
    request_id = body.request_id or request.scope["request_id"]
    await check_structure(service, completion, params)
    speaks = bool(params.stop)  # stop strings are found in text
    generation = start(service, completion, [body.token_ids], params.replace(detokenize=speaks), request_id)
    answer = TokensAnswer(service, completion, generation, Head(request_id, model))
    return await answer.respond(request, headers)


def _as_completion(body: TokensRequest, strict: bool) -> CompletionRequest:
    outer = {name: getattr(body, name) for name in body.OUTER}
    try:
        completion = CompletionRequest.model_validate(body.sampling() | outer)
    except ValidationError as error:
        raise invalid_fields(error) from None
    check_extra_fields(completion.model_extra or {}, strict)
    return completion


class TokensAnswer(ChoicesAnswer):
    """vLLM's shape of choices without text."""

    object_name = chunk_name = ""
    request: CompletionRequest

    def pieces(self, index: int, delta: Delta) -> list[dict[str, Any]]:
        """One chunk a delta."""
        del index
        return [self._entry(delta.index, delta.token_ids, delta.logprobs or [], delta.finish_reason)]

    def choice(self, index: int, number: int, choice: Choice) -> dict[str, Any]:
        """A complete choice."""
        del index
        return self._entry(number, choice.token_ids, choice.logprobs, choice.finish_reason)

    def extras(self) -> dict[str, Any]:
        """Log-probabilities of the prompt."""
        if self.request.prompt_logprobs is None:
            return {}
        scored = self.generation.streams[0].prompt_logprobs or []
        return {"prompt_logprobs": prompt_rows(self.service.token_texts, scored)}

    def envelope(self, name: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """The id and the choices."""
        del name
        return {"request_id": self.head.request_id, "choices": choices}

    def _entry(
        self, number: int, token_ids: list[int], positions: list[TokenLogprobs], reason: str | None
    ) -> dict[str, Any]:
        logprobs = None
        if self.request.logprobs is not None and positions:
            rows = chat_rows(self.service.token_texts, token_ids, positions, self.request.logprobs, as_ids=True)
            logprobs = {"content": rows}
        return {"index": number, "token_ids": token_ids, "logprobs": logprobs, "finish_reason": reason}
