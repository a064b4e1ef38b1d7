"""Experts: tokens sorted by expert on the device, then each expert's matrices read once for all of its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from anychip.ops.composite import GELU
from anychip.triton.chip import Chip
from anychip.triton.codes import Codes
from anychip.triton.programs.expert_vectors import gate_pairs, join_experts
from anychip.triton.programs.experts import (
    add_pairs,
    choose,
    count_pairs,
    multiply_experts,
    multiply_found,
    place_chunks,
    sort_pairs,
)
from anychip.triton.rounding import round_tokens
from anychip.triton.rows import BLOCK, unit_stride
from anychip.triton.tuning import Tuning
from anychip.weights.weight import Weight

CHUNK = 2048
"""Pairs of a token and an expert that a program looks at."""
VECTORS = 4
"""Most tokens whose pairs hardly share an expert: each reads its own."""
LISTED = (256, 1024)
"""Numbers of pairs among which programs that find those of their expert are compiled for; more are sorted."""
AHEAD = 1024
"""Bytes of each row of weights that are fetched before it is known whether they are needed, where most are."""
WAVES = 2
"""Programs a processor holds at once; those of later waves find the ones before them at work."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """Stacked matrices as the programs read them: numbers or codes of 8 bits [E * N, K], and a scale a row of those."""

    values: torch.Tensor
    scale: torch.Tensor | None
    count: int

    @classmethod
    def of(cls, weight: Weight) -> Matrices:
        """Those of a weight, prepared or plain."""
        if isinstance(weight.prepared, Codes):
            return cls(weight.prepared.values, weight.prepared.scale, weight.matrices)
        assert weight.values is not None and weight.quantization is None, "a weight these kernels were not offered"
        return cls(weight.values, None, weight.matrices)

    @property
    def rows(self) -> int:
        """N, of one matrix."""
        return self.values.shape[0] // self.count

    @property
    def columns(self) -> int:
        """K."""
        return self.values.shape[1]

    @property
    def ahead(self) -> int:
        """Bytes of each row that can be fetched in one go."""
        row = self.columns * self.values.itemsize
        return min(AHEAD, row) if row % 16 == 0 else 0

    @property
    def coded(self) -> bool:
        """Whether they are codes."""
        return self.scale is not None


@dataclass(frozen=True, slots=True)
class Pairs:
    """Tokens and their experts, and where those of each expert stand."""

    shares: torch.Tensor
    chosen: torch.Tensor
    places: torch.Tensor
    """Pairs in blocks of one expert each [blocks * width]; or, `listed`, each expert's pairs [E, all pairs]."""
    owners: torch.Tensor
    """Each block's expert; or how many pairs each expert has."""
    width: int
    listed: bool


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """A tile of the grouped products: output rows, pairs, inputs."""

    rows: int
    pairs: int
    inputs: int
    options: Mapping[str, int | str]


def expert_shape(pairs: int, experts: int, gated: bool, dtype: torch.dtype, tuning: Tuning) -> ExpertShape:
    """Blocks of pairs as large as an expert's share, so that its matrices are read once."""
    share, wide = pairs / experts, tuning.experts_gated if gated else tuning.experts_down
    if dtype.itemsize > 2:
        tile, columns = tuning.experts_float32, 16
    elif share <= 16:
        tile, columns = tuning.experts_few, 16
    elif share <= 48:
        tile, columns = tuning.experts_some, 32
    elif share < 96 or wide is None:
        tile, columns = tuning.experts_many, 64
    else:
        tile, columns = wide, 128
    return ExpertShape(tile.rows, columns, tile.inputs * (2 if dtype.itemsize == 1 else 1), tile.launch(gated))


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
        """See anychip.ops.experts.experts."""
        x, name = unit_stride(x), "silu" if activation == "silu" else GELU[activation]
        inner, outer = Matrices.of(gate_up), Matrices.of(down)
        if len(x) <= VECTORS:
            return self._vectors(x, inner, outer, shares, chosen, name)
        shape, other = (
            expert_shape(chosen.numel(), inner.count, gated, inner.values.dtype, self.chip.tuning)
            for gated in (True, False)
        )
        pairs = self._pairs(shares, chosen, inner.count, shape.pairs)
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
        """Two launches: each pair's gated products, each token's sum."""
        tokens, count, size = x.shape[0], chosen.shape[1], outer.columns
        tile, join = self.chip.tuning.experts_vector, self.chip.tuning.experts_join
        hidden = torch.empty(tokens * count, size, dtype=x.dtype, device=x.device)
        gate_pairs[(-(-size // tile.rows), tokens * count)](
            x, inner.values, inner.scale, hidden, chosen, x.stride(0), inner.values.stride(0), N=size, K=inner.columns,
            COUNT=count, ACTIVATION=activation, CODED=inner.coded, BLOCK_N=tile.rows,
            BLOCK_K=min(tile.inputs, _power(inner.columns)), **tile.launch(), **self.chip.order,
        )  # fmt: skip
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        join_experts[(-(-outer.rows // join.rows), tokens)](
            hidden, outer.values, outer.scale, out, chosen, shares, outer.values.stride(0), N=outer.rows, K=size,
            COUNT=count, CODED=outer.coded, BLOCK_C=_power(count), BLOCK_N=join.rows,
            BLOCK_K=min(join.inputs, _power(size)), **join.launch(), **self.chip.order,
        )  # fmt: skip
        return out

    def _multiply(
        self, x: torch.Tensor, matrices: Matrices, pairs: Pairs, activation: str, shape: ExpertShape
    ) -> torch.Tensor:
        """[pairs, N] of x by token and gated, or by pair and scaled by its share; see programs/experts.py."""
        rounded = round_tokens(self.chip, x, matrices.values.dtype) if matrices.coded else None
        given, scales = (x, None) if rounded is None else (rounded.codes, rounded.scales)
        count, rows = pairs.chosen.numel(), matrices.rows // (2 if activation else 1)
        out = torch.empty(count, rows, dtype=x.dtype, device=x.device)
        program, options = multiply_experts, {}
        if pairs.listed:
            ahead = matrices.ahead if count > matrices.count else 0
            sizes = {"AHEAD": ahead, "EARLY": WAVES * self.chip.processors, "BLOCK_P": pairs.places.shape[1]}
            program, options = multiply_found, sizes
        program[(-(-rows // shape.rows), len(pairs.owners))](
            given, scales, matrices.values, matrices.scale, out, pairs.places, pairs.owners, pairs.chosen,
            pairs.shares, count, given.stride(0), matrices.values.stride(0), N=rows, K=matrices.columns,
            COUNT=pairs.chosen.shape[1], ACTIVATION=activation, CODED=matrices.coded, BLOCK_T=pairs.width,
            BLOCK_N=shape.rows, BLOCK_K=shape.inputs, **options, **shape.options, **self.chip.order,
        )  # fmt: skip
        return out

    def _pairs(self, shares: torch.Tensor, chosen: torch.Tensor, experts: int, width: int) -> Pairs:
        """Pairs put together by expert, at once or by whoever multiplies them first."""
        pairs, device = chosen.numel(), chosen.device
        if pairs <= LISTED[-1]:
            longest = next(size for size in LISTED if size >= pairs)
            lists = torch.empty(experts, longest, dtype=torch.int32, device=device)
            return Pairs(shares, chosen, lists, lists.new_empty(experts), width, listed=True)
        blocks, chunk = most_blocks(pairs, experts, width), min(CHUNK, _power(pairs))
        order = torch.empty(blocks * width, dtype=torch.int32, device=device)
        owners = torch.empty(blocks, dtype=torch.int32, device=device)
        sizes = {"E": experts, "BLOCK_E": _power(experts + 1), "BLOCK_P": chunk, **self.chip.order}
        chunks, counts = -(-pairs // chunk), None
        if chunks > 1:
            counts = torch.empty(chunks + 1, sizes["BLOCK_E"], dtype=torch.int32, device=device)
            count_pairs[(chunks,)](chosen, counts, pairs, **sizes)
            place_chunks[(1,)](
                counts, E=experts, CHUNKS=chunks, BLOCK_C=_power(chunks), BLOCK_E=sizes["BLOCK_E"], BLOCK_T=width,
                num_warps=self.chip.tuning.warps(512), **self.chip.order,
            )  # fmt: skip
        sort_pairs[(experts, chunks)](
            chosen, counts, order, owners, pairs, blocks, CHUNKS=chunks, BLOCK_T=width, **sizes
        )
        return Pairs(shares, chosen, order, owners, width, listed=False)


def most_blocks(pairs: int, experts: int, width: int) -> int:
    """Blocks of `width` that so many pairs can fill at most, whichever experts they go to."""
    return min(pairs, experts + pairs // width)


def _power(size: int) -> int:
    return max(2, 1 << (size - 1).bit_length())
