"""What a model is loaded for, and what a model's files say of its vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anychip.config import make_config
from anychip.engine.messages import EngineInfo
from anychip.engine.pooling import VectorInputs, as_pairs
from anychip.engine.sizing import plan_cache
from anychip.engine.task import model_task
from anychip.errors import RequestError, UserError
from anychip.plugin.contract import KVSpec, Memory, ModelInfo, ModelSource
from anychip.plugin.tasks import SentenceFiles
from anychip.pooling_params import PoolingParams

FILES = SentenceFiles(pooling="mean", normalize=True, prompts={"query": "query: "})


def source(name: str = "", files: SentenceFiles | None = None, **config: Any) -> ModelSource:
    named = {"architectures": [name]} if name else {}
    return ModelSource("m", Path("m"), "safetensors", {**named, **config}, {}, sentence=files)


FOUND = [
    ("LlamaForCausalLM", None, {}, "generate"),
    ("GPT2LMHeadModel", None, {}, "generate"),
    ("", None, {}, "generate"),
    ("LlamaModel", None, {}, "embed"),
    ("BertModel", None, {}, "embed"),
    ("BertForMaskedLM", None, {}, "embed"),
    ("Qwen3ForCausalLM", FILES, {}, "embed"),
    ("Qwen3ForCausalLM", FILES, {"task": "generate"}, "generate"),
    ("Qwen3ForCausalLM", None, {"task": "embed"}, "embed"),
    ("Qwen3ForCausalLM", None, {"pooling": "last"}, "embed"),
    ("BertForSequenceClassification", None, {}, "classify"),
    ("BertForSequenceClassification", None, {"task": "embed"}, "embed"),
]


@pytest.mark.parametrize(("name", "files", "options", "task"), FOUND)
def test_the_task_is_found(name: str, files: SentenceFiles | None, options: dict[str, Any], task: str) -> None:
    assert model_task(make_config(options, {}), source(name, files)) == task


WRONG = [
    ("LlamaForCausalLM", {"task": "classify"}, "no classification head"),
    ("BertModel", {"task": "generate"}, "generates no text"),
    ("BertForSequenceClassification", {"task": "generate"}, "generates no text"),
    ("BertForSequenceClassification", {"pooling": "mean"}, "--pooling"),
    ("LlamaForCausalLM", {"task": "generate", "pooling": "mean"}, "--pooling"),
]


@pytest.mark.parametrize(("name", "options", "why"), WRONG)
def test_a_task_the_checkpoint_cannot_do(name: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why) as refusal:
        model_task(make_config(options, {}), source(name))
    assert refusal.value.remedy


class Inputs:
    """As much of the request processor as finishing vectors needs."""

    def __init__(self, size: int) -> None:
        self.info = EngineInfo(
            max_model_len=8, vocab_size=9, num_blocks=0, block_size=1, max_num_seqs=1, max_num_batched_tokens=8,
            dtype="float32", device="x:0", kv_cache_bytes=0, weight_bytes=0, prefix_caching=False, vector_size=size,
            token_masks=True,
        )  # fmt: skip


def finisher(size: int, files: SentenceFiles | None = None, **config: Any) -> VectorInputs:
    return VectorInputs(source("", files, **config), Inputs(size))  # type: ignore[arg-type]


RAW = np.array([3.0, -4.0, 12.0], np.float32)


def test_embeddings_are_cut_then_normalized_as_files_and_request_say() -> None:
    plain = finisher(3)
    assert plain.embedding(RAW, PoolingParams()) == pytest.approx(RAW / 13)
    assert plain.embedding(RAW, PoolingParams(dimensions=2)) == pytest.approx([0.6, -0.8])
    assert plain.embedding(RAW, PoolingParams(use_activation=False)).tolist() == RAW.tolist()
    assert finisher(3, SentenceFiles(prompts={})).embedding(RAW, PoolingParams()).tolist() == RAW.tolist()
    assert plain.embedding(RAW * 0, PoolingParams()).tolist() == [0, 0, 0]


def test_only_the_dimensions_a_model_was_made_for() -> None:
    model = finisher(3, matryoshka_dimensions=[2])
    model.check_dimensions(2)
    model.check_dimensions(3)
    with pytest.raises(RequestError, match="not made for 1"):
        model.check_dimensions(1)
    with pytest.raises(RequestError, match="3 dimensions, not 4"):
        model.check_dimensions(4)
    finisher(3).check_dimensions(1)


ACTIVATIONS = [
    (3, {}, "softmax"),
    (1, {}, "sigmoid"),
    (3, {"problem_type": "multi_label_classification"}, "sigmoid"),
    (1, {"problem_type": "regression"}, "identity"),
    (1, {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, "identity"),
    (1, {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}, "sigmoid"),
]


@pytest.mark.parametrize(("size", "config", "kind"), ACTIVATIONS)
def test_labels_become_probabilities(size: int, config: dict[str, Any], kind: str) -> None:
    values = RAW[:size]
    found = finisher(size, **config).activated(values, PoolingParams())
    wanted = {
        "softmax": np.exp(values) / np.exp(values).sum(),
        "sigmoid": 1 / (1 + np.exp(-values)),
        "identity": values,
    }[kind]
    assert found == pytest.approx(wanted, abs=1e-6)
    assert finisher(size, **config).activated(values, PoolingParams(use_activation=False)).tolist() == values.tolist()


@pytest.mark.parametrize(
    ("kind", "wanted"), [("cosine", -0.6), ("dot", -15.0), ("euclidean", -(80**0.5)), ("manhattan", -12.0)]
)
def test_similarity_by_the_measure_of_the_files(kind: str, wanted: float) -> None:
    first, second = np.array([5.0, 0.0], np.float32), np.array([-3.0, 4.0], np.float32)
    found = finisher(2, SentenceFiles(prompts={}, similarity=kind)).similarity(first, second)
    assert found == pytest.approx(wanted)


def test_labels_have_the_names_of_the_config() -> None:
    assert finisher(2, id2label={"0": "good", "1": "bad"}).labels == ["good", "bad"]
    assert finisher(2).labels == ["LABEL_0", "LABEL_1"]


def test_pairs() -> None:
    assert [pair.first for pair in as_pairs("a", ["b", "c"])] == ["a", "a"]
    assert [pair.second for pair in as_pairs(["a", "b"], ["c", "d"])] == ["c", "d"]
    for first, second in ((["a", "b"], ["c"]), ("a", []), ([], ["c"])):
        with pytest.raises(RequestError):
            as_pairs(first, second)


BAD_PARAMS = [
    {"dimensions": 0}, {"dimensions": True}, {"dimensions": 1.5}, {"truncate_prompt_tokens": 0},
    {"truncate_prompt_tokens": -2}, {"use_activation": 1},
]  # fmt: skip


@pytest.mark.parametrize("values", BAD_PARAMS)
def test_a_bad_parameter_is_named(values: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refusal:
        PoolingParams(**values)
    assert refusal.value.param == next(iter(values))


def test_a_plan_that_cannot_hold_a_whole_prompt_says_what_to_raise() -> None:
    info = ModelInfo((KVSpec("none", (), causal=False),), 9, max_model_len=512)
    options = {"block_size": 16, "max_num_batched_tokens": 128, "memory_utilization": 0.5, "max_num_seqs": 4}
    plan = plan_cache(info, Memory(0, 0), make_config(options, {}))
    assert (plan.groups, plan.max_model_len, plan.bytes) == ((), 128, 0)
    with pytest.raises(UserError, match="--max-num-batched-tokens 256"):
        plan_cache(info, Memory(0, 0), make_config({**options, "max_model_len": 256}, {}))
