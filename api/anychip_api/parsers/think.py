"""DeepSeek-R1, Qwen3, GLM and others: <think>reasoning</think> before the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from anychip.grammar.lark import ANY_TEXT, LarkGrammar, literal
from anychip_api.parsers.parser import ReasoningParser, Sink
from anychip_api.parsers.source import Source, Steps, Trimmed


class ThinkParser(ReasoningParser):
    """Reasoning between two markers, of which the prompt may have written the first, or both."""

    first: ClassVar[str] = "<think>"
    last: ClassVar[str] = "</think>"
    markers = ("<think>", "</think>")
    _begun = False

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template knows the markers."""
        return cls.first in template or cls.last in template

    def begin(self, prompt: str) -> None:
        """Whether the prompt ends inside of the reasoning."""
        self._begun = prompt.rstrip().endswith(self.first)

    def read(self, source: Source, sink: Sink) -> Steps[None]:
        """See `OutputParser.read`."""
        space = yield from source.space()
        if not (yield from source.accept(self.first)) and not self._begun:
            source.unread(space)
            return
        yield from source.space()
        yield from source.until([self.last], Trimmed(sink.reasoning))
        yield from source.space()

    def preamble(self, grammar: LarkGrammar, special: Mapping[str, int], calls: bool) -> str:
        """Thoughts and white space; without the first marker only where the prompt has written it."""
        del calls
        if self.last in special:
            thoughts = f"{grammar.terminal(ANY_TEXT)} {literal(self.last, special)}"
        else:
            thoughts = grammar.rule(f"{ANY_TEXT} {literal(self.last)}", lazy=True)
        space = grammar.terminal(r"/[\n ]{0,4}/")
        if self._begun:
            return f"{thoughts} {space}"
        return f"({literal(self.first, special)} {thoughts} {space})?"
