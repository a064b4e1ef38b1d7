"""Experts: tokens sorted by expert on the device, then each expert's matrices read once for all of its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    place_chunks,
    sort_pairs,
)
from anychip.triton.rounding import round_tokens
from anychip.triton.rows import BLOCK, unit_stride
from anychip.triton.tuning import Tuning, WeightTile
from anychip.weights.weight import Weight

if TYPE_CHECKING:
    from triton.tools.tensor_descriptor import TensorDescriptor

WIDTH = 128
"""Pairs of the widest block."""
WIDE = 96
"""Pairs an expert from which such blocks leave less unused than they save."""
CHUNK = 2048
"""Pairs of a token and an expert that a program looks at."""
VECTORS = 4
"""Most tokens whose pairs hardly share an expert: each reads its own."""


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
    def coded(self) -> bool:
        """Whether they are codes."""
        return self.scale is not None

    def tiles(self, rows: int, columns: int) -> TensorDescriptor | None:
        """What the chip's own copies of tiles go by; None for codes, and lines at no multiple of 16 bytes."""
        from triton.tools.tensor_descriptor import TensorDescriptor  # which builds of Triton for others may lack

        stride = self.values.stride(0)
        if self.coded or stride * self.values.itemsize % 16:
            return None
        return TensorDescriptor(self.values, list(self.values.shape), [stride, 1], [rows, columns])


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of a token and an expert, by expert; see programs/experts.py."""

    shares: torch.Tensor
    """[T, k] float32."""
    order: torch.Tensor
    """Pairs in blocks of `width`, -1 where a block is not full."""
    owners: torch.Tensor
    """Each block's expert, -1 behind the last one."""
    width: int

    @property
    def each(self) -> int:
        """k, experts of a token."""
        return self.shares.shape[1]


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
    deeper = 2 if dtype.itemsize == 1 else 1
    if share >= WIDE and wide is not None and dtype.itemsize <= 2:
        return ExpertShape(wide.rows, WIDTH, wide.inputs * deeper, wide.launch())
    if dtype.itemsize > 2:
        tile, columns = tuning.experts_float32, 16
    elif share <= 16:
        tile, columns = tuning.experts_few, 16
    elif share <= 48:
        tile, columns = tuning.experts_some, 32
    else:
        tile, columns = tuning.experts_many, 64
    return ExpertShape(tile.rows, columns, tile.inputs * deeper, tile.launch(gated))


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
            BLOCK_K=min(tile.inputs, _power(inner.columns)), **self._threads(tile), **self.chip.order,
        )  # fmt: skip
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        join_experts[(-(-outer.rows // join.rows), tokens)](
            hidden, outer.values, outer.scale, out, chosen, shares, outer.values.stride(0), N=outer.rows, K=size,
            COUNT=count, CODED=outer.coded, BLOCK_C=_power(count), BLOCK_N=join.rows,
            BLOCK_K=min(join.inputs, _power(size)), **self._threads(join), **self.chip.order,
        )  # fmt: skip
        return out

    def _threads(self, tile: WeightTile) -> dict[str, int | str]:
        """Options of a launch without a matrix instruction."""
        tuning = self.chip.tuning
        return {**tile.launch(), "num_warps": min(16, tile.warps * tuning.vector_threads)}

    def _multiply(
        self, x: torch.Tensor, matrices: Matrices, pairs: Pairs, activation: str, shape: ExpertShape
    ) -> torch.Tensor:
        """[pairs, N] of x by token and gated, or by pair and scaled by its share; see programs/experts.py."""
        rounded = round_tokens(self.chip, x, matrices.values.dtype) if matrices.coded else None
        given, scales = (x, None) if rounded is None else (rounded.codes, rounded.scales)
        rows = matrices.rows // (2 if activation else 1)
        out = torch.empty(pairs.shares.numel(), rows, dtype=x.dtype, device=x.device)
        wide = self.chip.descriptors and bool(activation) and pairs.width == WIDTH and rows % shape.rows == 0
        tiles = matrices.tiles(shape.rows, shape.inputs) if wide else None
        multiply_experts[(-(-rows // shape.rows), len(pairs.owners))](
            given, scales, matrices.values, tiles, matrices.scale, out, pairs.order, pairs.owners, pairs.shares,
            given.stride(0), matrices.values.stride(0), N=rows, K=matrices.columns, COUNT=pairs.each,
            ACTIVATION=activation, CODED=matrices.coded, TILED=tiles is not None, BLOCK_T=pairs.width,
            BLOCK_N=shape.rows, BLOCK_K=shape.inputs, **shape.options, **self.chip.order,
        )  # fmt: skip
        return out

    def _pairs(self, shares: torch.Tensor, chosen: torch.Tensor, experts: int, width: int) -> Pairs:
        """Pairs put together by expert, at once or by whoever multiplies them first."""
        pairs, device = chosen.numel(), chosen.device
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
        return Pairs(shares, order, owners, width)


def most_blocks(pairs: int, experts: int, width: int) -> int:
    """Blocks of `width` that so many pairs can fill at most, whichever experts they go to."""
    return min(pairs, experts + pairs // width)


def _power(size: int) -> int:
    return max(2, 1 << (size - 1).bit_length())
