"""A limit on how often each client may ask."""

from __future__ import annotations

_MOST_CLIENTS = 10_000


class RateLimit:
    """So many requests a minute of each client, all of which may come at once: a bucket of tokens that refills."""

    def __init__(self, per_minute: int) -> None:
        self._capacity = float(per_minute)
        self._per_second = per_minute / 60.0
        self._buckets: dict[bytes, tuple[float, float]] = {}

    def take(self, client: bytes, now: float) -> float:
        """0 where `client` may go on at the time `now`, else the seconds until it may."""
        tokens, since = self._buckets.pop(client, (self._capacity, now))
        tokens = min(self._capacity, tokens + (now - since) * self._per_second)
        wait = max(0.0, (1.0 - tokens) / self._per_second)
        self._buckets[client] = (tokens if wait else tokens - 1.0, now)
        if len(self._buckets) > _MOST_CLIENTS:
            del self._buckets[next(iter(self._buckets))]  # who has not asked for longest
        return wait
