"""What a load is made of."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from anychip.errors import UserError

Count = Annotated[int, msgspec.Meta(ge=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]

GOALS = ("ttft", "tpot", "itl", "e2e")


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `anychip bench serve`; the command line makes a flag of each."""

    url: str = "http://127.0.0.1:8000"
    """Where the server is, with or without /v1."""
    model: str | None = None
    """The model to ask; without it, the first one the server lists."""
    api_key: str | None = None
    """The key that the server wants."""
    endpoint: Literal["completions", "chat"] = "completions"
    """The route to load."""
    dataset: Literal["random", "shared-prefix", "sharegpt"] = "random"
    """Random words, random words behind a few common beginnings, or the conversations of --dataset-path."""
    dataset_path: str | None = None
    """A JSON file in ShareGPT's format."""
    requests: Count = 100
    """How many requests to send."""
    rate: Positive | None = None
    """Requests a second; without it, all at once, or as --concurrency allows."""
    burstiness: Positive = 1.0
    """Shape of the gamma distribution of the pauses between requests: 1 is Poisson, less comes in bursts."""
    concurrency: Count | None = None
    """Most requests that are open at a time."""
    input_len: Count = 128
    """Tokens of a random prompt, common beginning included."""
    output_len: Count | None = None
    """Tokens of an answer; 128 for random prompts, else what the conversation has."""
    range_ratio: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    """Lengths vary evenly by this part, up and down."""
    prefix_len: Count = 64
    """Tokens of each common beginning."""
    prefixes: Count = 4
    """How many common beginnings there are."""
    ignore_eos: bool = True
    """Ask for answers of exact length with `ignore_eos`, which anychip and vLLM know."""
    temperature: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Sampling temperature of every request."""
    goodput: tuple[str, ...] = ()
    """A goal in milliseconds, such as ttft:200 (ttft, tpot, itl or e2e); goodput counts requests that meet all."""
    timeout: Positive = 600.0
    """Seconds after which a request counts as failed."""
    seed: int = 0
    """Makes prompts, lengths and pauses the same each time."""
    output: str | None = None
    """Write the results there as JSON, each request's times included."""
    plot: str | None = None
    """Draw the results there, as a PNG; needs `anychip[plot]`."""


def goals(options: LoadOptions) -> dict[str, float]:
    """Each goal of `goodput` in seconds; raises `UserError` for what is none."""
    found: dict[str, float] = {}
    for text in options.goodput:
        name, _, value = text.partition(":")
        try:
            found[name] = float(value) / 1000
        except ValueError:
            found[""] = 0.0
        if name not in GOALS or "" in found:
            raise UserError(f"--goodput takes a goal such as ttft:200, not {text!r}.", f"Goals: {', '.join(GOALS)}.")
    return found
