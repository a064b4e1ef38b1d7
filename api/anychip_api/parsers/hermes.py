"""Hermes, Qwen 2.5 and 3, Granite 4: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number of them."""

from __future__ import annotations

from anychip_api.parsers.form import json_form
from anychip_api.parsers.marked import MarkedParser

_BEGIN, _END = "<tool_call>", "</tool_call>"


class HermesToolParser(MarkedParser):
    """A pair of markers around each call."""

    markers = (_BEGIN, _END)
    trigger = _BEGIN
    begins = (_BEGIN,)
    ends = (_END,)
    form = json_form(before=f"{_BEGIN}\n", after=f"\n{_END}", between="\n")

    @classmethod
    def suits(cls, template: str) -> bool:
        """Whether the template shows JSON between the markers."""
        return _BEGIN in template and "<arg_key>" not in template and "<function=" not in template
