from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.text import tiny_tokenizers as tiny

from anychip.text.tokenizer import Tokenizer

BYTE_LEVEL = Tokenizer(tiny.byte_level(), {"bos_token": "<s>"})
SENTENCEPIECE = Tokenizer(tiny.sentencepiece(), {"bos_token": "<s>"})
UNSTRIPPED = Tokenizer(tiny.sentencepiece(strip=False), {})
WORD_PIECES = Tokenizer(tiny.word_pieces(), {})
METASPACE = Tokenizer(tiny.metaspace(), {})
ALL = [BYTE_LEVEL, SENTENCEPIECE, UNSTRIPPED, WORD_PIECES, METASPACE]
NAMES = ["byte_level", "sentencepiece", "unstripped", "word_pieces", "metaspace"]


def streamed(tokenizer: Tokenizer, ids: list[int], skip: bool = True, prompt: tuple[int, ...] = ()) -> list[str]:
    stream = tokenizer.stream(skip, prompt)
    return [*(stream.push(token_id) for token_id in ids), stream.flush()]


@pytest.mark.parametrize("tokenizer", ALL, ids=NAMES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_joined_stream_is_the_one_shot_decode(tokenizer, data):
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=24))
    skip = data.draw(st.booleans())
    assert "".join(streamed(tokenizer, ids, skip)) == tokenizer.decode(ids, skip)


@settings(max_examples=200, deadline=None)
@given(ids=st.lists(st.integers(0, BYTE_LEVEL.vocab_size - 1), max_size=24), skip=st.booleans())
def test_byte_level_decode_is_the_librarys(ids, skip):
    assert BYTE_LEVEL.decode(ids, skip) == BYTE_LEVEL.backend.decode(ids, skip_special_tokens=skip)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=30))
@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, UNSTRIPPED, SENTENCEPIECE], ids=NAMES[:3])
def test_round_trip_and_no_replacement_in_any_chunk(tokenizer, text):
    if any(0xD800 <= ord(character) < 0xE000 for character in text) or any(s in text for s in ("\ufffd", "▁")):
        return
    ids = tokenizer.encode(text)
    chunks = streamed(tokenizer, ids)
    assert not any("\ufffd" in chunk for chunk in chunks)
    assert "".join(chunks) == text
    assert tokenizer.decode(ids) == tokenizer.backend.decode(ids)


@pytest.mark.parametrize("character", ["👍", "한", "é", "👩‍👩‍👧"])
@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE], ids=["byte_level", "sentencepiece"])
def test_a_split_character_comes_whole(tokenizer, character):
    spell = {tokenizer.token_bytes(token_id): token_id for token_id in range(tokenizer.vocab_size)}
    ids = [spell[bytes([byte])] for byte in character.encode()]
    chunks = streamed(tokenizer, ids)
    assert "".join(chunks) == character == tokenizer.decode(ids)
    assert all("\ufffd" not in chunk for chunk in chunks)


def test_an_invalid_byte_shows_as_soon_as_it_is_known_to_be_one():
    spell = {BYTE_LEVEL.token_bytes(token_id): token_id for token_id in range(BYTE_LEVEL.vocab_size)}
    invalid, letter, lead = spell[b"\xff"], spell[b"a"], spell[b"\xe4"]
    assert streamed(BYTE_LEVEL, [invalid, letter, lead]) == ["\ufffd", "a", "", "\ufffd"]


def test_an_output_that_continues_a_prompt_keeps_its_space():
    ids = SENTENCEPIECE.encode("the capital is Paris")
    prompt, output = ids[:-1], ids[-1:]
    assert "".join(streamed(SENTENCEPIECE, output)) == "Paris"
    assert "".join(streamed(SENTENCEPIECE, output, prompt=tuple(prompt))) == " Paris"
    assert "".join(streamed(SENTENCEPIECE, output, prompt=(1,))) == "Paris"
    assert "".join(streamed(METASPACE, output, prompt=tuple(prompt))) == " Paris"


@settings(max_examples=100, deadline=None)
@given(text=st.text(alphabet="aé한👍 .", max_size=12), cut=st.integers(0, 40))
def test_a_prompt_may_end_inside_a_character(text, cut):
    ids = BYTE_LEVEL.encode(text)
    prompt, output = ids[:cut], ids[cut:]
    whole = "".join(streamed(BYTE_LEVEL, output, prompt=tuple(prompt)))
    assert BYTE_LEVEL.decode(prompt).rstrip("\ufffd") + whole == text


def test_special_tokens_are_left_out_or_kept():
    ids = BYTE_LEVEL.encode("<s>hi<|im_end|><tool>")
    assert BYTE_LEVEL.decode(ids) == "hi<tool>"
    assert BYTE_LEVEL.decode(ids, skip_special_tokens=False) == "<s>hi<|im_end|><tool>"
    assert BYTE_LEVEL.all_special_ids == [0, 1, 2]


def test_unknown_ids_give_nothing():
    assert BYTE_LEVEL.token_bytes(10**6) == b""
    assert BYTE_LEVEL.token_bytes(-1) == b""
    assert BYTE_LEVEL.id_to_token(5279552648203111001) is None


@pytest.mark.parametrize("tokenizer", ALL, ids=NAMES)
@pytest.mark.parametrize("special", [True, False])
def test_a_long_text_has_the_ids_of_the_plain_way(tokenizer, special):
    text = "Hello wörld, 3 tokens. " * 1000
    assert len(text) > 16_384
    assert tokenizer.encode(text, special) == tokenizer.backend.encode(text, add_special_tokens=special).ids
