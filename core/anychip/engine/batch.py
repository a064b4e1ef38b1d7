"""What crosses between scheduler and device: one `Batch` down and one `StepResult` up a step. No torch here.

T tokens, R rows scheduled, L positions whose logits are wanted, B blocks of the longest table.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]

SAMPLE = -1
"""In `Batch.targets`: sample a token here rather than score one."""

POOL = -2
"""In `Batch.targets`: the row's prompt is complete here, so bring back its pooled vector."""

PENDING = -1
"""In `Batch.token_ids`: this row's newest token, which is still on the device."""

NULL_BLOCK = 0
"""The block nobody owns: tables are padded with it, and a padding token may write to it."""


@dataclass(frozen=True, slots=True)
class RowSampling:
    """Sampling of one row, in token ids and with its seed resolved: what the device has to know."""

    seed: int
    """Names the request's stream of random numbers."""
    temperature: float = 1.0
    """What logits are divided by; 0: the highest is taken."""
    top_p: float = 1.0
    """Only the likeliest tokens that have this probability together may be sampled; 1: all."""
    top_k: int = 0
    """How many of the likeliest tokens may be sampled; 0: all."""
    min_p: float = 0.0
    """Only tokens at least so likely, as a part of the likeliest one's probability, may be sampled."""
    presence_penalty: float = 0.0
    """Taken off the logit of each token that is in the output."""
    frequency_penalty: float = 0.0
    """Taken off once for each time it is there."""
    repetition_penalty: float = 1.0
    """Divides the positive logit, and multiplies the negative one, of each token in prompt or output."""
    min_tokens: int = 0
    """Tokens of output before which no end of sequence is sampled."""
    stop_token_ids: tuple[int, ...] = ()
    """Ends of sequence that are masked until `min_tokens` tokens are out."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Sequences of tokens, each of which is kept from being completed."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token, what is added to its logit)."""
    allowed_token_ids: tuple[int, ...] | None = None
    """None: all are."""
    logprobs: int | None = None
    """How many alternatives come with each token's own log-probability; None: none of either."""
    prompt_logprobs: int | None = None
    """The same for the prompt's tokens."""

    @property
    def needs_history(self) -> bool:
        """Whether the tokens so far change what may be sampled next."""
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0 or self.bad_words)


@dataclass(frozen=True, slots=True)
class AdmittedRow:
    """A request takes `row` from this step on; the device keeps its state until the row is retired."""

    row: int
    """Below `KVPlan.max_num_seqs`."""
    sampling: RowSampling
    prompt_length: int
    """Tokens of the prompt: sampled positions are counted from there."""
    prompt_token_ids: Int32 | None = None
    """The prompt, where `sampling.needs_history`; else None."""
    output_token_ids: Int32 | None = None
    """The output so far, likewise; not empty when a preempted request comes back."""
    adapter: str | None = None
    """Kept for adapters, which no version has yet: always None."""
    second_text: int | None = None
    """Position at which the second of two texts begins, for models that tell them apart."""


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy one block of a group's caches before the step's forward runs. The core asks for none yet."""

    group: int
    """Index into `KVPlan.groups`."""
    source: int
    """Number of the block to read."""
    target: int
    """Number of the block to write."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One step: a ragged batch in which rows with a single token come first.

    The arrays are the scheduler's own and change at its next step: a runner copies what it needs before `submit`
    returns. The same object may come again: then the same arrays hold the next step, in which the same rows bring one
    token and sample one, and what follows from rows and shapes may be kept.
    A step with no tokens is legal; it only admits and retires rows.
    """

    step: int
    """Its number, or that of the first one where the batch comes again."""
    token_ids: Int32
    """[T] ids; PENDING where the device still holds the row's newest token."""
    positions: Int32
    """[T] position of each token in its request."""
    query_start: Int32
    """[R+1] row r owns tokens query_start[r] to query_start[r+1]."""
    seq_lens: Int32
    """[R] tokens in the cache once this step has run."""
    block_tables: tuple[Int32, ...]
    """One [R, B] table a KV group, padded with NULL_BLOCK."""
    rows: Int32
    """[R] stable row of each request."""
    logits_at: Int32
    """[L] ascending indices into the T tokens."""
    targets: Int32
    """[L] SAMPLE, POOL, or the token to score."""
    num_single: int = 0
    """How many of the first rows bring exactly one token."""
    admitted: tuple[AdmittedRow, ...] = ()
    """Requests that begin to run with this step."""
    retired: tuple[int, ...] = ()
    """Rows freed before this step's admissions; a row may be in both."""
    block_copies: tuple[BlockCopy, ...] = ()
    """Done before the forward pass."""

    @property
    def num_tokens(self) -> int:
        """T."""
        return len(self.token_ids)

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.rows)

    @property
    def only_samples(self) -> bool:
        """Whether every row brings one token and samples the next one, as in steady decoding."""
        rows = len(self.rows)
        return self.num_single == rows == len(self.targets) == np.count_nonzero(self.targets == SAMPLE)


@dataclass(frozen=True, slots=True)
class Masks:
    """Tokens that M of a step's rows may sample; all other rows may sample any."""

    rows: Int32
    """[M] stable rows, each of which samples in the step."""
    bits: Int32
    """[M, ceil(V / 32)] token t is allowed where bit t % 32 of word t // 32 is set."""


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Log-probabilities of N tokens and of up to K alternatives each, best first.

    They are those of the model's own logits, before penalties and temperature. K is the largest number that any row
    asked for.
    """

    token_ids: Int32
    """[N, K+1] the token itself in column 0, then the alternatives."""
    values: Float32
    """[N, K+1] their log-probabilities."""
    ranks: Int32
    """[N] of the token itself among the whole vocabulary, from 1."""


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Scores of M prompt tokens: entry m scores the token at `positions[m]` (never 0) of `rows[m]`."""

    rows: Int32
    """[M] stable rows."""
    positions: Int32
    """[M] positions in the prompts."""
    logprobs: Logprobs
    """Of these M tokens."""


@dataclass(frozen=True, slots=True)
class Pooled:
    """Vectors of rows whose prompts are complete: `vectors` [P, W] float32, one for each of `rows` [P]."""

    rows: Int32
    """[P] stable rows."""
    vectors: Float32
    """[P, W] pooled, and through the model's head if it has one."""


def _no_rows() -> Int32:
    return np.zeros(0, np.int32)


NOTHING_ALLOWED = "The request's masks leave no token to sample."
"""A row's error that is its request's own fault."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step brought back.

    The scheduler reads the arrays of a result before it asks for the next one's, and keeps none of them.
    """

    rows: Int32 = field(default_factory=_no_rows)
    """[S] stable rows that sampled, in the batch's order; rows in `errors` are left out."""
    token_start: Int32 = field(default_factory=lambda: np.zeros(1, np.int32))
    """[S+1] entry i of `rows` gave token_ids[token_start[i]:token_start[i+1]]."""
    token_ids: Int32 = field(default_factory=_no_rows)
    """[N] sampled tokens; one for each row in version 1."""
    logprobs: Logprobs | None = None
    """For all N tokens, when any row asked."""
    prompt_logprobs: PromptLogprobs | None = None
    """For the tokens that `Batch.targets` names."""
    pooled: Pooled | None = None
    """For rows whose target is POOL."""
    errors: dict[int, str] = field(default_factory=dict)
    """Rows that failed, each with a sentence, `NOTHING_ALLOWED` where their masks are at fault; the others are good."""
