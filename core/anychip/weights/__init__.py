"""Where a model's files come from and how its tensors are read, one at a time.

A runner that is not a torch device's needs one name from here: `from anychip.weights import read_weights`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anychip.weights.read import read_weights as read_weights

__all__ = ["read_weights"]


def __getattr__(name: str) -> Any:
    """Import torch, which reads the files, only when weights are to be read."""
    if name == "read_weights":
        from anychip.weights.read import read_weights

        return read_weights
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
