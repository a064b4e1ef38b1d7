"""Experts: tokens sorted by expert on the device, then each expert's matrices read once for all of its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from anychip.ops.composite import GELU
from anychip.triton.chip import Chip
from anychip.triton.programs.experts import add_pairs, choose, count_pairs, multiply_experts, sort_pairs
from anychip.triton.rows import BLOCK, unit_stride
from anychip.triton.tuning import Tuning
from anychip.weights.weight import Weight

CHUNK = 2048
"""Pairs of a token and an expert that a program looks at."""


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """A tile of the grouped products: output rows, pairs, inputs."""

    rows: int
    pairs: int
    inputs: int
    options: Mapping[str, int | str]

    @property
    def launch(self) -> dict[str, int | str]:
        """Arguments of the launch."""
        return {"BLOCK_T": self.pairs, "BLOCK_N": self.rows, "BLOCK_K": self.inputs, **self.options}

    def most_blocks(self, pairs: int, experts: int) -> int:
        """Blocks that so many pairs can fill at most, whichever experts they go to."""
        return min(pairs, experts + pairs // self.pairs)


def expert_shape(pairs: int, experts: int, gated: bool, dtype: torch.dtype, tuning: Tuning) -> ExpertShape:
    """Blocks of pairs as large as an expert's share, so that its matrices are read once."""
    share = pairs / experts
    if dtype.itemsize > 2:
        tile, columns = tuning.experts_float32, 16
    elif share <= 16:
        tile, columns = tuning.experts_few, 16
    elif share <= 48:
        tile, columns = tuning.experts_some, 32
    else:
        tile, columns = tuning.experts_many, 64 if gated else 128
    return ExpertShape(tile.rows, columns, tile.inputs, tile.launch(gated))


@dataclass(frozen=True, slots=True)
class Experts:
    """The ops of a mixture of experts on one chip."""

    chip: Chip

    def route(self, logits: torch.Tensor, count: int, renormalize: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """See anychip.ops.experts.route."""
        logits = unit_stride(logits)
        tokens, experts = logits.shape
        shares = torch.empty(tokens, count, device=logits.device)
        chosen = torch.empty(tokens, count, dtype=torch.int32, device=logits.device)
        choose[(tokens,)](
            logits, shares, chosen, logits.stride(0), E=experts, COUNT=count, RENORMALIZE=renormalize,
            BLOCK_E=_power(experts), BLOCK_C=_power(count), num_warps=1 if experts <= 256 else 4, **self.chip.order,
        )  # fmt: skip
        return shares, chosen

    def experts(
        self,
        x: torch.Tensor,
        gate_up: Weight,
        down: Weight,
        shares: torch.Tensor,
        chosen: torch.Tensor,
        activation: str,
    ) -> torch.Tensor:
        """See anychip.ops.experts.experts. Four launches, five for many tokens."""
        assert gate_up.values is not None and down.values is not None, "a weight these kernels were not offered"
        x = unit_stride(x)
        (tokens, hidden), count, number = x.shape, chosen.shape[1], gate_up.matrices
        size, pairs = down.shape[1], tokens * count
        shape = expert_shape(pairs, number, True, x.dtype, self.chip.tuning)
        order, owners = self._sorted(chosen, number, shape)
        inner = torch.empty(pairs, size, dtype=x.dtype, device=x.device)
        name = "silu" if activation == "silu" else GELU[activation]
        multiply_experts[(-(-size // shape.rows), len(owners))](
            x, gate_up.values, inner, order, owners, shares, x.stride(0), gate_up.values.stride(0), N=size, K=hidden,
            COUNT=count, ACTIVATION=name, **shape.launch, **self.chip.order,
        )  # fmt: skip
        outer = replace(expert_shape(pairs, number, False, x.dtype, self.chip.tuning), pairs=shape.pairs)
        products = torch.empty(pairs, hidden, dtype=x.dtype, device=x.device)
        multiply_experts[(-(-hidden // outer.rows), len(owners))](
            inner, down.values, products, order, owners, shares, size, down.values.stride(0), N=hidden, K=size,
            COUNT=count, ACTIVATION="", **outer.launch, **self.chip.order,
        )  # fmt: skip
        out = torch.empty(tokens, hidden, dtype=x.dtype, device=x.device)
        add_pairs[(tokens, -(-hidden // BLOCK))](products, out, H=hidden, COUNT=count, BLOCK=BLOCK, **self.chip.order)
        return out

    def _sorted(self, chosen: torch.Tensor, experts: int, shape: ExpertShape) -> tuple[torch.Tensor, torch.Tensor]:
        """Pairs by expert, and the expert of each block; see programs/experts.py."""
        pairs, device = chosen.numel(), chosen.device
        blocks, chunk = shape.most_blocks(pairs, experts), min(CHUNK, _power(pairs))
        order = torch.empty(blocks * shape.pairs, dtype=torch.int32, device=device)
        owners = torch.empty(blocks, dtype=torch.int32, device=device)
        sizes = {"E": experts, "BLOCK_E": _power(experts + 1), "BLOCK_P": chunk, **self.chip.order}
        chunks, counts = -(-pairs // chunk), None
        if chunks > 1:
            counts = torch.empty(chunks, sizes["BLOCK_E"], dtype=torch.int32, device=device)
            count_pairs[(chunks,)](chosen, counts, pairs, **sizes)
        sort_pairs[(experts, chunks)](
            chosen, counts, order, owners, pairs, blocks, CHUNKS=chunks, BLOCK_C=_power(chunks), BLOCK_T=shape.pairs,
            **sizes,
        )  # fmt: skip
        return order, owners


def _power(size: int) -> int:
    return max(2, 1 << (size - 1).bit_length())
