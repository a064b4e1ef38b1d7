"""Experts: tokens sorted by expert on the device, then each expert's matrices read once for all of its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from anychip.ops.composite import GELU
from anychip.triton.chip import Chip
from anychip.triton.codes import Codes
from anychip.triton.pairs import Pairs, power, sorted_pairs
from anychip.triton.programs.expert_blocks import gate_blocks, multiply_blocks
from anychip.triton.programs.expert_vectors import gate_pairs, join_experts
from anychip.triton.programs.experts import add_pairs, choose, multiply_experts
from anychip.triton.rounding import round_tokens
from anychip.triton.rows import BLOCK, unit_stride
from anychip.triton.tuning import Tuning, WeightTile
from anychip.weights.weight import Weight

if TYPE_CHECKING:
    from triton.tools.tensor_descriptor import TensorDescriptor

WIDTH = 128
"""Pairs of the widest block."""
WIDE, WIDE_COPIED = 96, 44
"""Pairs an expert from which such blocks leave less unused than they save, and where half a block costs half."""
NARROW = {16: 8, 32: 20}
"""Most pairs an expert of narrower blocks, so that hardly an expert has more than one: else its matrices are read
twice."""
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

    @property
    def copied(self) -> bool:
        """Whether chips with descriptors copy tiles of them: numbers of 16 bits in lines at a multiple of 16 bytes."""
        return self.values.itemsize == 2 and self.values.stride(0) % 8 == 0 and self.columns % 8 == 0

    def tiles(self, matrices: int, rows: int, columns: int) -> TensorDescriptor:
        """What the chip's own copies of tiles go by: the same rows of so many matrices one behind the other.

        As [E * parts, N, K], where gates and others are two parts of a matrix.
        """
        from triton.tools.tensor_descriptor import TensorDescriptor  # which builds of Triton for others may lack

        line, size = self.values.stride(0), self.rows // matrices
        shape, strides = [self.count * matrices, size, self.columns], [size * line, line, 1]
        return TensorDescriptor(self.values, shape, strides, [matrices, rows, columns])


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """A tile of the grouped products: output rows, pairs, inputs."""

    rows: int
    pairs: int
    inputs: int
    options: Mapping[str, int | str]


def expert_shape(
    pairs: int, experts: int, gated: bool, copied: bool, dtype: torch.dtype, tuning: Tuning
) -> ExpertShape:
    """Blocks of pairs as large as an expert's share, so that its matrices are read once."""
    share, wide = pairs / experts, tuning.experts_gated if gated else tuning.experts_down
    deeper = 2 if dtype.itemsize == 1 else 1
    if wide is not None and dtype.itemsize <= 2 and share >= (WIDE_COPIED if copied else WIDE):
        return ExpertShape(wide.rows, WIDTH, wide.inputs * deeper, wide.launch())
    columns = next((columns for columns, most in NARROW.items() if share <= most), 64)
    if copied and tuning.experts_copied is not None:
        tile = tuning.experts_copied[0 if gated else 1]
        return ExpertShape(tile.rows, columns, tile.inputs, tile.launch())
    if dtype.itemsize > 2:
        tile, columns = tuning.experts_float32, 16
    else:
        tile = {16: tuning.experts_few, 32: tuning.experts_some, 64: tuning.experts_many}[columns]
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
            BLOCK_E=power(experts), BLOCK_C=power(count), num_warps=1 if experts <= 256 else 4, **self.chip.order,
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
        if copied and shape.pairs == WIDTH:
            products = self._blocks(x, inner, outer, pairs, name, shape, other)
        else:
            hidden = self._multiply(x, inner, pairs, name, shape, copied)
            products = self._multiply(hidden, outer, pairs, "", other, copied)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        (tokens, width), count = x.shape, chosen.shape[1]
        add_pairs[(tokens, -(-width // BLOCK))](products, out, H=width, COUNT=count, BLOCK=BLOCK, **self.chip.order)
        return out

    def _blocks(
        self,
        x: torch.Tensor,
        inner: Matrices,
        outer: Matrices,
        pairs: Pairs,
        activation: str,
        shape: ExpertShape,
        other: ExpertShape,
    ) -> torch.Tensor:
        """[pairs, H] of x by token, through whole blocks; see programs/expert_blocks.py."""
        from triton.tools.tensor_descriptor import TensorDescriptor  # which builds of Triton for others may lack

        size, width, blocks = outer.columns, outer.rows, len(pairs.owners)
        hidden = torch.empty(len(pairs.order), size, dtype=x.dtype, device=x.device)
        gate_blocks[(-(-size // shape.rows), blocks)](
            x, inner.tiles(2, shape.rows, shape.inputs), hidden, pairs.order, pairs.owners, x.stride(0), N=size,
            K=inner.columns, COUNT=pairs.each, ACTIVATION=activation, BLOCK_T=WIDTH, BLOCK_N=shape.rows,
            BLOCK_K=shape.inputs, **shape.options, **self.chip.order,
        )  # fmt: skip
        inputs = TensorDescriptor(hidden, list(hidden.shape), list(hidden.stride()), [WIDTH, other.inputs])
        out = torch.empty(pairs.shares.numel(), width, dtype=x.dtype, device=x.device)
        multiply_blocks[(self.chip.processors,)](
            inputs, outer.tiles(1, other.rows, other.inputs), out, pairs.order, pairs.owners, pairs.used, pairs.shares,
            N=width, K=size, PROGRAMS=self.chip.processors, BLOCK_T=WIDTH, BLOCK_N=other.rows, BLOCK_K=other.inputs,
            **other.options, **self.chip.order,
        )  # fmt: skip
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
            BLOCK_K=min(tile.inputs, power(inner.columns)), **self._threads(tile), **self.chip.order,
        )  # fmt: skip
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        join_experts[(-(-outer.rows // join.rows), tokens)](
            hidden, outer.values, outer.scale, out, chosen, shares, outer.values.stride(0), N=outer.rows, K=size,
            COUNT=count, CODED=outer.coded, BLOCK_C=power(count), BLOCK_N=join.rows,
            BLOCK_K=min(join.inputs, power(size)), **self._threads(join), **self.chip.order,
        )  # fmt: skip
        return out

    def _threads(self, tile: WeightTile) -> dict[str, int | str]:
        """Options of a launch without a matrix instruction."""
        tuning = self.chip.tuning
        return {**tile.launch(), "num_warps": min(16, tile.warps * tuning.vector_threads)}

    def _multiply(
        self, x: torch.Tensor, matrices: Matrices, pairs: Pairs, activation: str, shape: ExpertShape, copied: bool
    ) -> torch.Tensor:
        """[pairs, N] of x by token and gated, or by pair and scaled by its share; see programs/experts.py."""
        rounded = round_tokens(self.chip, x, matrices.values.dtype) if matrices.coded else None
        given, scales = (x, None) if rounded is None else (rounded.codes, rounded.scales)
        parts = 2 if activation else 1
        rows = matrices.rows // parts
        out = torch.empty(pairs.shares.numel(), rows, dtype=x.dtype, device=x.device)
        tiles = matrices.tiles(parts, shape.rows, shape.inputs) if copied else None
        multiply_experts[(-(-rows // shape.rows), len(pairs.owners))](
            given, scales, matrices.values, tiles, matrices.scale, out, pairs.order, pairs.owners, pairs.shares,
            given.stride(0), matrices.values.stride(0), N=rows, K=matrices.columns, COUNT=pairs.each,
            ACTIVATION=activation, CODED=matrices.coded, TILED=copied, BLOCK_T=pairs.width,
            BLOCK_N=shape.rows, BLOCK_K=shape.inputs, **shape.options, **self.chip.order,
        )  # fmt: skip
        return out
