"""Request fields that are not in the schemas: those refused because they would change the answer, and the rest."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any

from anychip.errors import RequestError

_LONGEST_NAME = 64
_MOST_NAMES = 20

_LATER = "Leave it out; it is not supported yet."
_SAMPLER = "Leave it out; this server does not sample so."
_CHAT = "Send it to /v1/chat/completions."
_FUNCTIONS = "Send `tools` and `tool_choice`, which took its place."

Refusals = Mapping[str, tuple[tuple[Any, ...], str]]
"""Field -> (values that ask for nothing, what to do). None asks for nothing in any field."""

REFUSED: Refusals = {
    "audio": ((), "Leave it out; this server generates text only."),
    "best_of": ((1,), "Ask for several choices with `n` and take the best one."),
    "chat_template": ((), "Give the template when the server starts, with --chat-template."),
    "documents": (([],), _LATER),
    "dry_multiplier": ((0, 0.0), _SAMPLER),
    "dynatemp_range": ((0, 0.0), _SAMPLER),
    "ec_transfer_params": ((), _LATER),
    "echo": ((False,), "Send it to /v1/completions."),
    "embed_dtype": (("float32",), "Leave it out; vectors are float32."),
    "enable_response_messages": ((False,), _LATER),
    "endianness": (("native", "little"), "Leave it out; base64 is little-endian."),
    "function_call": (("none",), _FUNCTIONS),
    "functions": (([],), _FUNCTIONS),
    "input_type": ((), "Name one of the model's own prompts with `prompt_name`."),
    "instruction": ((), "Put it in the text."),
    "kv_transfer_params": ((), _LATER),
    "length_penalty": ((1, 1.0), "Leave it out; there is no beam search here."),
    "logits_processors": (([],), _LATER),
    "logprob_token_ids": (([],), _LATER),
    "max_tokens_per_doc": ((), "Use `truncate_prompt_tokens`, which counts the whole pair."),
    "media_io_kwargs": (({},), _LATER),
    "mirostat": ((0,), _SAMPLER),
    "mm_payload": ((), _LATER),
    "mm_processor_kwargs": (({},), _LATER),
    "modalities": ((["text"],), "Leave it out; this server generates text only."),
    "moderation": ((), "Leave it out; nothing is moderated here."),
    "previous_input_messages": ((), _LATER),
    "prompt_embeds": ((), "Send the prompt as text or token ids."),
    "repetition_detection": ((), _LATER),
    "response_format": (({"type": "text"},), "This route has a field of its own for it."),
    "suffix": (("",), "Leave it out; text is only continued at its end."),
    "thinking_token_budget": ((), _LATER),
    "tool_choice": (("none",), _CHAT),
    "tools": (([],), _CHAT),
    "truncate_prompt_tokens": ((), "Shorten the prompt before you send it."),
    "truncation_side": ((), _LATER),
    "typical_p": ((1, 1.0), _SAMPLER),
    "use_beam_search": ((False,), "Leave it out; there is no beam search here."),
    "verbosity": (("medium",), _LATER),
    "vllm_xargs": (({},), _LATER),
    "watermarking": ((False,), _LATER),
    "web_search_options": ((), "Leave it out; this server does not search the web."),
    "xtc_probability": ((0, 0.0), _SAMPLER),
}

NO_EFFECT = frozenset(
    {
        "access_programs",
        "background_options",
        "cache_control",
        "diagnostics",
        "image",
        "inference_geo",
        "max_tool_calls",
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "request_id",
        "return_mm_kwargs",
        "safety_identifier",
        "service_tier",
        "session_id",
        "spaces_between_special_tokens",
        "speed",
        "store",
        "stream_interval",
        "user",
        "user_profile_id",
        "workspace_id",
    }
)
"""Fields of OpenAI's, Anthropic's and vLLM's that change nothing in the answer here."""


def check_extra_fields(extra: Mapping[str, Any], strict: bool, refused: Refusals = REFUSED) -> list[str]:
    """Names of the fields that have no effect on this request, in its order.

    Raises `RequestError` for a field that would change the answer and is not built, and under `strict` for one that is
    not known at all.
    """
    ignored: list[str] = []
    for name, value in extra.items():
        if name in refused:
            neutral, remedy = refused[name]
            if value is not None and not _is_one_of(value, neutral):
                raise RequestError(f"{name} is not supported.", param=name, remedy=remedy)
            continue
        if strict and name not in NO_EFFECT:
            raise RequestError(f"{name} is not a field of this request.", param=name, remedy="Leave it out.")
        ignored.append(name)
    return ignored


def header_value(names: Iterable[str]) -> str:
    """Field names for an HTTP header: printable, short and not too many."""
    listed = [urllib.parse.quote(name[:_LONGEST_NAME], safe="._-[]$") for name in names]
    return ", ".join([*listed[:_MOST_NAMES], *(["..."] if len(listed) > _MOST_NAMES else [])])


def _is_one_of(value: Any, neutral: tuple[Any, ...]) -> bool:
    # As JSON, so that true is not 1.
    return json.dumps(value) in {json.dumps(one) for one in neutral}
