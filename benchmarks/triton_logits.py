"""What is done to logits and read off them, for `triton_kernels.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from triton_cases import Timed
from triton_device import chip

from anychip.sample.logit_ops import LogitOps, ReferenceLogitOps
from anychip.testing.compare import normalized_error
from anychip.triton.logits import Logits

VOCABULARY = 151936
COPIES = 4


def logit_cases() -> Iterator[Timed]:
    """Penalties, masks and log-probabilities: torch's operators, and these kernels; checked against them."""
    for rows in (1, 32, 128):
        for name in ("penalties", "masks", "logprobs 0", "logprobs 5", "logprobs 20"):
            for ours in (False, True):
                yield logit_case(name, rows, ours)


def logit_case(name: str, rows: int, ours: bool) -> Timed:
    """One op on bfloat16 logits, or for masks on float32 ones."""

    def prepare() -> tuple[Callable[[int], object], float]:
        dtype = torch.float32 if name == "masks" else torch.bfloat16
        logits = [torch.randn(rows, VOCABULARY, device="cuda").mul_(3).to(dtype) for _ in range(COPIES)]
        ops, right = (Logits(chip(True)) if ours else ReferenceLogitOps()), ReferenceLogitOps()
        call = prepared(name, rows)
        error = normalized_error(call(ops, logits[0].clone()), call(right, logits[0].clone()))
        return (lambda index: call(ops, logits[index % COPIES])), error

    size = 4 if name == "masks" else 2
    return Timed(f"{name} {rows} rows {'ours' if ours else 'torch'}", rows * VOCABULARY * size, "TB/s", prepare)


def prepared(name: str, rows: int) -> Callable[[LogitOps, torch.Tensor], torch.Tensor]:
    """A call of an op with all but the logits, and what to compare of it."""
    index = torch.arange(rows, device="cuda")
    if name == "masks":
        shape = rows, -(-VOCABULARY // 32)
        bits = torch.randint(-(2**31), 2**31, shape, device="cuda", dtype=torch.int32)

        def mask(ops: LogitOps, logits: torch.Tensor) -> torch.Tensor:
            ops.mask_tokens(logits, index, bits)
            return logits

        return mask
    if name == "penalties":
        seen = torch.rand(rows, VOCABULARY, device="cuda") < 0.005
        history = index, index, seen.int(), seen
        penalties = (torch.full((rows,), each, device="cuda") for each in (0.5, 0.3, 1.2))
        arguments = *history, *penalties
        return lambda ops, logits: ops.apply_penalties(logits, *arguments, True)
    count = int(name.split()[1])
    return lambda ops, logits: ops.gather_logprobs(logits, index, count)[1]
