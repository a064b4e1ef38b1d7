"""How work is cut on one kind of chip. A platform brings such a table; the defaults fit 64 KiB of fast memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CROWD = 8
"""Rows from which it is asked whether some share a prefix."""
MANY = 128
"""Rows that fill a chip however they are cut."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows of queries by keys, and how a program computes it. `options` are those of one vendor's compiler."""

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
    """Rows of weights by inputs, and how a program computes it."""

    rows: int
    inputs: int
    warps: int
    stages: int
    options: Mapping[str, int | str] = field(default_factory=dict)

    def launch(self, fewer: bool = False) -> dict[str, int | str]:
        """Options of a launch; `fewer`: more than one such tile is read at a time, so fewer times are under way."""
        stages = self.stages - 1 if fewer and self.stages > 3 else self.stages
        return {"num_warps": self.warps, "num_stages": stages, **self.options}


@dataclass(frozen=True, slots=True)
class FragmentTile:
    """Rows of weights by tokens at most, for codes of four bits in fragments, and how a program computes it."""

    rows: int
    tokens: int
    warps: int
    stages: int
    programs: int
    """That run at once on a processor."""
    sums: bool
    """Whether scales are applied to the sums of groups, not to numbers."""
    wide: bool = False
    """Whether by matrix instructions of four warps, which Hopper has."""

    @property
    def launch(self) -> dict[str, int | bool]:
        """Arguments of the launch."""
        sizes = {"BLOCK_T": self.tokens, "BLOCK_N": self.rows, "STAGES": self.stages, "WARPS": self.warps}
        return {**sizes, "SUMS": self.sums, "WIDE": self.wide, "num_warps": self.warps}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Tiles by what is computed. What a program keeps in registers and fast memory must fit without spilling."""

    lanes: int = 32
    """Threads of a warp."""
    waves: int = 4
    """Pieces of context a processor, when there are enough."""
    vector_threads: int = 1
    """Times as many threads for a product with one token, where a compiler loads too much of a row at once."""

    context: Tile = Tile(16, 64, 4, 2)
    """One token's heads against a long context: small, with many loads under way. More rows where heads need them."""
    context_large: Tile = Tile(16, 32, 4, 2)
    """The same with heads larger than 128."""
    context_coded: Tile = Tile(16, 64, 4, 2)
    """The same where keys and values are codes: turning them into numbers takes registers."""
    context_coded_crowd: Tile | None = None
    """From CROWD rows on, if it is another."""
    context_float32: Tile = Tile(16, 16, 4, 2)
    context_crowd: tuple[Tile, Tile] | None = None
    """From CROWD rows on, for 16-bit numbers and heads up to 128: one token's heads, and those of several tokens that
    share a context. One launch reads both, so by as many warps. None, and for the rest: the tile above for both."""
    context_many: tuple[Tile, Tile] | None = None
    """The same from MANY rows on, where it is another."""
    context_blocks: bool = False
    """Whether a tile's block is looked up once where its keys share it; other chips spill what that keeps."""
    query_few: Tile = Tile(16, 64, 4, 2)
    """Several tokens' heads, where no row brings more than 16 lines."""
    query_small: Tile = Tile(64, 64, 4, 2)
    """Where larger tiles would leave processors idle."""
    query_medium: Tile = Tile(128, 64, 8, 2)
    query_large: Tile = Tile(128, 64, 8, 2)
    """As large as accumulators allow."""
    query_coded_small: Tile = Tile(64, 64, 4, 2)
    query_coded: Tile = Tile(64, 64, 4, 2)
    """Both over codes."""
    query_wide: Tile = Tile(128, 32, 8, 2)
    """Heads larger than 128."""
    query_float32: Tile = Tile(32, 32, 4, 1)
    copied: Tile = Tile(128, 64, 8, 2)
    """From here on for chips that copy parts of pages by themselves, and numbers of 16 bits. A page holds a multiple of
    a tile's keys, or attention goes without."""
    copied_small: Tile = Tile(64, 64, 4, 2)
    """Where larger tiles would leave processors idle."""
    copied_wide: Tile = Tile(64, 32, 4, 2)
    """Heads larger than 128."""
    grouped: Tile | None = None
    """By programs whose warps share the work, 64 rows to a group of four, and one warp that copies; None: not so."""
    grouped_wide: Tile | None = None

    thin: WeightTile = WeightTile(64, 128, 4, 2)
    """Linear layers for a few tokens."""
    thin_many: WeightTile | None = None
    """The same tile where programs share a processor's memory; None: it is no other."""
    thin_tall: WeightTile | None = None
    """Gated products whose rows make enough of such tiles; None: as others, with a stage less."""
    thin_wide: WeightTile | None = None
    """The same for 33 to 128 tokens, for which short products are then computed here too; None: by the library."""
    thin_rows: int = 4096
    """Most rows of output for several tokens; more are the library's."""
    thin_ahead: int = 0
    """Bytes of weights that all programs ask for before their tokens are there, where programs overlap."""
    thin_float32: WeightTile = WeightTile(32, 64, 4, 2)
    experts_vector: WeightTile = WeightTile(4, 1024, 4, 1)
    """Experts of so few tokens that each reads its own, without a matrix instruction: the gated products."""
    experts_join: WeightTile = WeightTile(2, 1024, 4, 1)
    """The products behind them, of all experts of a token at once."""
    experts_few: WeightTile = WeightTile(64, 128, 4, 2)
    """Up to 8 pairs of a token and an expert for each expert."""
    experts_some: WeightTile = WeightTile(64, 128, 4, 2)
    """Up to 20."""
    experts_many: WeightTile = WeightTile(128, 64, 8, 2)
    experts_copied: tuple[WeightTile, WeightTile] | None = None
    """All three where the chip copies tiles by itself: gated products, and those behind them."""
    experts_gated: WeightTile | None = None
    """Gated products of at least 96 pairs an expert, 44 in tiles copied, in blocks of 128; None: as many."""
    experts_down: WeightTile | None = None
    """The products behind them, in the same blocks."""
    experts_float32: WeightTile = WeightTile(32, 32, 4, 2)
    codes_packed: WeightTile = WeightTile(64, 128, 4, 2)
    """Quantized weights of four bits a code; the inputs are those of the packing."""
    codes_packed_tokens: int = 64
    """Most tokens for which they are multiplied as they are, not unpacked."""
    fragments: tuple[FragmentTile, ...] = (
        FragmentTile(128, 8, 4, 3, 3, sums=True),
        FragmentTile(64, 16, 4, 3, 4, sums=True),
        FragmentTile(64, 32, 4, 3, 3, sums=False),
    )
    """The same where four bits a code lie in fragments, by tokens; the last also for several blocks of them."""
    fragments_tokens: int = 64
    """Most tokens for which they are multiplied as they are."""
    codes_bytes: WeightTile = WeightTile(64, 256, 4, 2)
    codes_many: WeightTile = WeightTile(128, 128, 8, 2)
    """Eight bits a code and many tokens, where no library takes them."""

    def warps(self, threads: int) -> int:
        """How many warps so many threads are, sixteen at most."""
        return min(16, max(1, threads // self.lanes))
