"""Choosing tokens, for `triton_kernels.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from triton_cases import Timed
from triton_device import chip

from anychip.sample import choose
from anychip.triton.sampling import Sampling


def choice_cases() -> Iterator[Timed]:
    """Choosing tokens: torch's reference, and these kernels; checked against it."""
    for rows in (1, 32, 128):
        for name in ("greedy", "top_p", "top_k", "both", "flat", "plain"):
            for ours in (False, True):
                yield choice_case(name, rows, ours)


def choice_case(name: str, rows: int, ours: bool) -> Timed:
    """One way to choose. `error` is the part of the rows in which another token than the reference's was drawn."""
    vocabulary = 151936

    def prepare() -> tuple[Callable[[int], object], float]:
        logits = torch.randn(rows, vocabulary, device="cuda") * (0.5 if name == "flat" else 3.0)
        ones = torch.ones(rows, device="cuda")
        top_k = (ones * (50 if name in ("top_k", "both") else 0)).int()
        top_p = ones * (0.9 if name in ("top_p", "both", "flat") else 1.0)
        candidates = {"plain": 0, "top_k": 50, "both": 50}.get(name, vocabulary)
        rest = (ones, top_k, top_p, ones * 0, torch.rand(rows, 2, device="cuda"), candidates)
        sampling = Sampling(chip(True))

        def run(index: int) -> tuple[torch.Tensor, torch.Tensor]:
            if name == "greedy":
                return sampling.greedy(logits) if ours else choose.greedy(logits)
            return sampling.sample(logits, *rest) if ours else choose.sample(logits, *rest)

        right = choose.greedy(logits)[0] if name == "greedy" else choose.sample(logits, *rest)[0]
        return run, float((run(0)[0] != right).float().mean())

    return Timed(f"choice {name} {rows} rows {'ours' if ours else 'torch'}", rows * vocabulary * 4, "TB/s", prepare)
