"""Grammars in the engine's loop, on the null platform: however steps overlap, each sequence fits its grammar."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.grammar.byte_model import END, write_byte_model

from anychip import LLM, RequestOutput, SamplingParams
from anychip.engine.messages import Submit
from anychip.grammar.follow import Grammars

PAIRS = r"([a-f]7[0-9]x)*"
FREE = SamplingParams(max_tokens=12, ignore_eos=True)
BOUND = FREE.replace(structured_outputs={"regex": PAIRS})
Start = Callable[..., LLM]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    folder = write_byte_model(tmp_path_factory.mktemp("bytes") / "model")
    opened: list[LLM] = []

    def run(**options: Any) -> LLM:
        opened.append(LLM(str(folder), device="null", load_format="dummy", block_size=16, **options))
        return opened[-1]

    yield run
    for llm in opened:
        llm.close()


def ask(llm: LLM, lengths: list[int], params: list[SamplingParams]) -> list[RequestOutput]:
    prompts = [{"prompt_token_ids": [3 + index] * length} for index, length in enumerate(lengths)]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    llm.engine.check_integrity()
    return outputs


def text(output: RequestOutput) -> str:
    return output.outputs[0].text


@pytest.mark.parametrize("depth", [1, 2])
def test_rows_with_and_without_a_grammar_share_steps(start: Start, depth: int) -> None:
    llm = start(steps_in_flight=depth, max_num_batched_tokens=24)
    alone = text(ask(llm, [40], [FREE])[0])
    for _ in range(2):
        outputs = ask(llm, [40, 50, 5, 60], [FREE, BOUND, BOUND.replace(n=3), BOUND])
        assert text(outputs[0]) == alone
        for output in outputs[1:]:
            assert re.fullmatch(PAIRS, text(output))
            assert {choice.finish_reason for choice in output.outputs} == {"length"}
        assert len({choice.text for choice in outputs[2].outputs}) == 1, "the null model is certain"


def test_preempted_sequences_go_on_in_their_grammar(start: Start) -> None:
    llm = start(max_num_seqs=6, max_model_len=160)
    block_bytes = llm.engine.info.kv_cache_bytes // llm.engine.info.num_blocks
    small = start(max_num_seqs=6, max_model_len=160, kv_cache_memory_bytes=12 * block_bytes)
    long = FREE.replace(max_tokens=100, structured_outputs={"regex": PAIRS})
    outputs = ask(small, [20, 20, 20, 20], [long] * 4)
    assert small.engine.scheduler.stats.preemptions_total > 0
    for output in outputs:
        assert len(output.outputs[0].token_ids) == 100
        assert re.fullmatch(PAIRS, text(output))


def test_the_end_of_a_grammar_ends_the_sequence(start: Start) -> None:
    llm = start()
    bound = SamplingParams(max_tokens=50, structured_outputs={"choice": ["no"]})
    changes: list[dict[str, Any]] = [{}, {"ignore_eos": True}, {"max_tokens": 2}, {"max_tokens": 1}, {"stop": "o"}]
    outputs = ask(llm, [4] * 5, [bound.replace(**change) for change in changes])
    assert [len(output.outputs[0].token_ids) for output in outputs] == [2, 2, 2, 1, 2]
    assert [text(output) for output in outputs] == ["no", "no", "no", "n", "n"]
    assert [output.outputs[0].finish_reason for output in outputs] == ["stop", "stop", "length", "length", "stop"]


def test_an_end_of_sequence_may_come_where_the_grammar_may_end(start: Start) -> None:
    llm = start()
    either = SamplingParams(max_tokens=9, structured_outputs={"regex": "(a(bb)*)?"})
    free, bound = ask(llm, [4, 4], [either, either.replace(ignore_eos=True)])
    assert set(free.outputs[0].token_ids[:-1]) <= set(bound.outputs[0].token_ids)
    assert END not in bound.outputs[0].token_ids
    assert (text(bound), bound.outputs[0].finish_reason) == ("abbbbbbbb", "length")


def test_a_grammar_that_cannot_go_on_is_the_requests_fault(start: Start) -> None:
    llm = start()
    hopeless = FREE.replace(structured_outputs={"grammar": "start: start"})
    good, bad = ask(llm, [4, 4], [FREE, hopeless])
    assert good.outputs[0].finish_reason == "length"
    assert (bad.outputs[0].finish_reason, bad.outputs[0].token_ids) == ("error", [])


def test_others_run_while_a_grammar_is_compiled(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    compile_now = Grammars._compile
    monkeypatch.setattr(Grammars, "_compile", lambda self, text: gate.wait(240) and compile_now(self, text))
    llm = start()
    inputs, engine = llm._inputs, llm.engine
    submits: list[Submit] = [inputs.prepare([9, 9], params).submits[0] for params in (BOUND, FREE)]
    for submit in submits:
        engine.handle(submit)
    ended: list[int] = []
    for _ in range(40):
        ended += [finished.handle for outputs in engine.step() for finished in outputs.finished]
    assert ended == [submits[1].handle]
    gate.set()
    while engine.has_work:
        ended += [finished.handle for outputs in engine.step() for finished in outputs.finished]
    assert ended == [submits[1].handle, submits[0].handle]
    engine.check_integrity()


def test_an_engine_without_grammars_opens_none(start: Start) -> None:
    llm = start()
    ask(llm, [4], [FREE])
    assert llm.engine._constrained._opened is None
