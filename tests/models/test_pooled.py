"""Embeddings and labels of every family that pools, through the whole engine, against transformers in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.models.tiny_pairs import write_tokenizer
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM
from transformers import AutoModelForSequenceClassification as Classifier

from anychip.errors import RequestError
from anychip.llm import LLM
from anychip.pooling_params import PoolingParams

VOCABULARY, PAD = 97, 1
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 66,
    "pad_token_id": PAD,
}
DISTIL = {"dim": 48, "hidden_dim": 80, "n_layers": 2, "n_heads": 6}
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"type_vocab_size": 1},
    "xlm-roberta": {"hidden_act": "gelu_new", "type_vocab_size": 2},
    "camembert": {"hidden_act": "relu"},
    "distilbert": DISTIL,
    "llama": {},
    "qwen2": {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
    "qwen3": {"head_dim": 12},
    "mistral": {"sliding_window": 5, "head_dim": 16},
    "gemma2": {"head_dim": 8, "sliding_window": 5},
}
ENCODERS = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert")
LENGTHS = (1, 33, 8, 64, 2, 17, 17, 50)
LIMIT = 1e-5
RAW = PoolingParams(use_activation=False)


def saved(folder: Path, family: str, kind: Any, **settings: Any) -> Any:
    """A random model of the family, in a checkpoint; the model itself."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**SHAPE, **FAMILIES[family], **settings})
    model = kind.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3 if parameter.dim() < 2 else parameter.shape[-1] ** -0.5)
    model.save_pretrained(folder)
    return model


def prompts() -> list[list[int]]:
    generator = np.random.default_rng(3)
    return [generator.integers(3, VOCABULARY, length).tolist() for length in LENGTHS]


def vectors(folder: Path, given: list[Any], **options: Any) -> np.ndarray:
    """Raw vectors of all prompts, run together; tokens a step are few, so that decoders run in chunks."""
    limits = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "threads": 1, "device": "cpu", "dtype": "float32"}
    with LLM(str(folder), **{**limits, **options}) as llm:
        found = llm.encode(given, RAW, use_tqdm=False)
        llm.engine.check_integrity()
    return np.stack([one.outputs.data for one in found])


def error(found: np.ndarray, wanted: torch.Tensor) -> float:
    return float(np.linalg.norm(found - wanted.numpy()) / np.linalg.norm(wanted.numpy()))


@torch.inference_mode()
def hidden(model: Any, ids: list[int], **inputs: Any) -> torch.Tensor:
    return model.base_model(torch.tensor([ids]), **inputs).last_hidden_state[0]


POOLINGS = {"mean": lambda states: states.mean(0), "cls": lambda states: states[0], "last": lambda states: states[-1]}


@pytest.mark.parametrize("family", FAMILIES)
def test_embeddings_equal_transformers(family: str, tmp_path: Path) -> None:
    """A bare model, ragged rows together, decoders in chunks; each kind of pooling for one family of each sort."""
    model = saved(tmp_path, family, AutoModel)
    kinds = POOLINGS if family in ("bert", "llama") else ["mean" if family in ENCODERS else "last"]
    states = [hidden(model, ids) for ids in prompts()]
    for kind in kinds:
        options = {"pooling": kind} if len(kinds) > 1 else {}
        wanted = torch.stack([POOLINGS[kind](each) for each in states])
        assert error(vectors(tmp_path, prompts(), **options), wanted) < LIMIT, kind


@pytest.mark.parametrize("family", FAMILIES)
def test_labels_equal_transformers(family: str, tmp_path: Path) -> None:
    model = saved(tmp_path, family, Classifier, num_labels=3)
    with torch.inference_mode():
        wanted = torch.cat([model(torch.tensor([ids])).logits for ids in prompts()])
    assert error(vectors(tmp_path, prompts()), wanted) < LIMIT


@pytest.mark.parametrize(("family", "kind"), [("bert", AutoModelForMaskedLM), ("qwen2", AutoModelForCausalLM)])
def test_a_head_for_another_task_is_passed_over(family: str, kind: Any, tmp_path: Path) -> None:
    model = saved(tmp_path, family, kind)
    pool = POOLINGS["mean" if family == "bert" else "last"]
    wanted = torch.stack([pool(hidden(model, ids)) for ids in prompts()])
    assert error(vectors(tmp_path, prompts(), task="embed"), wanted) < LIMIT


def test_decoders_pool_the_same_whatever_is_cached(tmp_path: Path) -> None:
    """Prompts that share beginnings, with blocks for a few of them only: rows and blocks are used again and again."""
    model = saved(tmp_path, "llama", AutoModel)
    shared = prompts()[3][:32]
    given = [shared + ids[:20] for ids in prompts()] * 2
    for kind, pool in POOLINGS.items():
        wanted = torch.stack([pool(hidden(model, ids)) for ids in given])
        few = vectors(tmp_path, given, pooling=kind, kv_cache_memory_bytes=9 * 16 * 2 * 2 * 2 * 8 * 4)
        assert error(few, wanted) < LIMIT, kind


def test_two_texts_are_told_apart(tmp_path: Path) -> None:
    """The second text's tokens have another type: a pair is not the same tokens as one text."""
    model = saved(tmp_path, "bert", Classifier, num_labels=1)
    write_tokenizer(tmp_path, VOCABULARY)
    pairs = [("w5 w6 w7", "w8"), ("w9", "w10 w11 w12 w13"), ("w5", "w5")]
    with LLM(str(tmp_path), threads=1, device="cpu", dtype="float32") as llm:
        found = llm.score([one for one, _ in pairs], [other for _, other in pairs], RAW, use_tqdm=False)
        for output, (one, other) in zip(found, pairs, strict=True):
            first = 2 + len(one.split())
            types = [0] * first + [1] * (len(other.split()) + 1)
            ids = output.prompt_token_ids
            assert len(ids) == len(types)
            with torch.inference_mode():
                apart, alike = (
                    float(model(torch.tensor([ids]), token_type_ids=torch.tensor([each])).logits)
                    for each in (types, [0] * len(types))
                )
            assert abs(output.outputs.score - apart) < 1e-5
            assert abs(apart - alike) > 1e-4, "a control that says nothing"
        assert llm.engine.info.tasks == ("classify", "score")


def test_probabilities_of_several_labels(tmp_path: Path) -> None:
    names = {0: "bad", 1: "so so", 2: "good"}
    model = saved(tmp_path, "bert", Classifier, id2label=names, label2id={name: at for at, name in names.items()})
    given = [{"prompt_token_ids": ids} for ids in prompts()]
    with LLM(str(tmp_path), threads=1, device="cpu", dtype="float32") as llm:
        found = np.array([one.outputs.probs for one in llm.classify(given, use_tqdm=False)])
        with pytest.raises(RequestError, match="not to score"):
            llm.score("a", "b", use_tqdm=False)
    with torch.inference_mode():
        wanted = torch.cat([model(torch.tensor([ids])).logits.softmax(-1) for ids in prompts()])
    assert error(found, wanted) < LIMIT
    assert found.sum(1) == pytest.approx(1)


def test_a_broken_vector_fails_its_own_request(tmp_path: Path) -> None:
    """Token 7 stands for no number: who sends it is told, and the others in the batch get theirs."""
    model = saved(tmp_path, "bert", AutoModel)
    model.embeddings.word_embeddings.weight.data[7] = float("nan")
    model.save_pretrained(tmp_path)
    with LLM(str(tmp_path), threads=1, device="cpu", dtype="float32") as llm:
        with pytest.raises(RequestError, match="not of finite numbers"):
            llm.encode([[5, 6], [6, 7, 8]], RAW, use_tqdm=False)
        given = [[5, 6], [8, 9, 10], [5]]
        found = np.stack([one.outputs.data for one in llm.encode(given, RAW, use_tqdm=False)])
        llm.engine.check_integrity()
    assert error(found, torch.stack([hidden(model, ids).mean(0) for ids in given])) < LIMIT
