"""Random weights, for tests and benchmarks without a checkpoint."""

from __future__ import annotations

import torch

_SCALE = 0.02
_PERIOD = (1 << 16) + 1
"""An odd length keeps the repetition from lining up with rows."""
_APART = 977


class DummyWeights:
    """Fills tensors of one type on one device with small reproducible values.

    All repeat the same random block, each from another place: drawing billions of numbers would take minutes and say
    no more.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device | str) -> None:
        noise = torch.randn(_PERIOD, generator=torch.Generator().manual_seed(0)).mul_(_SCALE)
        self._noise = noise.repeat(2).to(device=device, dtype=dtype)

    def fill(self, name: str, tensor: torch.Tensor, seed: int = 0) -> None:
        """In place. One-dimensional `norm` weights become ones plus noise, so that activations keep their size."""
        if tensor.is_meta:
            return
        begin = seed * _APART % _PERIOD
        block, flat = self._noise[begin : begin + _PERIOD], tensor.view(-1)
        whole = flat.numel() // _PERIOD * _PERIOD
        flat[:whole].view(-1, _PERIOD).copy_(block.expand(whole // _PERIOD, -1))
        flat[whole:].copy_(block[: flat.numel() - whole])
        if tensor.dim() == 1 and "norm" in name:
            tensor.add_(1)
