"""What a parser of a family is."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from anychip.grammar.lark import LarkGrammar, literal
from anychip_api.parsers.parts import Part, Reasoning, Text, ToolCallArguments, ToolCallStart
from anychip_api.parsers.source import Source, Steps

if TYPE_CHECKING:
    from anychip_api.parsers.form import CallForm


@dataclass(frozen=True, slots=True)
class Function:
    """A function that the model may call; `parameters` is a JSON schema."""

    name: str
    parameters: dict[str, Any]
    strict: bool = False


def call_id() -> str:
    """An id in OpenAI's form."""
    return f"call_{secrets.token_hex(12)}"


@dataclass(slots=True)
class Sink:
    """Takes the parts that a parser finds."""

    make_id: Callable[[], str] = call_id
    parts: list[Part] = field(default_factory=list)
    calls: int = 0

    def text(self, text: str) -> None:
        """A piece of content."""
        self.parts.append(Text(text))

    def reasoning(self, text: str) -> None:
        """A piece of reasoning."""
        self.parts.append(Reasoning(text))

    def call(self, name: str, given_id: str = "") -> None:
        """A call begins."""
        self.parts.append(ToolCallStart(self.calls, given_id or self.make_id(), name))
        self.calls += 1

    def arguments(self, text: str) -> None:
        """A piece of the latest call's arguments."""
        self.parts.append(ToolCallArguments(self.calls - 1, text))


class OutputParser(ABC):
    """Reads one choice's text. A new one is made for each choice, with the functions of the request."""

    markers: ClassVar[tuple[str, ...]] = ()
    """Special tokens of the vocabulary that it has to see."""

    def __init__(self, functions: Sequence[Function]) -> None:
        self.functions = functions

    @classmethod
    @abstractmethod
    def suits(cls, template: str) -> bool:
        """Whether a model with this chat template writes so."""

    @abstractmethod
    def read(self, source: Source, sink: Sink) -> Steps[None]:
        """Read the text to its end, or as far as it is this parser's."""


class ToolParser(OutputParser):
    """Reads content and tool calls to the end of the text."""

    make_id: ClassVar[Callable[[], str]] = staticmethod(call_id)
    """Makes the id of a call whose text has none."""
    trigger: ClassVar[str] = ""
    """The marker with which `form` begins, where nothing else begins so; it lets `strict` functions be enforced."""
    form: ClassVar[CallForm | None] = None
    """How calls are written that have to be made; None has them written, and read, in Hermes' way."""


class ReasoningParser(OutputParser):
    """Reads the reasoning at the beginning; what follows is left to the tool parser."""

    def begin(self, prompt: str) -> None:
        """Look at the prompt's text: it may have begun the reasoning, or ended it. Called once, before `read`."""
        return

    def preamble(self, grammar: LarkGrammar, special: Mapping[str, int], calls: bool) -> str:
        """What comes before an answer that has to fit a grammar, or before `calls`, as an expression.

        `special` are tokens that are not spelled in bytes. Called after `begin`.
        """
        del grammar, special, calls
        return literal("")
