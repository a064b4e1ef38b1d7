"""The demo model against transformers: tokens, and logits in each way the engine may compute them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from tests.e2e.oracle import PROMPTS, Oracle, Recorder, demo_path, greedy, relative_error

from anychip import LLM
from anychip.text.load import load_tokenizer

LIMITS = {"float32": 1e-5, "bfloat16": 3e-2}
CLEAR = 0.05
"""Gap between the best two logits above which rounding may not change the choice."""
TOKENS = 8


def joined(prompts: list[list[int]]) -> list[int]:
    return list(chain.from_iterable(prompts))


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def oracle(dtype: str) -> Oracle:
    return Oracle(dtype)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = load_tokenizer(Path(demo_path()))
    assert tokenizer is not None
    return [tokenizer.encode(prompt) for prompt in PROMPTS]


def open_demo(dtype: str, **options: object) -> LLM:
    small = {"max_model_len": 1024, "max_num_seqs": 32, "max_num_batched_tokens": 512, "device": "cpu"}
    return LLM(model="demo", dtype=dtype, **{**small, **options})


@pytest.fixture(scope="module")
def demo(dtype: str) -> Iterator[LLM]:
    with open_demo(dtype) as llm:
        yield llm


def test_greedy_tokens_equal_where_the_reference_is_clear(
    demo: LLM, oracle: Oracle, prompts: list[list[int]], dtype: str
) -> None:
    if dtype != "float32":
        return  # rounded activations move logits by more than the gap; their error has tests of its own
    clear = 0
    for prompt, output in zip(prompts, greedy(demo, prompts, TOKENS), strict=True):
        best = oracle.logits([*prompt, *output], TOKENS + 1)[:-1].topk(2)
        gaps = best.values[:, 0] - best.values[:, 1]
        sure = gaps > CLEAR
        clear += bool(sure.all())
        chosen = best.indices[:, 0]
        assert [token for token, is_sure in zip(output, sure.tolist(), strict=True) if is_sure] == chosen[sure].tolist()
    assert clear >= 15


def test_logits_of_requests_at_once(demo: LLM, oracle: Oracle, prompts: list[list[int]], dtype: str) -> None:
    many = (prompts * 2)[:32]
    recorder = Recorder(demo)
    outputs = greedy(demo, many, TOKENS)
    assert relative_error(recorder, oracle, many, outputs) < LIMITS[dtype]


def test_logits_of_chunked_prefill(oracle: Oracle, prompts: list[list[int]], dtype: str) -> None:
    long = [joined(prompts[:12]), joined(prompts[8:])]
    with open_demo(dtype, max_num_batched_tokens=16, max_num_seqs=4) as llm:
        recorder = Recorder(llm)
        outputs = greedy(llm, long, TOKENS)
        assert llm.engine.scheduler.stats.steps_total > len(joined(long)) // 16
        assert relative_error(recorder, oracle, long, outputs) < LIMITS[dtype]


def test_logits_of_a_cached_prefix(demo: LLM, oracle: Oracle, prompts: list[list[int]], dtype: str) -> None:
    shared = joined(prompts[:10])
    long = [shared + prompt for prompt in prompts[10:14]]
    greedy(demo, [shared], 1)
    before = demo.engine.scheduler.stats.prefix_hits_total
    recorder = Recorder(demo)
    outputs = greedy(demo, long, TOKENS)
    assert demo.engine.scheduler.stats.prefix_hits_total - before >= 4 * (len(shared) // 16) * 16
    assert relative_error(recorder, oracle, long, outputs) < LIMITS[dtype]


def test_another_models_logits_would_fail(demo: LLM, oracle: Oracle, prompts: list[list[int]], dtype: str) -> None:
    """The negative control: logits one position off are far outside the limit."""
    recorder = Recorder(demo)
    outputs = greedy(demo, prompts[:1], 4)
    shifted = [[*prompts[0][1:], prompts[0][0]]]
    assert relative_error(recorder, oracle, shifted, outputs) > 10 * LIMITS[dtype]
