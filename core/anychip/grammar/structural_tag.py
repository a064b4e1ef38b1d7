"""Structural tags: free text in which a trigger begins a part with a grammar of its own.

Both forms that vLLM's users send: {"structures": [..], "triggers": [..]}, and xgrammar's {"format": {"type": ..}}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anychip.grammar.lark import ANY_TEXT, LarkGrammar, either, json_schema, literal, regex

Node = Mapping[str, Any]


def read_structural_tag(tag: Any) -> str:
    """The grammar of a structural tag. Raises ValueError saying what is wrong with it."""
    if not isinstance(tag, Mapping):
        raise ValueError("structural_tag is not an object")
    builder = _Builder()
    if "format" in tag:
        return builder.grammar.text(builder.node(tag["format"]))
    tags = [
        {**one, "content": {"type": "json_schema", "json_schema": one.get("schema", {})}}
        for one in _list(tag, "structures")
    ]
    return builder.grammar.text(builder.node({"type": "triggered_tags", "triggers": tag.get("triggers"), "tags": tags}))


class _Builder:
    def __init__(self) -> None:
        self.grammar = LarkGrammar()
        self._kinds: dict[str, Callable[[Node], str]] = {
            "any_text": lambda node: self.grammar.terminal(ANY_TEXT),
            "const_string": lambda node: literal(_text(node, "value")),
            "json_schema": lambda node: self.grammar.rule(json_schema(node.get("json_schema", {}))),
            "regex": lambda node: self.grammar.terminal(regex(_text(node, "pattern"))),
            "sequence": lambda node: " ".join(self.node(one) for one in _list(node, "elements")),
            "or": lambda node: either(self.node(one) for one in _list(node, "elements")),
            "tag": self._tag,
            "triggered_tags": self._triggered,
            "tags_with_separator": self._separated,
        }

    def node(self, node: Any) -> str:
        """The expression of a format."""
        kind = node.get("type") if isinstance(node, Mapping) else None
        if not isinstance(kind, str) or kind not in self._kinds:
            raise ValueError(f"a structural tag has a format of type {kind!r}; known are {', '.join(self._kinds)}")
        return self._kinds[kind](node)

    def _tag(self, node: Node, begun: str = "") -> str:
        """A begin, of which `begun` has been read, the content, and an end."""
        begin, end = _text(node, "begin")[len(begun) :], _text(node, "end")
        content = node.get("content")
        if isinstance(content, Mapping) and content.get("type") == "any_text" and end:
            body = self.grammar.rule(_until(end), lazy=True)
            return self.grammar.rule(f"{literal(begin)} {body}")
        return self.grammar.rule(f"{literal(begin)} {self.node(content)} {literal(end)}")

    def _triggered(self, node: Node) -> str:
        """Text, and at a trigger one of the tags that begin with it."""
        parts = []
        tags = _list(node, "tags")
        triggers = node.get("triggers")
        for trigger in triggers if isinstance(triggers, list) else [triggers]:
            begun = [tag for tag in tags if isinstance(trigger, str) and _text(tag, "begin").startswith(trigger)]
            if not trigger or not begun:
                raise ValueError(f"a structural tag's trigger {trigger!r} begins none of its tags")
            head = self.grammar.rule(_until(trigger), lazy=True)
            parts.append(self.grammar.rule(f"{head} {either(self._tag(tag, trigger) for tag in begun)}"))
        once = "" if node.get("stop_after_first") else "+" if node.get("at_least_one") else "*"
        tail = "" if node.get("stop_after_first") else f" {self.grammar.terminal(ANY_TEXT)}"
        return f"{either(parts)}{once}{tail}"

    def _separated(self, node: Node) -> str:
        """Tags with a separator between them."""
        tag = self.grammar.rule(either(self._tag(one) for one in _list(node, "tags")))
        several = f"{tag} ({literal(_text(node, 'separator'))} {tag})*"
        if node.get("stop_after_first"):
            several = tag
        return f"({several})" if node.get("at_least_one") else f"({several})?"


def _until(end: str) -> str:
    """Text to the first `end`, as a lazy token's body."""
    return f"{ANY_TEXT} {literal(end)}"


def _text(node: Any, name: str) -> str:
    value = node.get(name) if isinstance(node, Mapping) else None
    if not isinstance(value, str):
        raise ValueError(f"a structural tag's {name} is {value!r}, not a text")
    return value


def _list(node: Node, name: str) -> Sequence[Any]:
    value = node.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(one, Mapping) for one in value):
        raise ValueError(f"a structural tag's {name} is not a list of objects")
    return value
