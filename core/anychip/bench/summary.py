"""A load's outcome in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anychip.bench.ask import Outcome
from anychip.bench.options import LoadOptions, goals

_PERCENTILES = (50, 90, 95, 99)


def summary(options: LoadOptions, model: str, outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    """Throughput, latencies in milliseconds, goodput, and what failed."""
    good = [outcome for outcome in outcomes if not outcome.error]
    given = sum(outcome.prompt_tokens for outcome in good)
    made = sum(outcome.output_tokens for outcome in good)
    errors = [outcome.error for outcome in outcomes if outcome.error]
    report: dict[str, Any] = {
        "model": model,
        "endpoint": options.endpoint,
        "dataset": options.dataset,
        "rate": options.rate,
        "burstiness": options.burstiness,
        "concurrency": options.concurrency,
        "seconds": round(seconds, 3),
        "completed": len(good),
        "failed": len(errors),
        "first_error": errors[0] if errors else None,
        "input_tokens": given,
        "output_tokens": made,
        "requests_per_second": round(len(good) / seconds, 3),
        "output_tokens_per_second": round(made / seconds, 2),
        "total_tokens_per_second": round((given + made) / seconds, 2),
        "peak_concurrency": peak(outcomes),
    }
    wanted = goals(options)
    if wanted:
        met = sum(all(value(outcome, name) <= goal for name, goal in wanted.items()) for outcome in good)
        report["goodput_requests_per_second"] = round(met / seconds, 3)
        report["goodput_part"] = round(met / max(1, len(outcomes)), 4)
    for name in ("ttft", "tpot", "e2e"):
        report[f"{name}_ms"] = spread([value(outcome, name) for outcome in good])
    report["itl_ms"] = spread([pause for outcome in good for pause in outcome.itl])
    return report


def value(outcome: Outcome, name: str) -> float:
    """One latency of a request in seconds; of the pauses between tokens, the longest."""
    match name:
        case "ttft":
            return outcome.ttft
        case "tpot":
            return outcome.tpot
        case "itl":
            return max(outcome.itl, default=0.0)
    return outcome.e2e


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Mean, percentiles and maximum in milliseconds; empty for no values."""
    if not seconds:
        return {}
    values = np.array(seconds) * 1000
    found = {f"p{one}": float(np.percentile(values, one)) for one in _PERCENTILES}
    return {name: round(one, 3) for name, one in {"mean": values.mean(), **found, "max": values.max()}.items()}


def peak(outcomes: Sequence[Outcome]) -> int:
    """Most requests that were open at a time."""
    changes = sorted([(one.start, 1) for one in outcomes] + [(one.end, -1) for one in outcomes])
    return int(max(np.cumsum([change for _, change in changes]), default=0))
