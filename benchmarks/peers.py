"""anychip and its peers on one processor, in turn: A B A B, ratios pair by pair, one table.

`python benchmarks/peers.py WORKLOADS MODELS [--rows demo-q4_0,memory] [--pairs 2] [--runs 3] [--json FILE]`

WORKLOADS is the path of the script that runs one workload on several engines, MODELS the folder that its `peers.sh`
fills.
Run it on an idle machine: it prints how much of the processors others took.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METRIC = {"prefill_1k": "prompt_rate"}
"""What is compared, where it is not the rate of output."""
VLLM = ("dtype=" + json.dumps("bfloat16"), "max_model_len=2048")
SETTINGS = {
    "OMP_NUM_THREADS": str(os.cpu_count()),
    "OMP_PLACES": "cores",
    "OMP_PROC_BIND": "true",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": f"0-{(os.cpu_count() or 1) - 1}",
    "HF_HUB_OFFLINE": "1",
}
"""What the peers want to be told; the same for both engines of a pair."""
BUSY = 0.05
"""Cores that others took from which a figure is not worth quoting."""


@dataclass(frozen=True, slots=True)
class Row:
    """One model on anychip and a peer, and for each workload the ratio to reach first, and then."""

    model: str
    peer: str
    peer_model: str
    ratios: dict[str, tuple[float, float]]


ROWS = {
    "demo-bf16-llamacpp": Row("smollm2-135m", "llamacpp", "smollm2-135m-bf16.gguf", {"decode_1": (1.15, 1.3)}),
    "demo-bf16-vllm": Row(
        "smollm2-135m",
        "vllm",
        "smollm2-135m",
        {"prefill_1k": (1.2, 1.4), "batch_32": (1.7, 2.4), "shared_prefix": (1.7, 2.5)},
    ),
    "demo-q4_0": Row(
        "smollm2-135m-Q4_0.gguf",
        "llamacpp",
        "smollm2-135m-Q4_0.gguf",
        {"decode_1": (1.1, 1.4), "prefill_1k": (2.0, 4.0), "batch_32": (2.5, 4.5)},
    ),
    "demo-q4_1": Row(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "llamacpp",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        {"decode_1": (1.4, 1.9), "prefill_1k": (4.0, 9.0), "batch_32": (6.0, 11.0)},
    ),
    "1b-bf16-llamacpp": Row("llama-1b-random", "llamacpp", "llama-1b-random-bf16.gguf", {"decode_1": (1.0, 1.05)}),
    "1b-bf16-vllm": Row(
        "llama-1b-random", "vllm", "llama-1b-random", {"prefill_1k": (1.03, 1.05), "batch_32": (1.4, 1.8)}
    ),
    "1b-q4_0": Row(
        "llama-1b-random-Q4_0.gguf",
        "llamacpp",
        "llama-1b-random-Q4_0.gguf",
        {"decode_1": (1.05, 1.2), "prefill_1k": (1.5, 2.5)},
    ),
}
MEMORY = "memory"
"""The row that has no peer: peak memory of all processes with 8 requests."""
MEMORY_GOALS = (0.9, 0.5)


def lines_of(script: Path, arguments: list[str]) -> list[dict[str, Any]]:
    """The figures that the script prints."""
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **SETTINGS})
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"engine"')]


def run_row(row: Row, script: Path, models: Path, pairs: int, runs: int) -> list[dict[str, Any]]:
    """Both engines in turn, `pairs` times."""
    arguments = [f"anychip,{row.peer}", str(models / row.model), "--model-for", f"{row.peer}={models / row.peer_model}"]
    arguments += ["--only", ",".join(row.ratios), "--pairs", str(pairs), "--runs", str(runs)]
    for option in VLLM if row.peer == "vllm" else ():
        arguments += ["--option-for", f"vllm:{option}"]
    return lines_of(script, arguments)


def table_of(name: str, row: Row, figures: list[dict[str, Any]]) -> list[str]:
    """A line for each workload."""
    lines = []
    for workload, goals in row.ratios.items():
        metric = METRIC.get(workload, "output_rate")
        chosen = [each for each in figures if (each["workload"], each["metric"]) == (workload, metric)]
        ours, theirs = (
            [each["value"] for each in chosen if each["engine"] == engine] for engine in ("anychip", row.peer)
        )
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        busy = max(each.get("foreign_cores", 0.0) for each in chosen)
        lines.append(
            f"| {name} | {workload} | {statistics.median(ours):.1f} | {statistics.median(theirs):.1f} "
            f"| {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) "
            f"| {goals[0]:g}, {goals[1]:g} | {busy:.2f}{' (busy)' if busy > BUSY else ''} |"
        )
    return lines


def measure_memory(script: Path, models: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Peak memory with 8 requests."""
    figures = lines_of(script, ["anychip", str(models / "smollm2-135m"), "--only", "decode_8", "--runs", "1", "--here"])
    peak = next(each["value"] for each in figures if each["metric"] == "peak_rss")
    goals = f"{MEMORY_GOALS[0]:g}, {MEMORY_GOALS[1]:g} GiB"
    return [f"| {MEMORY} | decode_8 | {peak:.2f} GiB | | | {goals} | |"], figures


def main() -> None:
    """Run the rows asked for and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("workloads", type=Path)
    parser.add_argument("models", type=Path)
    parser.add_argument("--rows", default=",".join([*ROWS, MEMORY]))
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chosen = options.rows.split(",")
    if unknown := set(chosen) - {*ROWS, MEMORY}:
        raise SystemExit(f"No row is called {', '.join(sorted(unknown))}; there are {', '.join([*ROWS, MEMORY])}.")
    lines = [
        "| row | workload | anychip | peer | ratio | to reach | cores others took |",
        "|---|---|---|---|---|---|---|",
    ]
    everything: list[dict[str, Any]] = []
    for name in chosen:
        if name == MEMORY:
            made, figures = measure_memory(options.workloads, options.models)
        else:
            figures = run_row(ROWS[name], options.workloads, options.models, options.pairs, options.runs)
            made = table_of(name, ROWS[name], figures)
        lines += made
        everything += [{"row": name, **each} for each in figures]
        sys.stderr.write("\n".join(made) + "\n")
    sys.stdout.write("\n".join(lines) + "\n")
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
