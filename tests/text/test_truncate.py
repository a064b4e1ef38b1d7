"""Texts cut to a length keep their special tokens; pairs are marked and cut at the longer text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.tiny_pairs import FIRST, LAST, write_tokenizer

from anychip.errors import RequestError
from anychip.text.load import load_tokenizer
from anychip.text.truncate import encode_texts

SPECIAL = 3


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder, 97)
    return load_tokenizer(folder)


def words(first: int, count: int) -> str:
    return " ".join(f"w{number}" for number in range(first, first + count))


def test_one_text(tokenizer) -> None:
    whole = encode_texts(tokenizer, words(10, 5), None, None)
    assert whole.token_ids == [FIRST, 10, 11, 12, 13, 14, LAST]
    assert whole.second is None
    assert encode_texts(tokenizer, words(10, 5), None, 7) == whole
    assert encode_texts(tokenizer, words(10, 5), None, 4).token_ids == [FIRST, 10, 11, LAST]
    assert encode_texts(tokenizer, words(10, 5), None, 2, add_special_tokens=False).token_ids == [10, 11]


def test_a_pair_knows_where_its_second_text_begins(tokenizer) -> None:
    pair = encode_texts(tokenizer, words(10, 2), words(20, 1), None)
    assert pair.token_ids == [FIRST, 10, 11, LAST, 20, LAST]
    assert pair.second == 4


@pytest.mark.parametrize("limit", [1, 2])
def test_no_room_for_any_word(tokenizer, limit: int) -> None:
    with pytest.raises(RequestError) as refusal:
        encode_texts(tokenizer, words(10, 5), None, limit)
    assert refusal.value.param == "truncate_prompt_tokens"


@given(first=st.integers(1, 30), second=st.integers(1, 30), limit=st.integers(5, 70))
def test_a_pair_fills_its_limit_and_loses_of_the_longer_text(tokenizer, first: int, second: int, limit: int) -> None:
    found = encode_texts(tokenizer, words(10, first), words(50, second), limit)
    assert len(found.token_ids) == min(limit, first + second + SPECIAL)
    assert found.second is not None
    kept = found.second - 2, len(found.token_ids) - found.second - 1
    if first + second + SPECIAL > limit:
        assert abs(kept[0] - kept[1]) <= 1 or min(kept) == min(first, second)
    assert found.token_ids[1 : 1 + kept[0]] == list(range(10, 10 + kept[0]))
