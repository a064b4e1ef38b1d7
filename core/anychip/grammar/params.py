"""The forms in which a request asks for structured output; names are those of vLLM."""

from __future__ import annotations

from typing import Any

import msgspec

from anychip.errors import RequestError

FIELD = "structured_outputs"
FORMS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


class StructuredOutputsParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exactly one of json, regex, choice, grammar, json_object and structural_tag.

    Raises `RequestError` where none or several are given, or a value cannot mean anything.
    """

    json: str | dict[str, Any] | bool | None = None
    """A JSON schema, as an object or as its text."""
    regex: str | None = None
    """A regular expression for the whole output, in the syntax of Rust's `regex`."""
    choice: tuple[str, ...] | None = None
    """One of these texts."""
    grammar: str | None = None
    """A context-free grammar, in Lark's syntax or GBNF's (`root ::= ...`)."""
    json_object: bool | None = None
    """Any JSON object."""
    structural_tag: str | dict[str, Any] | None = None
    """Free text in which tags begin parts with a schema, as an object or as its text."""
    whitespace_pattern: str | None = None
    """A regular expression for the white space between a JSON document's tokens."""
    disable_any_whitespace: bool = False
    """Write JSON without white space."""

    def __post_init__(self) -> None:
        if self.json_object is False:
            msgspec.structs.force_setattr(self, "json_object", None)
        given = [name for name in FORMS if getattr(self, name) is not None]
        if len(given) != 1:
            what = f"has {' and '.join(given)}" if given else "is empty"
            raise RequestError(f"structured_outputs {what}.", FIELD, f"Give one of {', '.join(FORMS)}.")
        if self.choice is not None:
            self._check_choice(self.choice)
        for name in ("regex", "grammar", "whitespace_pattern"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise RequestError(f"structured_outputs.{name} must be a text that is not empty.", FIELD)

    def _check_choice(self, choice: Any) -> None:
        if isinstance(choice, str) or not choice or any(not isinstance(one, str) or not one for one in choice):
            raise RequestError(
                "structured_outputs.choice must be a list of at least one text, none of them empty.", FIELD
            )
        msgspec.structs.force_setattr(self, "choice", tuple(choice))

    @property
    def form(self) -> str:
        """Which form was given."""
        return next(name for name in FORMS if getattr(self, name) is not None)


def read_structured_outputs(value: Any) -> StructuredOutputsParams:
    """The parameters that a request gives as an object. Raises `RequestError`."""
    try:
        return msgspec.convert(value, StructuredOutputsParams)
    except msgspec.ValidationError as error:
        raise RequestError(
            f"structured_outputs is wrong: {error}.", FIELD, f"Give one of {', '.join(FORMS)}."
        ) from None
