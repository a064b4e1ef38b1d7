"""What POST /v1/messages takes."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from anychip_api.fields import REFUSED, Refusals
from anychip_api.schemas import NamedModel, SamplingRequest, Schema


class Thinking(Schema):
    """Whether to think before the answer; a budget in tokens has no effect."""

    type: Literal["enabled", "disabled", "adaptive"]


class ToolChoice(Schema):
    """Which tools must or may be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputConfig(Schema):
    """What form the text has, and how much work goes into it."""

    effort: str | None = None
    format: dict[str, Any] | None = None


class ConversationRequest(NamedModel):
    """The fields that answering a conversation and counting its tokens share."""

    refused: ClassVar[Refusals] = {
        **REFUSED,
        "container": ((), "Leave it out; this server runs no code."),
        "context_management": ((), "Leave it out; a conversation is never shortened here."),
        "mcp_servers": (([],), "Call them yourself, and send their tools."),
    }

    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessagesRequest(ConversationRequest, SamplingRequest):
    """POST /v1/messages."""

    max_tokens: int
    stop_sequences: list[str] | None = None
    stream: bool | None = None


class CountTokensRequest(ConversationRequest):
    """POST /v1/messages/count_tokens."""
