"""OpenAI's response object."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anychip.sampling_params import SamplingParams
from anychip_api.responses.items import Item
from anychip_api.responses.schema import LOGPROBS, ResponsesRequest


@dataclass(frozen=True, slots=True)
class Opening:
    """What is known of a response before its first token. `items` came with it, `history` is older."""

    request: ResponsesRequest
    model: str
    params: SamplingParams
    items: list[Item]
    history: list[Item]
    id: str = field(default_factory=lambda: f"resp_{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def stored(self) -> bool:
        """Whether the client wants it kept."""
        return self.request.store is not False

    @property
    def with_logprobs(self) -> bool:
        """Whether the client asked for log-probabilities."""
        return asks_logprobs(self.request)

    def shown(self, status: str, output: list[Item], **ending: Any) -> dict[str, Any]:
        """The response with its output so far; `ending` is what its end adds."""
        request, params = self.request, self.params
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": bool(request.background),
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "metadata": request.metadata or {},
            "model": self.model,
            "output": output,
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": request.previous_response_id,
            "reasoning": {"effort": request.reasoning.effort if request.reasoning else None, "summary": None},
            "service_tier": "default",
            "store": self.stored,
            "temperature": params.temperature,
            "text": {"format": (request.text and request.text.format) or {"type": "text"}},
            "tool_choice": request.tool_choice or "auto",
            "tools": request.tools or [],
            "top_logprobs": request.top_logprobs or 0,
            "top_p": params.top_p,
            "truncation": "disabled",
            "usage": None,
            **ending,
        }


def asks_logprobs(request: ResponsesRequest) -> bool:
    """Whether a request asks for log-probabilities."""
    return LOGPROBS in (request.include or ()) or request.top_logprobs is not None


def usage(counted: Mapping[str, Any], reasoning_tokens: int) -> dict[str, Any]:
    """A chat's usage under the names of responses."""
    cached = counted["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": counted["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": counted["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": counted["total_tokens"],
    }
