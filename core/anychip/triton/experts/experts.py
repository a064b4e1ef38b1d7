"""A mixture of experts: tokens are sorted by expert on the device, so that each expert's matrices are read once."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from anychip.ops.composite import GELU
from anychip.triton.chip import Chip
from anychip.triton.coding import Coding
from anychip.triton.experts.copied import CopiedExperts
from anychip.triton.experts.matrices import Matrices
from anychip.triton.experts.pairs import Pairs, sorted_pairs
from anychip.triton.experts.shapes import ExpertShape, expert_shape
from anychip.triton.powers import power_of_two
from anychip.triton.programs.expert_vectors import gate_pairs, join_experts
from anychip.triton.programs.experts import add_pairs, choose, multiply_experts
from anychip.triton.rounding import round_tokens
from anychip.triton.rows import BLOCK, unit_stride
from anychip.triton.tuning import WeightTile
from anychip.weights.weight import Weight

VECTORS = 4
"""Most tokens that are not sorted: they hardly share an expert, so each reads its experts' matrices for itself."""


@dataclass(frozen=True, slots=True)
class Experts:
    """The ops of a mixture of experts on one chip. T tokens, k experts of each, H hidden, N intermediate size."""

    chip: Chip

    def route(self, logits: torch.Tensor, count: int, renormalize: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """See anychip.ops.experts.route."""
        logits = unit_stride(logits)
        tokens, experts = logits.shape
        shares = torch.empty(tokens, count, device=logits.device)
        chosen = torch.empty(tokens, count, dtype=torch.int32, device=logits.device)
        choose[(tokens,)](
            logits, shares, chosen, logits.stride(0), E=experts, COUNT=count, RENORMALIZE=renormalize,
            BLOCK_E=power_of_two(experts), BLOCK_C=power_of_two(count), num_warps=1 if experts <= 256 else 4,
            **self.chip.order,
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
        """See anychip.ops.experts.experts."""
        x, name = unit_stride(x), "silu" if activation == "silu" else GELU[activation]
        inner, outer = Matrices.of(gate_up), Matrices.of(down)
        if len(x) <= VECTORS:
            return self._vectors(x, inner, outer, shares, chosen, name)
        copied = self.chip.descriptors and self.chip.tuning.experts_copied is not None and inner.copied and outer.copied
        shape, other = (
            expert_shape(chosen.numel(), inner.count, gated, copied, inner.values.dtype, self.chip.tuning)
            for gated in (True, False)
        )
        pairs = sorted_pairs(self.chip, shares, chosen, inner.count, shape.pairs)
        if copied:
            products = CopiedExperts(self.chip, inner, outer, (shape, other)).products(x, pairs, name)
        else:
            products = self._multiply(self._multiply(x, inner, pairs, name, shape), outer, pairs, "", other)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        (tokens, width), count = x.shape, chosen.shape[1]
        add_pairs[(tokens, -(-width // BLOCK))](products, out, H=width, COUNT=count, BLOCK=BLOCK, **self.chip.order)
        return out

    def _vectors(
        self,
        x: torch.Tensor,
        inner: Matrices,
        outer: Matrices,
        shares: torch.Tensor,
        chosen: torch.Tensor,
        activation: str,
    ) -> torch.Tensor:
        """[T, H] for a few tokens, in two launches: gated products of each pair, then the scaled sum of each token."""
        tokens, count, size = x.shape[0], chosen.shape[1], outer.columns
        tile, join = self.chip.tuning.experts_vector, self.chip.tuning.experts_join
        hidden = torch.empty(tokens * count, size, dtype=x.dtype, device=x.device)
        gate_pairs[(-(-size // tile.rows), tokens * count)](
            x, inner.values, inner.scale, hidden, chosen, x.stride(0), inner.values.stride(0), N=size, K=inner.columns,
            COUNT=count, ACTIVATION=activation, CODED=inner.coded, BLOCK_N=tile.rows,
            BLOCK_K=min(tile.inputs, power_of_two(inner.columns)), **self._threads(tile), **self.chip.order,
        )  # fmt: skip
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        join_experts[(-(-outer.rows // join.rows), tokens)](
            hidden, outer.values, outer.scale, out, chosen, shares, outer.values.stride(0), N=outer.rows, K=size,
            COUNT=count, CODED=outer.coded, BLOCK_C=power_of_two(count), BLOCK_N=join.rows,
            BLOCK_K=min(join.inputs, power_of_two(size)), **self._threads(join), **self.chip.order,
        )  # fmt: skip
        return out

    def _threads(self, tile: WeightTile) -> dict[str, int | str]:
        """Options of a launch whose program computes without matrix instructions."""
        tuning = self.chip.tuning
        return {**tile.launch(), "num_warps": min(16, tile.warps * tuning.vector_threads)}

    def _multiply(
        self, x: torch.Tensor, matrices: Matrices, pairs: Pairs, activation: str, shape: ExpertShape
    ) -> torch.Tensor:
        """Multiply each pair of a token and an expert with the expert's matrix; see programs/experts.py.

        With an activation x is [T, K], and the result gated, [pairs, N]. Without one x is [pairs, K], and the result is
        scaled by the pair's share.
        """
        rounded = round_tokens(self.chip, x, Coding(matrices.values.dtype)) if matrices.coded else None
        given, scales = (x, None) if rounded is None else (rounded.codes, rounded.scales)
        rows = matrices.rows // (2 if activation else 1)
        out = torch.empty(pairs.shares.numel(), rows, dtype=x.dtype, device=x.device)
        multiply_experts[(-(-rows // shape.rows), len(pairs.owners))](
            given, scales, matrices.values, matrices.scale, out, pairs.order, pairs.owners, pairs.shares,
            given.stride(0), matrices.values.stride(0), N=rows, K=matrices.columns, COUNT=pairs.each,
            ACTIVATION=activation, CODED=matrices.coded, BLOCK_T=pairs.width, BLOCK_N=shape.rows,
            BLOCK_K=shape.inputs, **shape.options, **self.chip.order,
        )  # fmt: skip
        return out
