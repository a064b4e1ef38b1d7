"""The demo model in the formats it may be computed in, against float32 on its file's own weights."""

from pathlib import Path

import pytest
from tests.e2e.oracle import demo_path

from anychip import LLM
from anychip.testing.accuracy import WINDOW, compare, held_text
from anychip.text.load import load_tokenizer

TOKENS = 1000
LIMITS = {
    "as stored": (0.02, 0.01),
    "int8": (0.02, 0.01),
    "int4": (0.1, 0.03),
}
"""Mean divergence, and mean log-likelihood's relative distance; `benchmarks/accuracy.py` measures on more text."""


def opened(**options):
    small = {"max_model_len": WINDOW + 1, "max_num_batched_tokens": WINDOW, "max_num_seqs": 1}
    return LLM(model="demo", device="cpu", enable_prefix_caching=False, **small, **options)


@pytest.fixture(scope="module")
def reference():
    with opened(dtype="float32") as llm:
        yield llm


@pytest.fixture(scope="module")
def token_ids():
    tokenizer = load_tokenizer(Path(demo_path()))
    assert tokenizer is not None
    return tokenizer.encode(held_text()[: 8 * TOKENS])[:TOKENS]


@pytest.mark.parametrize("name", LIMITS)
def test_a_format_is_close_to_the_float_weights(reference, token_ids, name):
    options = {} if name == "as stored" else {"quantization": name}
    with opened(**options) as llm:
        assert (name == "as stored") == (not any(note.startswith("quantization") for note in llm.engine.info.notes))
        found = compare(reference, llm, token_ids)
    divergence, distance = LIMITS[name]
    assert 1e-4 < found.mean_divergence < divergence, found
    assert abs(found.likelihood / found.reference_likelihood - 1) < distance, found
