"""The real check: all-MiniLM-L6-v2 against transformers in float32, mean pooling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from anychip.errors import RequestError
from anychip.llm import LLM
from anychip.pooling_params import PoolingParams

TEXTS = [
    "Hello world",
    "a",
    "",
    "The quick brown fox jumps over the lazy dog. " * 20,
    "Überraschung 日本語のテキスト 🙂",
    "cats and dogs " * 80,
    *(f"sentence number {number} about " + "many things " * number for number in range(20)),
]


@pytest.fixture(scope="module")
def llm():
    with LLM("demo-embeddings", dtype="float32", threads=1) as llm:
        yield llm


@pytest.fixture(scope="module")
def truth(llm):
    """transformers' normalized means of each text alone."""
    path = Path(llm.engine.source.path)
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModel.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    found = []
    for text in TEXTS:
        ids = tokenizer(text, truncation=True, max_length=256, padding=False).input_ids
        with torch.inference_mode():
            mean = model(torch.tensor([ids])).last_hidden_state[0].double().mean(0)
        found.append((mean / mean.norm()).numpy())
    return np.stack(found)


def embed(llm: LLM, texts: list[str], **params) -> np.ndarray:
    outputs = llm.embed(texts, PoolingParams(truncate_prompt_tokens=-1, **params), use_tqdm=False)
    return np.array([output.outputs.embedding for output in outputs])


def cosines(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
    return (found * wanted).sum(1) / lengths


def test_a_ragged_batch_has_the_vectors_of_transformers(llm, truth):
    found = embed(llm, TEXTS)
    assert cosines(found, truth).min() > 0.9999
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() < 1e-5
    llm.engine.check_integrity()


def test_order_and_company_change_nothing(llm, truth):
    order = np.random.default_rng(0).permutation(len(TEXTS))
    assert cosines(embed(llm, [TEXTS[index] for index in order]), truth[order]).min() > 0.9999
    assert cosines(embed(llm, [TEXTS[4]]), truth[4:5]).min() > 0.9999


def test_another_text_is_noticed(llm, truth):
    """Negative control: the neighbours' vectors are not near."""
    assert cosines(embed(llm, TEXTS), np.roll(truth, 1, axis=0)).max() < 0.999


def test_half_precision_stays_close(truth):
    with LLM("demo-embeddings", dtype="bfloat16", threads=1) as llm:
        assert cosines(embed(llm, TEXTS), truth).min() > 0.999


def test_dimensions_are_the_first_values_normalized(llm, truth):
    found, cut = embed(llm, TEXTS[:4], dimensions=64), truth[:4, :64]
    assert found.shape == (4, 64)
    assert cosines(found, cut).min() > 0.9999
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() < 1e-5
    raw = embed(llm, TEXTS[:4], use_activation=False)
    assert np.linalg.norm(raw, axis=1).max() > 1.5


def test_a_text_that_is_too_long_is_refused_before_any_runs(llm):
    with pytest.raises(RequestError, match="maximum context length is 256"):
        llm.embed(["short", "word " * 300], use_tqdm=False)
    assert not llm.engine.has_work


def test_scores_are_cosines(llm):
    found = llm.score("A cat sits on the mat", ["A kitten is on the rug", "Stock prices fell"], use_tqdm=False)
    near, far = (output.outputs.score for output in found)
    assert near > 0.5 > far
    with pytest.raises(RequestError, match="not to classify"):
        llm.classify("text")
    with pytest.raises(RequestError, match="not to generate"):
        llm.generate("text", use_tqdm=False)
