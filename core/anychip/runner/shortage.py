"""What to say when the device's memory does not suffice: which flag to change, and the size that would fit."""

from __future__ import annotations

from collections.abc import Callable

import torch

from anychip.engine.sizing import show_size
from anychip.errors import UserError


def runs_out(action: Callable[[], object]) -> bool:
    """Whether the device has too little memory for an action; what it held is given back."""
    try:
        action()
    except torch.OutOfMemoryError:
        return True
    return False


def weights_too_large(stored: int, free: int) -> UserError:
    """The weights, of `stored` bytes as read, do not fit in `free` bytes."""
    return UserError(
        f"The model's weights take {show_size(stored)}, and the device has {show_size(free)} free.",
        "Free memory there, choose another --device, or use a smaller or a quantized model.",
    )


def step_too_large(tokens: int, fitting: int, free: int) -> UserError:
    """A step of `tokens` tokens does not fit beside the weights, which left `free` bytes; one of `fitting` does."""
    what = f"A step of {tokens} tokens does not fit in the {show_size(free)} that the model's weights leave."
    if not fitting:
        return UserError(what, "Not even a small one does: free memory, or use a smaller or a quantized model.")
    return UserError(what, f"Use --max-num-batched-tokens {fitting}.")


def cache_too_large(wanted: int, fitting: int) -> UserError:
    """A KV cache of `wanted` bytes does not fit; one of `fitting` bytes would."""
    return UserError(
        f"The KV cache of {show_size(wanted)} does not fit beside the model.",
        f"Use --kv-cache-memory-bytes {fitting}, or a lower --memory-utilization.",
    )
