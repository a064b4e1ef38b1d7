"""Chat templates: Jinja, in a sandbox, with the surroundings that Hugging Face templates expect."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from anychip.errors import RequestError, UserError
from anychip.text.chat_messages import prepare_messages

_OURS = ("messages", "tools", "documents", "add_generation_prompt")


class ChatTemplate:
    """A model's chat template.

    `sources` is one template or several by name: `tool_use` serves requests with tools, `default` all others.
    `special_tokens` (`bos_token`, ...) are variables of the template. Raises `UserError` for a syntax error.
    """

    def __init__(self, sources: str | Mapping[str, str], special_tokens: Mapping[str, str]) -> None:
        named = {"default": sources} if isinstance(sources, str) else dict(sources)
        if "default" not in named:
            raise UserError(
                f"The model's chat templates are named {', '.join(sorted(named))} and none of them `default`.",
                "Choose one with --chat-template.",
            )
        self._special_tokens = dict(special_tokens)
        environment = _make_environment()
        self._templates = {name: _Compiled(environment, source) for name, source in named.items()}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt of a conversation, special tokens included: tokenize it without adding any.

        `continue_final_message` leaves the last message open for the model to go on. `variables` are the request's
        own template variables. Raises `RequestError` for messages that the template refuses.
        """
        _check(messages, add_generation_prompt, continue_final_message, variables or {})
        template = self._templates["tool_use" if tools and "tool_use" in self._templates else "default"]
        prepared = prepare_messages(messages, template.reads_parts, template.knows_developer)
        text = template.render(
            {
                **self._special_tokens,
                **(variables or {}),
                "messages": prepared,
                "tools": tools,
                "documents": None,
                "add_generation_prompt": add_generation_prompt,
            }
        )
        return _cut_after(text, prepared[-1]["content"]) if continue_final_message else text


class _Compiled:
    def __init__(self, environment: jinja2.Environment, source: str) -> None:
        self.knows_developer = "developer" in source
        try:
            self.reads_parts = _iterates_content(environment.parse(source))
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise UserError(
                f"The chat template has a syntax error in line {error.lineno}: {error.message}.",
                "Give another one with --chat-template.",
            ) from None

    def render(self, variables: Mapping[str, Any]) -> str:
        try:
            return self._template.render(variables)
        except Exception as error:  # a template is the model's own program and may fail in any way
            raise RequestError(
                f"The model's chat template refuses these messages: {str(error).rstrip('.!')}.", param="messages"
            ) from error


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's text for training; here its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 -- jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def _make_environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return dt.datetime.now().astimezone().strftime(form)


def _iterates_content(template: nodes.Template) -> bool:
    """Whether the template loops over a message's content, so that it takes OpenAI's content parts itself."""
    aliases = {
        assign.target.name
        for assign in template.find_all(nodes.Assign)
        if isinstance(assign.target, nodes.Name) and _is_content(assign.node)
    }
    return any(
        _is_content(loop.iter) or (isinstance(loop.iter, nodes.Name) and loop.iter.name in aliases)
        for loop in template.find_all(nodes.For)
    )


def _is_content(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    return isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and node.arg.value == "content"


def _check(
    messages: Sequence[Mapping[str, Any]],
    add_generation_prompt: bool,
    continue_final_message: bool,
    variables: Mapping[str, Any],
) -> None:
    if not messages:
        raise RequestError("A chat needs at least one message.", param="messages")
    if add_generation_prompt and continue_final_message:
        raise RequestError(
            "add_generation_prompt begins a new message and continue_final_message goes on with the last one.",
            param="continue_final_message",
            remedy="Set one of them to false.",
        )
    taken = sorted(set(variables) & set(_OURS))
    if taken:
        raise RequestError(
            f"The template variable {taken[0]!r} is set by its own request field.",
            param="chat_template_kwargs",
            remedy=f"Send {taken[0]!r} as a field of the request.",
        )


def _cut_after(text: str, content: Any) -> str:
    """The text up to the end of the last message's content; templates may have trimmed it."""
    last = content[-1]["text"] if isinstance(content, list) and content else content
    for form in (last, last.lstrip(), last.strip()):
        start = text.rfind(form)
        if start >= 0:
            return text[: start + len(form)]
    raise RequestError(
        "The last message cannot be continued: the model's chat template changes its text.", param="messages"
    )
