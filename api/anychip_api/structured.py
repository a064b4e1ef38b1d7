"""Structured output as requests ask for it: `response_format`, `structured_outputs`, or vLLM's older fields."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from anychip.engine.detached import run_detached
from anychip.errors import RequestError
from anychip.grammar.params import FIELD, StructuredOutputsParams, read_structured_outputs
from anychip.sampling_params import SamplingParams
from anychip_api.schemas import GenerationRequest
from anychip_api.service import Service

_OLD = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "structural_tag": "structural_tag",
}
_FORMATS = 'Send {"type": "text"}, "json_object", "json_schema" or "structural_tag".'
_CHECK_SECONDS = 10.0


def asking_field(request: GenerationRequest) -> str | None:
    """The one field that asks for structured output; raises `RequestError` where several do."""
    fields = ("response_format", FIELD, *_OLD)
    asked = [name for name in fields if getattr(request, name) is not None]
    if request.response_format is not None and request.response_format.get("type") == "text":
        asked.remove("response_format")
    if len(asked) > 1:
        raise RequestError(f"{asked[0]} and {asked[1]} both say what the output has to fit.", asked[0], "Send one.")
    return asked[0] if asked else None


def read_structure(request: GenerationRequest) -> StructuredOutputsParams | None:
    """What the output of a request has to fit; raises `RequestError` about the field that says so."""
    field = asking_field(request)
    if field is None:
        return None
    value = getattr(request, field)
    try:
        if field == "response_format":
            value = _of_format(value)
        elif field in _OLD:
            value = {_OLD[field]: value}
        return read_structured_outputs(value)
    except RequestError as error:
        raise RequestError(error.message, field, error.remedy) from None


async def check_structure(service: Service, request: GenerationRequest, params: SamplingParams) -> None:
    """Check what the output has to fit without holding up other requests.

    Raises `RequestError` about the field that says so, which for a tool that has to be called is `tools`.
    """
    field = asking_field(request) or "tools"
    inputs = service.engine.inputs
    try:
        if not inputs.knows_grammar(params):
            await asyncio.wait_for(run_detached(partial(inputs.grammar, params)), _CHECK_SECONDS)
    except TimeoutError:
        raise RequestError("The structured output takes too long to check.", field, "Send a simpler one.") from None
    except RequestError as error:
        raise RequestError(error.message, field, error.remedy) from None


def _of_format(form: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI's response format as vLLM's structured output."""
    match form.get("type"):
        case "json_object":
            return {"json": form["schema"]} if form.get("schema") is not None else {"json_object": True}
        case "json_schema":
            described = form.get("json_schema")
            schema = described.get("schema") if isinstance(described, Mapping) else None
            if not isinstance(schema, Mapping | bool):
                raise RequestError("response_format has no json_schema.schema.", "response_format", "Send a schema.")
            return {"json": schema}
        case "structural_tag":
            return {"structural_tag": dict(form)}
    raise RequestError(f"response_format has the type {form.get('type')!r}.", "response_format", _FORMATS)
