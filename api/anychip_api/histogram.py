"""A histogram that costs its callers a bisection."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client.utils import floatToGoString


class Histogram:
    """Counts observations by upper bound; written by one thread, read at a scrape."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = [*bounds, float("inf")]
        self._counts = [0] * len(self._bounds)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, how many values are at most that), as Prometheus writes them."""
        running = 0
        rows: list[tuple[str, float]] = []
        for bound, count in zip(self._bounds, self._counts, strict=True):
            running += count
            rows.append((floatToGoString(bound), running))
        return rows


def one_two_five(limit: int) -> list[float]:
    """1, 2, 5, 10, 20, ... up to `limit`."""
    bounds: list[float] = []
    power = 1
    while True:
        for step in (1, 2, 5):
            if step * power > limit:
                return bounds
            bounds.append(float(step * power))
        power *= 10
