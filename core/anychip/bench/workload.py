"""The requests of a load."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anychip.bench.options import LoadOptions
from anychip.errors import UserError

_OUTPUT_LEN = 128
_CHARACTERS_PER_TOKEN = 4
_TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem "
    "hand part place case week company system program question work number night point home water room mother area"
)
_WORDS = _TEXT.split()


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request: its text and the most tokens of its answer."""

    text: str
    output_len: int


def prompts(options: LoadOptions, words_per_token: float) -> list[Prompt]:
    """The requests of a load; raises `UserError` for a file that holds none."""
    chance = random.Random(options.seed)
    if options.dataset == "sharegpt":
        return _conversations(options, chance)
    beginnings = [""]
    length = options.input_len
    if options.dataset == "shared-prefix":
        count = max(1, round(options.prefix_len * words_per_token))
        beginnings = [_text(chance, count) + " " for _ in range(options.prefixes)]
        length = max(1, length - options.prefix_len)
    made = []
    for _ in range(options.requests):
        words = max(1, round(_varied(chance, length, options.range_ratio) * words_per_token))
        output = _varied(chance, options.output_len or _OUTPUT_LEN, options.range_ratio)
        made.append(Prompt(chance.choice(beginnings) + _text(chance, words), output))
    return made


def sample_text(words: int) -> str:
    """Words as in random prompts, to find out how many tokens they are."""
    return _text(random.Random(0), words)


def _text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(_WORDS, k=words))


def _varied(chance: random.Random, length: int, ratio: float) -> int:
    return max(1, round(length * chance.uniform(1 - ratio, 1 + ratio)))


def _conversations(options: LoadOptions, chance: random.Random) -> list[Prompt]:
    if options.dataset_path is None:
        raise UserError("--dataset sharegpt needs a file.", "Name it with --dataset-path.")
    try:
        data = json.loads(Path(options.dataset_path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read {options.dataset_path}: {error}.", "Give a JSON file.") from None
    found = list(_first_turns(data, options.output_len))
    if not found:
        raise UserError(
            f"{options.dataset_path} holds no conversation of two turns.",
            'Give a list of {"conversations": [{"from": "human", "value": ...}, {"from": "gpt", "value": ...}]}.',
        )
    chance.shuffle(found)
    return [found[index % len(found)] for index in range(options.requests)]


def _first_turns(data: Any, output_len: int | None) -> Iterator[Prompt]:
    for entry in data if isinstance(data, list) else []:
        turns = entry.get("conversations") if isinstance(entry, dict) else None
        match turns:
            case [{"value": str(question)}, {"value": str(answer)}, *_] if question.strip():
                yield Prompt(question, output_len or max(1, len(answer) // _CHARACTERS_PER_TOKEN))
