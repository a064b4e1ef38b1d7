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


def fitting(fits: Callable[[int, int], bool], tokens: int, rows: int) -> tuple[int, int]:
    """Tokens and rows of a step that fits, where one of `tokens` in `rows` does not.

    Fewer of one of them, if that helps. (0, 0): not even the smallest fits. Each guess takes a step.
    """
    fewer_tokens = ((tokens >> shift, rows) for shift in range(1, (tokens // rows).bit_length()))
    fewer_rows = ((tokens, rows >> shift) for shift in range(1, rows.bit_length()))
    fewer = ((tokens >> shift, max(1, min(rows, tokens >> shift) >> 1)) for shift in range(1, tokens.bit_length()))
    return next((size for size in (*fewer_tokens, *fewer_rows, *fewer) if fits(*size)), (0, 0))


def step_too_large(tokens: int, rows: int, fitting: tuple[int, int], free: int) -> UserError:
    """A step of `tokens` tokens in `rows` rows does not fit beside the weights, which left `free` bytes.

    One of the size `fitting` does.
    """
    what = (
        f"A step of {tokens} tokens of {rows} requests does not fit in the {show_size(free)} that the model's weights "
        "leave."
    )
    if not all(fitting):
        return UserError(what, "Not even a small one does: free memory, or use a smaller or a quantized model.")
    flags = ("--max-num-batched-tokens", "--max-num-seqs")
    changed = [
        f"{flag} {fits}" for flag, fits, asked in zip(flags, fitting, (tokens, rows), strict=True) if fits < asked
    ]
    return UserError(what, f"Use {' and '.join(changed)}.")


def cache_too_large(wanted: int, fitting: int) -> UserError:
    """A KV cache of `wanted` bytes does not fit; one of `fitting` bytes would."""
    return UserError(
        f"The KV cache of {show_size(wanted)} does not fit beside the model.",
        f"Use --kv-cache-memory-bytes {fitting}, or a lower --memory-utilization.",
    )
