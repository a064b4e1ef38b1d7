"""Phi 4 mini: functools[{"name": ..., "arguments": {...}}], or the same between <|tool_call|> and <|/tool_call|>."""

from __future__ import annotations

from anychip_api.parsers.form import json_form
from anychip_api.parsers.marked import MarkedParser

_WORD = "functools"
_BEGIN, _END = "<|tool_call|>", "<|/tool_call|>"


class PhiToolParser(MarkedParser):
    """A word or a marker, then an array of calls."""

    markers = (_BEGIN, _END)
    begins = (_WORD, _BEGIN)
    form = json_form(begin=f"{_WORD}[", between=", ", end="]")

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template names the word, or its markers of tools or of calls."""
        return any(mark in template for mark in (f"{_WORD}[", "<|/tool|>", _END))
