"""Threads that share one `LLM`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from anychip import LLM, SamplingParams
from anychip.testing.tiny_model import write_tiny_model


def test_threads_take_turns(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    params = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    prompts = [[{"prompt_token_ids": [number, 5, 7]}] for number in range(1, 9)]

    def tokens(prompt: list[dict[str, list[int]]]) -> list[int]:
        return list(llm.generate(prompt, params, use_tqdm=False)[0].outputs[0].token_ids)

    with LLM(str(tmp_path), dtype="float32") as llm:
        alone = [tokens(prompt) for prompt in prompts]
        with ThreadPoolExecutor(8) as threads:
            together = list(threads.map(tokens, prompts * 8))
    assert together == alone * 8
