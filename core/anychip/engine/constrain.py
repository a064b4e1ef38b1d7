"""Grammars in the step loop: masks for the rows that sample, worked out while the device computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anychip.config import EngineConfig
from anychip.engine.assemble import StepRecord
from anychip.engine.batch import Masks
from anychip.engine.input import model_tokenizer
from anychip.engine.messages import Finished, Submit
from anychip.engine.model_files import eos_ids
from anychip.engine.request import Leaving
from anychip.engine.scheduler import Scheduler
from anychip.errors import RequestError
from anychip.plugin.contract import Late, ModelSource

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from anychip.grammar.follow import Follower, Grammars


class Constrained:
    """The sequences of an engine that follow a grammar. An engine that never sees one loads nothing for them."""

    def __init__(self, config: EngineConfig, source: ModelSource, vocab_size: int, scheduler: Scheduler) -> None:
        self._config = config
        self._source = source
        self._vocab_size = vocab_size
        self._scheduler = scheduler
        self._opened: Grammars | None = None

    def follower(self, message: Submit) -> Follower | None:
        """The follower of a message's grammar, which may still be compiled; None without one."""
        if not message.grammar:
            return None
        ends = not set(message.eos_ids).isdisjoint(message.stop_ids)
        return self._grammars().follow(message.grammar, message.eos_ids, ends)

    def late(self, record: StepRecord) -> Late | None:
        """Masks for the rows that sample in a step; all earlier tokens of these rows are known by now.

        A sequence that has come to the end of its grammar, or cannot go on, is ended instead.
        """
        rows = self._scheduler.rows
        if not rows.followed:
            return None
        runs = rows.leaving[record.sampled] != Leaving.FINISHED
        indices = [index for index, row in enumerate(record.sampled.tolist()) if row in rows.followed and runs[index]]
        bits = np.zeros((len(indices), -(-self._vocab_size // 32)), np.int32)
        good = [place for place, index in enumerate(indices) if self._fill(record, index, bits[place])]
        if not good:
            return None
        return Late(Masks(record.sampled[indices][good], bits[good]))

    def wait(self, seconds: float) -> None:
        """Wait for a grammar that is being compiled, if nothing else is to be done; not longer than `seconds`."""
        if self._opened is not None:
            self._opened.wait(seconds)

    def warm_up(self) -> None:
        """Read the vocabulary ahead of the first grammar, where there is a tokenizer."""
        if not self._config.skip_tokenizer_init:
            self._grammars().warm_up()

    def close(self) -> None:
        """End what runs beside the steps."""
        if self._opened is not None:
            self._opened.close()

    def _fill(self, record: StepRecord, index: int, words: np.ndarray) -> bool:
        """Write one row's mask; False for a row that has ended."""
        row, position = int(record.sampled[index]), int(record.positions[index])
        rows = self._scheduler.rows
        request, follower = rows.request(row), rows.followed[row]
        known = rows.tokens[row, request.prompt_length + follower.count : position]
        assert (known >= 0).all(), "a mask was asked for before the row's last token was known"
        try:
            follower.advance(known.tolist())
            if follower.fill(words):
                return True
            self._scheduler.end(Finished(request.handle, "stop"))
        except RequestError as error:
            self._scheduler.end(Finished(request.handle, "error", error=str(error), refused=True))
        return False

    def _grammars(self) -> Grammars:
        if self._opened is None:
            from anychip.grammar.follow import Grammars

            self._opened = Grammars(self._vocabulary, self._vocab_size)
        return self._opened

    def _vocabulary(self) -> LLTokenizer:
        from anychip.grammar.vocabulary import grammar_vocabulary

        tokenizer = model_tokenizer(self._config, self._source)
        if tokenizer is None:
            raise RequestError("This model has no tokenizer, so no grammar can be followed.", "structured_outputs")
        return grammar_vocabulary(tokenizer, self._vocab_size, eos_ids(self._source, tokenizer, self._vocab_size))
