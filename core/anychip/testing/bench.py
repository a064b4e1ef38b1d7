"""Driving a platform's runner by hand: which tokens, at which positions, in which blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anychip.config import make_config
from anychip.engine.batch import SAMPLE, AdmittedRow, Batch, Float32, Int32, RowSampling
from anychip.engine.locate import locate_model
from anychip.engine.sizing import group_layers, resolve_config
from anychip.plugin.contract import KVGroup, KVPlan, Platform, Runner
from anychip.testing.subject import Subject
from anychip.testing.tiny_model import MAX_MODEL_LEN, VOCAB_SIZE, Attention

NUM_BLOCKS = 128
MAX_ROWS = 16
MAX_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Room:
    """What sequences and steps there may be."""

    length: int = MAX_MODEL_LEN
    """Tokens of a sequence."""
    tokens: int = MAX_TOKENS
    """Tokens of a step."""
    block_size: int | None = None
    """None leaves it to the platform."""

    def blocks(self, block_size: int) -> int:
        """How many the cache has."""
        return max(NUM_BLOCKS, 2 * self.tokens // block_size)


SMALL = Room()


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens `start` to `stop` of one row's sequence, whose cache lies in `blocks`."""

    row: int
    tokens: Sequence[int]
    start: int
    stop: int
    blocks: Sequence[int]


class Bench:
    """The tiny model on one platform in one dtype. Use it in a `with`."""

    def __init__(
        self,
        subject: Subject,
        dtype: str,
        attention: Attention = "full",
        kv_cache_dtype: str = "auto",
        room: Room = SMALL,
        platform: Platform | None = None,
    ) -> None:
        self.dtype = dtype
        platform = platform or subject.platform
        options = {"model": str(subject.model(attention, room.length)), "dtype": dtype, "max_model_len": room.length}
        options |= {"kv_cache_dtype": kv_cache_dtype, "max_num_batched_tokens": room.tokens, "max_num_seqs": MAX_ROWS}
        options |= {"block_size": room.block_size}
        config = resolve_config(make_config(subject.options(**options)), platform.capabilities)
        assert config.block_size, "the config is unresolved"
        self.block_size = config.block_size
        self._step = 0
        self._rows: set[int] = set()
        self._runner: Runner = platform.runner(config)
        try:
            info = self._runner.load(locate_model(config, _quiet), _quiet)
            self._runner.measure()
            blocks = room.blocks(self.block_size)
            groups = tuple(KVGroup(spec, layers, blocks) for spec, layers in group_layers(info.kv_specs))
            self._groups = len(groups)
            self._runner.start(KVPlan(groups, self.block_size, MAX_ROWS, room.length, room.tokens))
        except BaseException:
            self._runner.close()
            raise

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.close()

    def blocks(self, first: int, tokens: int) -> list[int]:
        """Consecutive blocks for some tokens."""
        return list(range(first, first + -(-tokens // self.block_size)))

    def step(self, *pieces: Piece, pad: int = 0) -> Float32:
        """Log-probabilities [R, V] after the last token of each piece, in the order given.

        `pad` adds columns of NULL_BLOCK to the block table.
        """
        order = sorted(range(len(pieces)), key=lambda index: pieces[index].stop - pieces[index].start > 1)
        batch = self._batch([pieces[index] for index in order], pad)
        result = self._runner.submit(batch).finish().result()
        assert not result.errors, f"rows failed: {result.errors}"
        assert result.logprobs is not None, "log-probabilities were asked for and did not come"
        found = np.empty((len(pieces), VOCAB_SIZE), np.float32)
        logprobs = result.logprobs
        for place, index in enumerate(order):
            found[index, logprobs.token_ids[place, 1:]] = logprobs.values[place, 1:]
        return found

    def run(self, tokens: Sequence[int], row: int = 0, first_block: int = 1) -> Float32:
        """Log-probabilities [V] after a whole sequence, computed at once."""
        logprobs: Float32 = self.step(self.piece(tokens, row=row, first_block=first_block))[0]
        return logprobs

    def piece(
        self, tokens: Sequence[int], start: int = 0, stop: int | None = None, row: int = 0, first_block: int = 1
    ) -> Piece:
        """A piece in consecutive blocks."""
        return Piece(row, tokens, start, len(tokens) if stop is None else stop, self.blocks(first_block, len(tokens)))

    def retire(self) -> None:
        """Forget all rows at the next step."""
        self._retired = tuple(sorted(self._rows))
        self._rows = set()

    _retired: tuple[int, ...] = ()

    def _batch(self, pieces: list[Piece], pad: int) -> Batch:
        self._step += 1
        counts = [piece.stop - piece.start for piece in pieces]
        query_start = np.cumsum([0, *counts], dtype=np.int32)
        retired, self._retired = self._retired, ()
        return Batch(
            step=self._step,
            token_ids=np.concatenate([np.array(piece.tokens[piece.start : piece.stop], np.int32) for piece in pieces]),
            positions=np.concatenate([np.arange(piece.start, piece.stop, dtype=np.int32) for piece in pieces]),
            query_start=query_start,
            seq_lens=np.array([piece.stop for piece in pieces], np.int32),
            block_tables=(self._table(pieces, pad),) * self._groups,
            rows=np.array([piece.row for piece in pieces], np.int32),
            logits_at=query_start[1:] - 1,
            targets=np.full(len(pieces), SAMPLE, np.int32),
            num_single=counts.count(1),
            admitted=tuple(self._admit(piece) for piece in pieces if piece.row not in self._rows),
            retired=retired,
        )

    def _admit(self, piece: Piece) -> AdmittedRow:
        self._rows.add(piece.row)
        return AdmittedRow(piece.row, RowSampling(seed=0, temperature=0.0, logprobs=VOCAB_SIZE), len(piece.tokens))

    def _table(self, pieces: list[Piece], pad: int) -> Int32:
        used = [piece.blocks[: -(-piece.stop // self.block_size)] for piece in pieces]
        table = np.zeros((len(pieces), max(map(len, used)) + pad), np.int32)
        for line, blocks in zip(table, used, strict=True):
            line[: len(blocks)] = blocks
        return table


def random_tokens(seed: int, count: int) -> list[int]:
    """A random sequence of the tiny model's tokens."""
    return [int(token) for token in np.random.default_rng(seed).integers(0, VOCAB_SIZE, count)]


def _quiet(what: str, done: int, total: int) -> None:
    return
