"""`anychip bench`."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Annotated

import typer

from anychip.cli.fields import engine_fields
from anychip.cli.flags import Values, with_flags

if TYPE_CHECKING:
    from anychip.llm import LLM

SPECIAL = 1000
"""Low ids, which are special tokens in some vocabularies, are left out of random prompts."""


@with_flags(engine=engine_fields())
def bench(
    context: typer.Context,
    prompts: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 32,
    input_len: Annotated[int, typer.Option(min=1, help="Tokens of each prompt, at random.")] = 128,
    output_len: Annotated[int, typer.Option(min=1, help="Tokens of each answer.")] = 128,
    runs: Annotated[int, typer.Option(min=1, help="Measured runs, after one that warms up; the best counts.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    *,
    engine: Values,
) -> None:
    """Measure offline throughput: equal random prompts at once, greedy, ends of sequence ignored.

    `anychip bench serve` measures a server instead.
    """
    if context.invoked_subcommand:
        return
    from anychip.llm import LLM

    with LLM(**engine) as llm:
        shape = (prompts, input_len, output_len)
        _seconds(llm, shape, 0)
        seconds = min(_seconds(llm, shape, run + 1) for run in range(runs))
        report = {
            "model": engine.get("model", "demo"),
            "device": llm.engine.info.device,
            "dtype": llm.engine.info.dtype,
            "prompts": prompts,
            "input_len": input_len,
            "output_len": output_len,
            "seconds": round(seconds, 4),
            "output_tokens_per_second": round(prompts * output_len / seconds, 2),
            "total_tokens_per_second": round(prompts * (input_len + output_len) / seconds, 2),
        }
    print(json.dumps(report) if as_json else "\n".join(f"{name:26} {value}" for name, value in report.items()))


def _seconds(llm: LLM, shape: tuple[int, int, int], seed: int) -> float:
    """Wall time of one run on prompts of its own."""
    from anychip.sampling_params import SamplingParams

    count, length, output = shape
    vocabulary = llm.engine.info.vocab_size
    chance = random.Random(seed)
    ids = range(min(SPECIAL, vocabulary // 2), vocabulary)
    requests = [{"prompt_token_ids": chance.choices(ids, k=length)} for _ in range(count)]
    params = SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True, detokenize=False)
    begin = time.perf_counter()
    llm.generate(requests, params)
    return time.perf_counter() - begin
