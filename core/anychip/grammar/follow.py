"""Grammars of running sequences: compiled in a thread, kept, and followed a token at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLTokenizer

from anychip.grammar.compiling import limits, refusal
from anychip.grammar.deep import deep_stacks

KEPT = 128
"""Compiled grammars that are kept, the ones used last."""

Words = npt.NDArray[np.int32]


class Follower:
    """One sequence's place in its grammar."""

    def __init__(self, compiled: Future[LLMatcher], eos_words: Words, ends: bool) -> None:
        self._compiled = compiled
        self._eos_words = eos_words
        self._ends = ends
        self._matcher: LLMatcher | None = None
        self.count = 0
        """Output tokens taken in."""

    @property
    def ready(self) -> bool:
        """Whether the grammar is compiled, well or not."""
        return self._compiled.done()

    def advance(self, tokens: Sequence[int]) -> None:
        """Take in sampled tokens. Raises `RequestError` for one that the grammar does not allow."""
        matcher = self._open()
        self.count += len(tokens)
        if tokens and not matcher.consume_tokens(list(tokens)):
            raise refusal(matcher.get_error())

    def fill(self, words: Words) -> bool:
        """Write what may come next, a bit a token; False when nothing but the end may.

        Raises `RequestError` where nothing may come at all, or the grammar takes too much work here.
        """
        matcher = self._open()
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if matcher.is_error():
            raise refusal(matcher.get_error())
        rest = words & ~self._eos_words
        if rest.any():
            if not self._ends:
                words[:] = rest
            return True
        if not matcher.is_accepting():
            raise refusal("the grammar leaves no token to sample")
        return False

    def _open(self) -> LLMatcher:
        if self._matcher is None:
            self._matcher = self._compiled.result().deep_copy()
        return self._matcher


class Grammars:
    """All grammars of one engine. The vocabulary is made when the first one comes, or when `warm_up` is called."""

    def __init__(self, make_vocabulary: Callable[[], LLTokenizer], vocab_size: int) -> None:
        self._width = -(-vocab_size // 32)
        self._make_vocabulary = make_vocabulary
        self._vocabulary: LLTokenizer | None = None
        self._compiled: OrderedDict[str, Future[LLMatcher]] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammars")
        with deep_stacks():
            self._thread.submit(lambda: None)  # its thread starts with the first thing to do

    def follow(self, text: str, eos_ids: Sequence[int], ends: bool) -> Follower:
        """A follower of a grammar from its beginning; `ends` says whether ends of sequence end the sequence."""
        compiled = self._compiled.get(text)
        if compiled is None:
            compiled = self._compiled[text] = self._thread.submit(self._compile, text)
        self._compiled.move_to_end(text)
        while len(self._compiled) > KEPT:
            self._compiled.popitem(last=False)
        return Follower(compiled, _words_of(eos_ids, self._width), ends)

    def warm_up(self) -> None:
        """Make the vocabulary now, so that no request has to wait for it."""
        wait([self._thread.submit(self._open)])

    def wait(self, seconds: float) -> None:
        """Wait until a grammar that is being compiled is done, but not longer than `seconds`."""
        pending = [compiled for compiled in self._compiled.values() if not compiled.done()]
        if pending:
            wait(pending, seconds, "FIRST_COMPLETED")

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _open(self) -> LLTokenizer:
        if self._vocabulary is None:
            self._vocabulary = self._make_vocabulary()
        return self._vocabulary

    def _compile(self, text: str) -> LLMatcher:
        matcher = LLMatcher(self._open(), text, log_level=0, limits=limits())
        if matcher.is_error():
            raise refusal(matcher.get_error())
        return matcher


def _words_of(token_ids: Sequence[int], width: int) -> Words:
    words = np.zeros(width, np.uint32)
    for token in token_ids:
        words[token // 32] |= np.uint32(1) << np.uint32(token % 32)
    return words.view(np.int32)
