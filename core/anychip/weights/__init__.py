"""Where a model's files come from and how its tensors are read, one at a time.

A runner that is not a torch device's needs one name from here, `read_weights`; a platform that repacks weights is given
a `Weight` and returns one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anychip.weights.read import read_weights as read_weights
    from anychip.weights.weight import Quantization as Quantization
    from anychip.weights.weight import Weight as Weight

__all__ = ["Quantization", "Weight", "read_weights"]


def __getattr__(name: str) -> Any:
    """Import torch only when a name that needs it is asked for."""
    if name == "read_weights":
        from anychip.weights.read import read_weights

        return read_weights
    if name in ("Quantization", "Weight"):
        from anychip.weights import weight

        return weight.Weight if name == "Weight" else weight.Quantization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
