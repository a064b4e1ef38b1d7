"""Sampling parameters and history of every row, on the device; only changes travel."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag

import numpy as np
import torch

from anychip.engine.batch import AdmittedRow, Int32, RowSampling
from anychip.sample.bad_words import BadWordTable
from anychip.sample.masks import EntryTable
from anychip.sample.penalties import TokenCounts
from anychip.sample.random import stream_key
from anychip.sample.send import Send

NUMBERS = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
"""Columns of `SamplerState.numbers`."""
BYTES_COUNTED = 5
"""Bytes for each token of the vocabulary that a row with a penalty takes: see `TokenCounts`."""
BYTES_EDITED = 8
"""The same of any row: logits in float32, once more if rows that draw are told apart from others."""


def most_bytes(rows: int, vocab_size: int) -> int:
    """Most bytes that sampling takes beside the model's own logits: every row asks for all there is."""
    return rows * vocab_size * (BYTES_COUNTED + BYTES_EDITED)


class Feature(IntFlag):
    """What a row asks of sampling; a step does only what some of its rows ask for."""

    RANDOM = 1
    TOP_K = 2
    TOP_P = 4
    PENALTY = 8
    BIAS = 16
    ALLOWED = 32
    BAD_WORDS = 64
    MIN_TOKENS = 128
    LOGPROBS = 256

    @classmethod
    def of(cls, sampling: RowSampling) -> Feature:
        """What one row's parameters ask for."""
        random = sampling.temperature != 0.0
        penalty = sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty != 1.0
        used = {
            cls.RANDOM: random,
            cls.TOP_K: random and sampling.top_k > 0,
            cls.TOP_P: random and sampling.top_p < 1.0,
            cls.PENALTY: penalty,
            cls.BIAS: sampling.logit_bias,
            cls.ALLOWED: sampling.allowed_token_ids is not None,
            cls.BAD_WORDS: any(sampling.bad_words),
            cls.MIN_TOKENS: sampling.min_tokens > 0 and sampling.stop_token_ids,
            cls.LOGPROBS: sampling.logprobs is not None,
        }
        return cls(sum(feature for feature, on in used.items() if on))


class SamplerState:
    """Parameters and history by stable row.

    Plans are made from it and kept while `version` stays the same; every admission and retirement changes it.
    """

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device, send: Send) -> None:
        self.max_rows = max_rows
        self.vocab_size = vocab_size
        self.device = device
        self.send = send
        self.version = 0
        self.features = np.zeros(max_rows, np.int32)
        self.top_k: Int32 = np.zeros(max_rows, np.int32)
        self.logprobs: Int32 = np.zeros(max_rows, np.int32)
        self.prompt_logprobs: Int32 = np.zeros(max_rows, np.int32)
        self.numbers = torch.zeros(max_rows, len(NUMBERS), dtype=torch.float32, device=device)
        self.integers = torch.zeros(max_rows, 3, dtype=torch.int32, device=device)
        """Columns top_k, prompt_length, min_tokens."""
        self.keys = torch.zeros(max_rows, dtype=torch.int64, device=device)
        self.counts = TokenCounts(vocab_size, device, send)
        self.bias, self.allowed, self.stop = (EntryTable(send) for _ in range(3))
        self.bad_words = BadWordTable(max_rows, device, send)
        self._arrived: dict[int, AdmittedRow] = {}

    def admit(self, admitted: Sequence[AdmittedRow]) -> None:
        """Take new rows up on the host; `bring` uploads their parameters."""
        self.version += bool(admitted)
        for row in admitted:
            self._admit_host(row)
            self._arrived[row.row] = row

    def bring(self) -> None:
        """Upload the parameters of all rows taken up since the last time, in one go."""
        if not self._arrived:
            return
        admitted, self._arrived = [*self._arrived.values()], {}
        rows = self.send(np.array([row.row for row in admitted], np.int64))
        parameters = [row.sampling for row in admitted]
        numbers = [[getattr(sampling, name) for name in NUMBERS] for sampling in parameters]
        integers = [[self.top_k[row.row], row.prompt_length, row.sampling.min_tokens] for row in admitted]
        self.numbers[rows] = self.send(np.array(numbers, np.float32))
        self.integers[rows] = self.send(np.array(integers, np.int32))
        self.keys[rows] = self.send(np.array([stream_key(sampling.seed) for sampling in parameters], np.int64))

    def retire(self, rows: Sequence[int]) -> None:
        """Forget rows."""
        if not rows:
            return
        self.version += 1
        for row in rows:
            self.counts.retire(row)
            for table in (self.bias, self.allowed, self.stop, self.bad_words):
                table.drop(row)

    def _admit_host(self, admitted: AdmittedRow) -> None:
        row, sampling = admitted.row, admitted.sampling
        self.retire((row,))
        features = Feature.of(sampling)
        self.features[row] = features
        self.top_k[row] = min(sampling.top_k, self.vocab_size)
        self.logprobs[row] = sampling.logprobs or 0
        self.prompt_logprobs[row] = sampling.prompt_logprobs or 0
        if Feature.PENALTY in features:
            self.counts.admit(admitted)
        if Feature.BIAS in features:
            tokens, values = zip(*sampling.logit_bias, strict=True)
            self.bias.put(row, tokens, values)
        if sampling.allowed_token_ids is not None:
            self.allowed.put(row, sampling.allowed_token_ids, (0.0,) * len(sampling.allowed_token_ids))
        if Feature.MIN_TOKENS in features:
            self.stop.put(row, sampling.stop_token_ids, (0.0,) * len(sampling.stop_token_ids))
        if Feature.BAD_WORDS in features:
            self.bad_words.put(row, tuple(word for word in sampling.bad_words if word), _history(admitted))


def _history(admitted: AdmittedRow) -> Int32:
    prompt, output = admitted.prompt_token_ids, admitted.output_token_ids
    assert prompt is not None, "a row with bad words was admitted without its prompt"
    assert output is not None, "a row with bad words was admitted without its output"
    return np.concatenate([prompt, output])
