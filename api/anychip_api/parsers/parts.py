"""The typed parts of an answer, as they stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the content."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A tool call begins; `index` counts the calls of one choice from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """A piece of a call's arguments; the pieces of a call join to a JSON object."""

    index: int
    text: str


Part = Text | Reasoning | ToolCallStart | ToolCallArguments


@dataclass(slots=True)
class ToolCall:
    """A call with its arguments so far."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Message:
    """A whole message, put together of parts."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)

    def add(self, parts: Iterable[Part]) -> Message:
        """Add parts; returns itself."""
        for part in parts:
            match part:
                case Text():
                    self.content += part.text
                case Reasoning():
                    self.reasoning += part.text
                case ToolCallStart():
                    self.tool_calls.append(ToolCall(part.id, part.name))
                case ToolCallArguments():
                    self.tool_calls[part.index].arguments += part.text
        return self


def joined(parts: Iterable[Part]) -> list[Part]:
    """The same parts with neighbours of one kind joined."""
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        match last, part:
            case Text(), Text():
                found[-1] = Text(last.text + part.text)
            case Reasoning(), Reasoning():
                found[-1] = Reasoning(last.text + part.text)
            case ToolCallArguments(), ToolCallArguments() if last.index == part.index:
                found[-1] = ToolCallArguments(part.index, last.text + part.text)
            case _:
                found.append(part)
    return found
