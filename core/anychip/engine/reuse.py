"""Prefix caching: what a request can take from the cache, and what running rows will have put there soon."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from anychip.cache.manager import CacheManager
from anychip.cache.prefix import BlockHash, extend_chain
from anychip.engine.batch import Int32
from anychip.engine.request import Request, Rows


class PrefixReuse:
    """Compares the hashes of a request's blocks with those in the cache, and with those being computed."""

    def __init__(self, cache: CacheManager, rows: Rows) -> None:
        self.cache = cache
        self.rows = rows
        self.coming: dict[BlockHash, int] = {}
        """By hash of a block, the row that will compute it."""

    def reusable(self, request: Request) -> list[BlockHash]:
        """Hashes of the leading blocks of `request` that are in the cache."""
        if not self.cache.prefix_caching:
            return []
        extend_chain(request.chain, request.tokens, self.cache.block_size, request.root)
        chain = request.chain[: request.cacheable // self.cache.block_size]
        return chain[: self.cache.lookup(chain)]

    def is_coming(self, request: Request, cached: int) -> bool:
        """Whether a running row is about to compute at least the two blocks after the `cached` ones of `request`."""
        upcoming = request.chain[: request.cacheable // self.cache.block_size][cached : cached + 2]
        return len(upcoming) == 2 and all(block_hash in self.coming for block_hash in upcoming)

    def announce(self, request: Request, cached: int) -> None:
        """Note that the row of `request` will compute its blocks after the `cached` ones."""
        self.rows.published[request.row] = cached
        for block_hash in request.chain[cached:]:
            self.coming.setdefault(block_hash, request.row)

    def withdraw(self, row: int) -> None:
        """Note that `row` will not compute the rest of its blocks."""
        self._forget(self.rows.request(row).chain[int(self.rows.published[row]) :], row)

    def publish(self, rows: Int32, ends: Int32) -> None:
        """Index the blocks that a step filled, of rows[i] up to token ends[i], all of which are known by now."""
        if not self.cache.prefix_caching:
            return
        size = self.cache.block_size
        full, published = ends // size, self.rows.published[rows]
        grown = np.flatnonzero(full > published)
        if not len(grown):
            return
        rows, full, published = rows[grown], full[grown], published[grown]
        for row, first, count in zip(rows.tolist(), published.tolist(), full.tolist(), strict=True):
            request = self.rows.request(row)
            extend_chain(request.chain, self.rows.tokens[row, : count * size], size, request.root)
            hashes = request.chain[first:count]
            self.cache.publish(row, first, hashes)
            if self.coming:
                self._forget(hashes, row)
        self.rows.published[rows] = full

    def _forget(self, hashes: Iterable[BlockHash], row: int) -> None:
        for block_hash in hashes:
            if self.coming.get(block_hash) == row:
                del self.coming[block_hash]
