"""Accuracy of ways to compute a model, against float32 on the weights of its file.

    python benchmarks/accuracy.py --model demo quantization=int8 quantization=int4,quantization_group_size=128

Each argument is one way: engine options joined by commas. Prints the rows of a table. `--reference` names another way
to compare with, say `dtype=float32,quantization=int4,native_kernels=none`: the same rounded weights, in float32.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from anychip import LLM
from anychip.config import make_config
from anychip.engine.locate import locate_model
from anychip.testing.accuracy import WINDOW, Accuracy, compare, held_text
from anychip.text.load import load_tokenizer


def _options(way: str) -> dict[str, Any]:
    return dict(option.split("=", 1) for option in way.split(","))


def _row(way: str, found: Accuracy) -> str:
    change = 100 * (found.likelihood / found.reference_likelihood - 1)
    divergence = f"{found.mean_divergence:.5f} | {found.largest_divergence:.3f}"
    likelihood = f"{found.likelihood:.4f} (reference {found.reference_likelihood:.4f}, {change:+.2f}%)"
    return f"| {way} | {found.tokens} | {divergence} | {likelihood} |"


def main(arguments: list[str]) -> int:
    """Compare each way with the reference; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", default=["dtype=auto"], metavar="OPTION=VALUE,...")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--reference", default="dtype=float32", metavar="OPTION=VALUE,...")
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args(arguments)
    shared: dict[str, Any] = {"model": options.model, "device": options.device, "max_model_len": WINDOW + 1}
    shared |= {
        "max_num_seqs": 1,
        "max_num_batched_tokens": WINDOW,
        "enable_prefix_caching": False,
        "log_level": "warning",
    }
    tokenizer = load_tokenizer(locate_model(make_config({"model": options.model}), lambda *report: None).path)
    assert tokenizer is not None, "the model has no tokenizer"
    tokens = tokenizer.encode(held_text()[: 8 * options.tokens])[: options.tokens]
    print("| way | tokens | mean KL divergence | largest | mean log-likelihood |\n|---|---|---|---|---|")
    with LLM(**shared, **_options(options.reference)) as reference:
        for way in options.ways:
            with LLM(**shared, **_options(way)) as other:
                found = compare(reference, other, tokens)
            print(_row(way, found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
