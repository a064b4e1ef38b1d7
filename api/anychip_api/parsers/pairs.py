"""Arguments that a family writes as pairs of names and values, in markers rather than in JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from anychip_api.parsers.json_text import decoded
from anychip_api.parsers.parser import Function, Sink


class PairedArguments:
    """Writes one call's arguments as JSON, each as soon as it is complete."""

    def __init__(self, sink: Sink, functions: Sequence[Function], name: str) -> None:
        self._sink = sink
        self._properties = next((one.parameters.get("properties") for one in functions if one.name == name), None)
        self._written = "{"

    def add(self, name: str, text: str) -> None:
        """One argument; its text is the value itself where the schema says it is a string, else JSON."""
        value = json.dumps(self._value(name, text), ensure_ascii=False)
        self._sink.arguments(f"{self._written}{json.dumps(name, ensure_ascii=False)}: {value}")
        self._written = ", "

    def close(self) -> None:
        """The call is complete."""
        self._sink.arguments("{}" if self._written == "{" else "}")

    def _value(self, name: str, text: str) -> object:
        schema = self._properties.get(name) if isinstance(self._properties, dict) else None
        if isinstance(schema, dict) and schema.get("type") == "string":
            return text
        value = decoded(text)
        return text if value is None and text.strip() != "null" else value
