"""Random weights, for tests and benchmarks without a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

import torch

_SCALE = 0.02
_PERIOD = 1 << 16


def dummy_weights(named_parameters: Iterable[tuple[str, torch.Tensor]], seed: int = 0) -> None:
    """Fill parameters in place with small reproducible values.

    One-dimensional `norm` weights become ones plus noise, so that activations keep their size. Large tensors repeat a
    block of random values: drawing billions of numbers would take minutes and say no more.
    """
    generator = torch.Generator().manual_seed(seed)
    # An odd length keeps the repetition from lining up with rows.
    noise = torch.randn(_PERIOD + 1, generator=generator).mul_(_SCALE)
    with torch.no_grad():
        for name, parameter in named_parameters:
            _fill(parameter, noise)
            if parameter.dim() == 1 and "norm" in name:
                parameter.add_(1)


def _fill(parameter: torch.Tensor, noise: torch.Tensor) -> None:
    block = noise.to(device=parameter.device, dtype=parameter.dtype)
    flat = parameter.view(-1)
    whole = flat.numel() // block.numel() * block.numel()
    flat[:whole].view(-1, block.numel()).copy_(block.expand(whole // block.numel(), -1))
    flat[whole:].copy_(block[: flat.numel() - whole])
