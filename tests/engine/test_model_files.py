"""What a model's files say of generating is checked before it is believed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.text.tiny_tokenizers import byte_level

from anychip.engine.model_files import eos_ids
from anychip.errors import RequestError, UserError
from anychip.plugin.contract import ModelSource
from anychip.text.tokenizer import Tokenizer


def test_ends_of_sequence_that_the_model_has_not_are_left_out() -> None:
    """They would be columns of its logits, for min_tokens or a grammar to mask."""
    source = ModelSource("model", Path(), "safetensors", {"eos_token_id": [5, 97]}, {"eos_token_id": 2**40})
    assert eos_ids(source, None, 97) == (5,)


def test_what_is_no_token_id_is_refused() -> None:
    source = ModelSource("model", Path(), "safetensors", {"eos_token_id": "</s>"}, {})
    with pytest.raises(UserError, match="eos_token_id"):
        eos_ids(source, None, 97)


@pytest.mark.parametrize("length", [1, 20_000])
def test_half_a_surrogate_pair_is_no_text(length: int) -> None:
    with pytest.raises(RequestError, match="Unicode"):
        Tokenizer(byte_level(), {}).encode("a" * length + "\ud800")
