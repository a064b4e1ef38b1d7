"""Whether a device answers as another one did: greedy tokens of a real model, equal but where two are all but tied.

python benchmarks/answers.py write MODEL answers.json --device reference --dtype float32
python benchmarks/answers.py compare MODEL answers.json --device cuda --dtype bfloat16
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from anychip import LLM, SamplingParams

PROMPTS = (
    "The capital of France is",
    "Water boils at",
    "def fibonacci(n):",
    "Once upon a time, in a village by the sea,",
    "The three primary colours are",
    "To make a good cup of tea, first",
    "In 1969, two astronauts",
    "The quick brown fox jumps over the lazy dog. " * 12 + "The dog",
)
TOKENS, TOP = 48, 5
TIE = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.25}
"""Log-probabilities closer than this may change places."""


def answer(options: argparse.Namespace) -> list[dict[str, list[object]]]:
    """Tokens and the best log-probabilities at each place, of each prompt."""
    params = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True, logprobs=TOP)
    with LLM(model=options.model, device=options.device, dtype=options.dtype, max_model_len=1024) as llm:
        outputs = llm.generate(list(PROMPTS), params, use_tqdm=False)
    return [
        {
            "tokens": list(output.outputs[0].token_ids),
            "best": [[[token, each.logprob] for token, each in place.items()] for place in output.outputs[0].logprobs],
        }
        for output in outputs
    ]


def differences(given: list[dict], wanted: list[dict], tie: float) -> tuple[int, int, list[str], float]:
    """Equal tokens, answers that part at a tie, those that part elsewhere, the largest difference of a logprob."""
    compared, tied, wrong, largest = 0, 0, list[str](), 0.0
    for number, (one, other) in enumerate(zip(given, wanted, strict=True)):
        for place, (token, right) in enumerate(zip(one["tokens"], other["tokens"], strict=True)):
            mine, theirs = dict(map(tuple, one["best"][place])), dict(map(tuple, other["best"][place]))
            largest = max([largest, *(abs(mine[each] - theirs[each]) for each in mine.keys() & theirs.keys())])
            if token != right:
                if theirs[right] - theirs.get(token, float("-inf")) <= tie:
                    tied += 1
                else:
                    wrong.append(f"prompt {number}, token {place}: {token}, not {right}")
                break
            compared += 1
    return compared, tied, wrong, largest


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("write", "compare"))
    parser.add_argument("model")
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", default="reference")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    given = answer(options)
    if options.mode == "write":
        options.file.write_text(json.dumps(given) + "\n")
        return 0
    compared, tied, wrong, largest = differences(given, json.loads(options.file.read_text()), TIE[options.dtype])
    print(f"{options.device} {options.dtype}: {compared} equal tokens, {tied} of {len(PROMPTS)} answers part at a tie,")
    print(f"    {len(wrong)} elsewhere; log-probabilities differ by at most {largest:.2g}", *wrong, sep="\n    ")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
