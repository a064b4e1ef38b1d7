"""Sizes of tiles on one kind of chip. A platform brings such a table; the defaults fit 64 KiB of shared memory.

A tile is the part of its operands that a program holds at once. `warps` and `stages` are Triton's num_warps and
num_stages: stages are the tiles that are being loaded while one is computed with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CROWD = 8
"""Decoding rows from which a plan looks for prefixes that several of them share."""
MANY = 128
"""Decoding rows that fill a chip however their contexts are cut."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Attention: rows of queries by keys. `options` are launch options that only one vendor's compiler knows."""

    rows: int
    keys: int
    warps: int
    stages: int
    options: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def launch(self) -> dict[str, int | str]:
        """Options of a launch."""
        return {"num_warps": self.warps, "num_stages": self.stages, **self.options}


@dataclass(frozen=True, slots=True)
class WeightTile:
    """A product with weights: rows of the matrix (output features) by inputs (columns)."""

    rows: int
    inputs: int
    warps: int
    stages: int
    options: Mapping[str, int | str] = field(default_factory=dict)

    def launch(self, fewer: bool = False) -> dict[str, int | str]:
        """Options of a launch; `fewer` stages where a program loads two such tiles at a time, as of gated products."""
        stages = self.stages - 1 if fewer and self.stages > 3 else self.stages
        return {"num_warps": self.warps, "num_stages": stages, **self.options}


@dataclass(frozen=True, slots=True)
class FragmentTile:
    """A product with weights of 4 bits in fragments: rows of the matrix by tokens, at most."""

    rows: int
    tokens: int
    warps: int
    stages: int
    programs: int
    """Programs that run at once on a processor."""
    sums: bool
    """Whether scales are applied to the sum of each group of inputs, not to each weight."""
    wide: bool = False
    """Whether it computes by wgmma, Hopper's matrix instructions of four warps."""

    @property
    def launch(self) -> dict[str, int | bool]:
        """Arguments of the launch."""
        sizes = {"BLOCK_T": self.tokens, "BLOCK_N": self.rows, "STAGES": self.stages, "WARPS": self.warps}
        return {**sizes, "SUMS": self.sums, "WIDE": self.wide, "num_warps": self.warps}


@dataclass(frozen=True, slots=True)
class GroupTile:
    """Tokens by rows of weights, whose sums of a group of inputs are scaled, and how a program computes it."""

    tokens: int
    rows: int
    warps: int
    stages: int
    crowd: int
    """Blocks of tokens that follow one another on the same rows."""

    @property
    def launch(self) -> dict[str, int]:
        """Arguments of the launch."""
        sizes = {"BLOCK_T": self.tokens, "BLOCK_N": self.rows, "CROWD": self.crowd}
        return {**sizes, "num_warps": self.warps, "num_stages": self.stages}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Tiles by what is computed. They must be small enough that no program spills registers to memory."""

    lanes: int = 32
    """Threads of a warp."""
    waves: int = 4
    """Pieces for each processor that a step's contexts are cut into, all rows and heads together."""
    vector_threads: int = 1
    """Factor on the threads of products with one token, for compilers that would load too much of a row at once."""

    context: Tile = Tile(16, 64, 4, 2)
    """One token's query heads (rows) against its context. `rows` grows where more query heads share a key head."""
    context_large: Tile = Tile(16, 32, 4, 2)
    """`context` for heads larger than 128."""
    context_coded: Tile = Tile(16, 64, 4, 2)
    """`context` over a cache of 8 bits, whose conversion takes registers."""
    context_coded_crowd: Tile | None = None
    """`context_coded` from CROWD rows on; None: the same."""
    context_float32: Tile = Tile(16, 16, 4, 2)
    """`context` in float32."""
    context_crowd: tuple[Tile, Tile] | None = None
    """From CROWD rows on, for 16-bit numbers and heads up to 128: the tile of a token that is alone with its context,
    and that of several tokens that share one. One launch computes both, so their warps are equal. None: `context`."""
    context_many: tuple[Tile, Tile] | None = None
    """`context_crowd` from MANY rows on; None: the same."""
    context_blocks: bool = False
    """Whether the block table is read once a tile where its keys are of one block, not once a key. Some chips spill."""
    query_few: Tile = Tile(16, 64, 4, 2)
    """New tokens of rows that bring several, times heads, where no row brings more than 16 of them for a key head."""
    query_small: Tile = Tile(64, 64, 4, 2)
    """For so few of them that larger tiles would leave processors idle."""
    query_medium: Tile = Tile(128, 64, 8, 2)
    """For more of them."""
    query_large: Tile = Tile(128, 64, 8, 2)
    """For very many: as large as registers for its sums allow."""
    query_coded_small: Tile = Tile(64, 64, 4, 2)
    query_coded: Tile = Tile(64, 64, 4, 2)
    """`query_small` and the larger ones over a cache of 8 bits."""
    query_wide: Tile = Tile(128, 32, 8, 2)
    """For heads larger than 128."""
    query_float32: Tile = Tile(32, 32, 4, 1)
    """In float32."""
    copied: Tile = Tile(128, 64, 8, 2)
    """This and the next four for chips with `Chip.descriptors` and numbers of 16 bits. A block of the cache has to hold
    a multiple of the tile's keys; else those above are taken."""
    copied_small: Tile = Tile(64, 64, 4, 2)
    """For few queries, where larger tiles would leave processors idle."""
    copied_wide: Tile = Tile(64, 32, 4, 2)
    """For heads larger than 128."""
    grouped: Tile | None = None
    """Programs in Gluon in which one warp copies and groups of four warps compute 64 rows each; None: not used."""
    grouped_wide: Tile | None = None
    """The same for heads larger than 128."""

    thin: WeightTile = WeightTile(64, 128, 4, 2)
    """Linear layers of a few tokens."""
    thin_many: WeightTile | None = None
    """`thin` where there are more programs than processors, so that two share one's memory; None: the same."""
    thin_tall: WeightTile | None = None
    """Gated products of up to 32 tokens with enough rows to fill the chip; None: `thin` with a stage less."""
    thin_wide: WeightTile | None = None
    """`thin_tall` for 33 to 128 tokens, and then products of few rows are ours too; None: those are the library's."""
    thin_rows: int = 4096
    """Most rows of a matrix that is multiplied with 2 to 32 tokens here if not gated; larger ones are the library's."""
    thin_ahead: int = 0
    """Bytes of weights that a launch's programs prefetch before their tokens are computed, where kernels overlap."""
    thin_float32: WeightTile = WeightTile(32, 64, 4, 2)
    """`thin` in float32."""
    experts_vector: WeightTile = WeightTile(4, 1024, 4, 1)
    """Gated products of so few tokens that each reads its experts' matrices for itself, without matrix instructions."""
    experts_join: WeightTile = WeightTile(2, 1024, 4, 1)
    """The products after those, of all experts of a token at once."""
    experts_few: WeightTile = WeightTile(64, 128, 4, 2)
    """Products of experts that get up to 8 tokens each, on average."""
    experts_some: WeightTile = WeightTile(64, 128, 4, 2)
    """Up to 20 tokens each."""
    experts_many: WeightTile = WeightTile(128, 64, 8, 2)
    """More."""
    experts_copied: tuple[WeightTile, WeightTile] | None = None
    """In place of these three on chips with `Chip.descriptors`: for gated products, and for those after them."""
    experts_gated: WeightTile | None = None
    """Gated products of experts that get 96 tokens or more (44 if copied), in blocks of 128; None: as above."""
    experts_down: WeightTile | None = None
    """The products after those, in the same blocks."""
    experts_float32: WeightTile = WeightTile(32, 32, 4, 2)
    """Products of experts in float32."""
    codes_packed: WeightTile = WeightTile(64, 128, 4, 2)
    """Weights of 4 bits, packed in words. Its inputs are fixed by the packing: 128."""
    codes_packed_tokens: int = 64
    """Most tokens for which they are multiplied without being unpacked to memory."""
    fragments: tuple[FragmentTile, ...] = (
        FragmentTile(128, 8, 4, 3, 3, sums=True),
        FragmentTile(64, 16, 4, 3, 4, sums=True),
        FragmentTile(64, 32, 4, 3, 3, sums=False),
    )
    """Weights of 4 bits in fragments, by tokens ascending; the last tile also serves more tokens, block by block."""
    fragments_tokens: int = 64
    """Most tokens for which fragments are multiplied without being unpacked to memory."""
    codes_bytes: WeightTile = WeightTile(64, 256, 4, 2)
    """Weights of 8 bits times up to 64 tokens of 8 bits: floats."""
    codes_long: bool = False
    """Whether that goes up to 128 tokens of 8-bit floats where a row has more than twice as many inputs as rows."""
    codes_whole: WeightTile | None = None
    """The same for integers; None: the same tile, but with no more inputs than share a scale."""
    codes_grouped: tuple[GroupTile, GroupTile, GroupTile] = (
        GroupTile(64, 128, 4, 3, 16),
        GroupTile(128, 128, 8, 4, 8),
        GroupTile(128, 256, 8, 4, 8),
    )
    """Integers and many tokens, where the chip copies tiles by itself; see `whole_tile`."""
    codes_many: WeightTile = WeightTile(128, 128, 8, 2)
    """The same for more tokens, where no library multiplies them."""

    def warps(self, threads: int) -> int:
        """Warps of so many threads, 1 to 16."""
        return min(16, max(1, threads // self.lanes))
