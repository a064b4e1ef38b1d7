"""A load's outcome as a picture."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from anychip.bench.ask import Outcome
from anychip.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 60


def check_plot() -> None:
    """Raise `UserError` where nothing can be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("--plot needs matplotlib.", "Run `pip install 'anychip[plot]'`.")


def plot(path: str, report: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Draw how latencies are distributed, and throughput over time, into a PNG."""
    from matplotlib.figure import Figure

    good = [outcome for outcome in outcomes if not outcome.error]
    figure = Figure(figsize=(11, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    rate = f"{report['output_tokens_per_second']:.0f} tokens/s, {report['requests_per_second']:.1f} requests/s"
    figure.suptitle(f"{report['model']}: {report['completed']} requests, {rate}")
    _distribution(axes[0, 0], "time to first token", [outcome.ttft for outcome in good])
    _distribution(axes[0, 1], "between two tokens", [pause for outcome in good for pause in outcome.itl])
    _distribution(axes[1, 0], "whole request", [outcome.e2e for outcome in good])
    _over_time(axes[1, 1], good, report["seconds"])
    figure.savefig(path, format="png", dpi=120)


def _distribution(axes: Axes, title: str, seconds: Sequence[float]) -> None:
    values = np.sort(np.array(seconds)) * 1000
    axes.plot(values, np.arange(1, len(values) + 1) / max(1, len(values)))
    for part in (0.5, 0.99):
        if len(values):
            place = float(np.quantile(values, part))
            axes.axvline(place, linestyle=":", color="gray")
            axes.annotate(f"p{part * 100:.0f} {place:.1f}", (place, part), textcoords="offset points", xytext=(4, -12))
    axes.set(title=title, xlabel="milliseconds", ylabel="part of all", ylim=(0, 1.02))


def _over_time(axes: Axes, outcomes: Sequence[Outcome], seconds: float) -> None:
    edges = np.linspace(0, max(seconds, 1e-3), _BINS + 1)
    times = [moment for outcome in outcomes for moment in outcome.chunks]
    weights = [outcome.output_tokens / len(outcome.chunks) for outcome in outcomes for _ in outcome.chunks]
    counts, _ = np.histogram(times, edges, weights=weights)
    axes.stairs(counts / np.diff(edges), edges, label="tokens/s")
    axes.set(title="over time", xlabel="seconds", ylabel="tokens/s")
    other = axes.twinx()
    opened = np.array([sum(one.start <= moment < one.end for one in outcomes) for moment in edges])
    other.plot(edges, opened, color="tab:orange", label="open requests")
    other.set_ylabel("open requests", color="tab:orange")
    other.set_ylim(bottom=0)
