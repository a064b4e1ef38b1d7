"""From a choice's text to typed parts (text, reasoning, tool calls), for all routes that answer a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from anychip.engine.outputs import Delta, TokenLogprobs
from anychip_api.parsers.parser import Function, Sink
from anychip_api.parsers.parts import Part, Reasoning, ToolCallArguments, ToolCallStart, joined
from anychip_api.parsers.registry import Parsers
from anychip_api.parsers.source import Source, Steps


@dataclass(slots=True)
class ChoiceDelta:
    """What one choice gained. `finish_reason` is OpenAI's: stop, length or tool_calls."""

    index: int
    parts: list[Part] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """How the answers to one request are read: which parsers, and what of their parts is shown."""

    parsers: Parsers
    functions: Sequence[Function] = ()
    prompt: str = ""
    named: bool = False
    """Whether the request named the function to call; then the finish reason stays `stop`, as OpenAI has it."""
    most_calls: int | None = None
    """Most tool calls that are passed on; None: all."""
    shows_reasoning: bool = True

    @property
    def markers(self) -> tuple[str, ...]:
        """Special tokens that must not be left out of the text, as parsers look for them."""
        used = (self.parsers.reasoning, self.parsers.tool)
        return tuple(marker for parser in used if parser is not None for marker in parser.markers)

    def reader(self) -> ChoiceReader:
        """A reader for one choice."""
        return ChoiceReader(self)


class ChoiceReader:
    """Reads one choice. The parts join to the same message however its text is cut."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        tool = reading.parsers.tool
        self._sink = Sink(tool.make_id) if tool else Sink()
        self._source = Source()
        self._steps = self._run()
        self._reads = tool is not None or reading.parsers.reasoning is not None

    def read(self, delta: Delta) -> ChoiceDelta:
        """What a delta of the engine adds."""
        return ChoiceDelta(
            delta.index,
            self._parts(delta.text, delta.finish_reason is not None),
            delta.token_ids,
            delta.logprobs,
            self._finish_reason(delta.finish_reason),
            delta.stop_reason,
        )

    def _parts(self, text: str, ends: bool) -> list[Part]:
        if not self._reads:
            if text:
                self._sink.text(text)
        else:
            self._source.push(text)
            if ends:
                self._source.close()
            next(self._steps, None)
        parts, self._sink.parts = self._sink.parts, []
        return joined(part for part in parts if self._shows(part))

    def _run(self) -> Steps[None]:
        reading, source, sink = self._reading, self._source, self._sink
        if reading.parsers.reasoning is not None:
            reasoning = reading.parsers.reasoning(reading.functions)
            reasoning.begin(reading.prompt)
            yield from reasoning.read(source, sink)
        if reading.parsers.tool is not None:
            yield from reading.parsers.tool(reading.functions).read(source, sink)
        while text := (yield from source.available()):
            sink.text(text)

    def _shows(self, part: Part) -> bool:
        if isinstance(part, ToolCallStart | ToolCallArguments):
            return self._reading.most_calls is None or part.index < self._reading.most_calls
        return self._reading.shows_reasoning or not isinstance(part, Reasoning)

    def _finish_reason(self, reason: str | None) -> str | None:
        calls = self._sink.calls > 0 and self._reading.most_calls != 0
        return "tool_calls" if reason == "stop" and calls and not self._reading.named else reason
