"""Which parsers there are, and which ones a model's answers need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from anychip.errors import UserError
from anychip_api.parsers.parser import ReasoningParser, ToolParser

Kind = Literal["tool", "reasoning"]
_BASES: Mapping[Kind, type[object]] = {"tool": ToolParser, "reasoning": ReasoningParser}

_PARSERS = "anychip_api.parsers"
BUILT_IN: Mapping[tuple[str, str], str] = {
    ("tool", "harmony"): f"{_PARSERS}.harmony:HarmonyToolParser",
    ("tool", "glm"): f"{_PARSERS}.glm:GlmToolParser",
    ("tool", "qwen3_coder"): f"{_PARSERS}.qwen_coder:QwenCoderToolParser",
    ("tool", "kimi_k2"): f"{_PARSERS}.kimi:KimiToolParser",
    ("tool", "deepseek_v3"): f"{_PARSERS}.deepseek:DeepSeekToolParser",
    ("tool", "deepseek_v31"): f"{_PARSERS}.deepseek:DeepSeek31ToolParser",
    ("tool", "mistral"): f"{_PARSERS}.mistral:MistralToolParser",
    ("tool", "mistral_v11"): f"{_PARSERS}.mistral:Mistral11ToolParser",
    ("tool", "phi4"): f"{_PARSERS}.phi:PhiToolParser",
    ("tool", "granite"): f"{_PARSERS}.granite:GraniteToolParser",
    ("tool", "hermes"): f"{_PARSERS}.hermes:HermesToolParser",
    ("tool", "pythonic"): f"{_PARSERS}.pythonic:PythonicToolParser",
    ("tool", "llama3_json"): f"{_PARSERS}.llama:LlamaToolParser",
    ("reasoning", "harmony"): f"{_PARSERS}.harmony:HarmonyReasoningParser",
    ("reasoning", "granite"): f"{_PARSERS}.granite:GraniteReasoningParser",
    ("reasoning", "think"): f"{_PARSERS}.think:ThinkParser",
}
"""(kind, name) -> module:Class, in the order in which chat templates are compared with them."""

ALIASES: Mapping[tuple[str, str], str] = {
    ("tool", "glm45"): "glm",
    ("tool", "llama4_json"): "llama3_json",
    ("tool", "llama4_pythonic"): "pythonic",
    ("tool", "openai"): "harmony",
    ("tool", "phi4_mini_json"): "phi4",
    ("tool", "qwen25"): "hermes",
    ("tool", "qwen3"): "hermes",
    ("tool", "qwen3_xml"): "qwen3_coder",
    ("reasoning", "deepseek_r1"): "think",
    ("reasoning", "deepseek_v3"): "think",
    ("reasoning", "glm45"): "think",
    ("reasoning", "openai_gptoss"): "harmony",
    ("reasoning", "qwen3"): "think",
}
"""Names that vLLM's and SGLang's users know."""


@dataclass(frozen=True, slots=True)
class Parsers:
    """The parsers of one server; None where its model's answers need none."""

    tool: type[ToolParser] | None = None
    reasoning: type[ReasoningParser] | None = None


def choose_parsers(
    tool: str | None, reasoning: str | None, template: str, plugins: Callable[[], Mapping[tuple[str, str], str]]
) -> Parsers:
    """Those that flags name, else those of ours that suit the chat template. `none` turns one off.

    `plugins` is called for a name that is not one of ours. Raises `UserError` for a name that does not exist and for a
    parser that cannot be loaded.
    """
    return Parsers(_choose("tool", tool, template, plugins), _choose("reasoning", reasoning, template, plugins))


def check_parser_names(
    tool: str | None, reasoning: str | None, plugins: Callable[[], Mapping[tuple[str, str], str]]
) -> None:
    """Raise `UserError` for a name that does not exist, before a model is loaded for it."""
    names: dict[Kind, str | None] = {"tool": tool, "reasoning": reasoning}
    for kind, name in names.items():
        if name is not None:
            _choose(kind, name, "", plugins)


def parser_names(kind: Kind) -> list[str]:
    """Names of ours that a flag takes."""
    return sorted(name for one, name in (*BUILT_IN, *ALIASES) if one == kind)


def _choose(
    kind: Kind,
    name: str | None,
    template: str,
    plugins: Callable[[], Mapping[tuple[str, str], str]],
) -> Any:
    if name == "none":
        return None
    if name is None:
        ours = (_load(path, kind) for (one, _), path in BUILT_IN.items() if one == kind)
        return next((parser for parser in ours if parser.suits(template)), None)
    key = kind, ALIASES.get((kind, name), name)
    path = BUILT_IN.get(key)
    if path is None:
        known = plugins()
        path = known.get(key)
        if path is None:
            listed = ", ".join([*parser_names(kind), *(one for found, one in known if found == kind)])
            raise UserError(f"There is no {kind} parser {name!r}.", f"Use none, or one of: {listed}.")
    return _load(path, kind)


def _load(path: str, kind: Kind) -> Any:
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:
        raise UserError(f"The parser {path} cannot be loaded: {type(error).__name__}: {error}.") from error
    base = _BASES[kind]
    if not (isinstance(found, type) and issubclass(found, base)):
        raise UserError(f"The parser {path} is no {base.__name__}.", "Derive it from that class.")
    return found
