"""Tiny tensors on one thread."""

from tests.one_thread import one_thread

__all__ = ["one_thread"]
