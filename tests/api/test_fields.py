"""Request fields that no schema lists."""

from __future__ import annotations

import pytest

from anychip.errors import RequestError
from anychip_api.fields import check_extra_fields, header_value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("best_of", 2),
        ("best_of", True),
        ("suffix", "end"),
        ("tools", [{"type": "function"}]),
        ("tool_choice", "auto"),
        ("tool_choice", "required"),
        ("truncate_prompt_tokens", 5),
        ("use_beam_search", True),
        ("logits_processors", ["x"]),
        ("modalities", ["text", "audio"]),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_a_field_that_would_change_the_answer_is_refused(name: str, value: object, strict: bool) -> None:
    with pytest.raises(RequestError, match=name) as caught:
        check_extra_fields({name: value}, strict)
    assert caught.value.param == name
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("best_of", None),
        ("best_of", 1),
        ("suffix", ""),
        ("tools", []),
        ("tool_choice", "none"),
        ("use_beam_search", False),
    ],
)
def test_a_value_that_asks_for_nothing_is_taken(name: str, value: object) -> None:
    assert check_extra_fields({name: value}, strict=True) == []


def test_other_fields_are_listed_in_their_order() -> None:
    assert check_extra_fields({"user": "me", "teperature": 1, "store": True}, strict=False) == [
        "user",
        "teperature",
        "store",
    ]


def test_strict_refuses_the_unknown_but_not_the_harmless() -> None:
    assert check_extra_fields({"user": "me", "store": True}, strict=True) == ["user", "store"]
    with pytest.raises(RequestError, match="teperature"):
        check_extra_fields({"user": "me", "teperature": 1}, strict=True)


def test_the_header_is_printable_and_short() -> None:
    value = header_value(["a\r\nx-evil: 1", "\u00fc", "b" * 500, *map(str, range(50))])
    assert value.isascii()
    assert value.isprintable()
    assert len(value) < 2000
    assert value.endswith(", ...")
