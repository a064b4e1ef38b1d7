"""What POST /v1/responses takes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from anychip.sampling_params import MAX_LOGPROBS
from anychip_api.fields import REFUSED, Refusals
from anychip_api.schemas import Metadata, SamplingRequest, Schema

LOGPROBS = "message.output_text.logprobs"
"""The entry of `include` that has an effect here."""

_STORED = "Send the whole conversation as `input`, or name the response before as `previous_response_id`."


class ReasoningConfig(Schema):
    """How much to think."""

    effort: str | None = None


class TextConfig(Schema):
    """What form the text has."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ResponseStreamOptions(Schema):
    """Options of a stream, of which none has an effect here."""


class ResponsesRequest(SamplingRequest):
    """POST /v1/responses."""

    refused: ClassVar[Refusals] = {
        **REFUSED,
        "conversation": ((), _STORED),
        "context_management": (([],), "Leave it out; a conversation is never shortened here."),
        "prompt": ((), "Send the text of the prompt as `input` and `instructions`."),
    }

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    store: bool | None = None
    background: bool | None = None
    include: list[str] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    reasoning: ReasoningConfig | None = None
    text: TextConfig | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: Metadata | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def without_effect(self) -> list[str]:
        """Entries of `include` too, of which only the log-probabilities exist here."""
        entries = [f"include.{name}" for name in self.include or () if name != LOGPROBS]
        return super().without_effect() + entries
