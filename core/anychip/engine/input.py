"""From a prompt and sampling parameters to sequences the engine can take; all validation of requests is here."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from anychip.config import EngineConfig
from anychip.engine.batch import Int32, RowSampling
from anychip.engine.messages import EngineInfo, Submit
from anychip.engine.model_files import eos_ids
from anychip.errors import RequestError
from anychip.plugin.contract import ModelSource
from anychip.plugin.tasks import Task
from anychip.sampling_params import SamplingParams
from anychip.text.load import load_tokenizer
from anychip.text.tokenizer import Tokenizer
from anychip.text.truncate import TokenizedTexts

if TYPE_CHECKING:
    from anychip.grammar.compiling import CheckedGrammars

Prompt = str | Sequence[int] | Mapping[str, Any]
"""Text, token ids, or {"prompt": text} or {"prompt_token_ids": ids}, or both where the text is tokenized already."""

REMEDIES: Mapping[Task, str] = MappingProxyType(
    {
        "generate": "Ask for embeddings, labels or scores, or serve a model that generates text.",
        "embed": "Serve an embedding model, or start with --task embed.",
        "classify": "Serve a model that has a classification head.",
        "score": "Serve a cross-encoder with one label, or an embedding model.",
    }
)
"""What to do where a model was loaded for something else."""

_ONE_VECTOR = SamplingParams(max_tokens=0, detokenize=False)
"""Nothing is sampled after the prompt."""


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A validated request: one `Submit` a choice."""

    text: str | None
    token_ids: list[int]
    params: SamplingParams
    submits: tuple[Submit, ...]


class InputProcessor:
    """Tokenizes and validates requests for one model."""

    def __init__(self, source: ModelSource, tokenizer: Tokenizer | None, info: EngineInfo, seed: int) -> None:
        self.tokenizer = tokenizer
        self.info = info
        self.eos_ids = eos_ids(source, tokenizer, info.vocab_size)
        self._handles = count(1)
        self._random = random.Random(seed)
        self._grammars: CheckedGrammars | None = None

    def prepare(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        priority: int = 0,
        cache_salt: str = "",
        add_special_tokens: bool = True,
    ) -> PreparedRequest:
        """Validate one request and cut it into sequences. Raises `RequestError` naming the field."""
        self.require("generate")
        text, token_ids = self.tokenize(prompt, add_special_tokens)
        max_tokens = self._max_tokens(len(token_ids), params)
        data = self._checked(token_ids, "prompt").tobytes()
        self._check_params(params)
        grammar = self.grammar(params)
        stop_ids = self._stop_ids(params)
        submits = tuple(
            Submit(
                handle=next(self._handles),
                prompt=data,
                sampling=self._row_sampling(params, stop_ids, seed, first=index == 0),
                max_tokens=max_tokens,
                stop_ids=stop_ids,
                eos_ids=self.eos_ids,
                priority=priority,
                cache_salt=cache_salt,
                grammar=grammar,
            )
            for index, seed in enumerate(self._seeds(params))
        )
        return PreparedRequest(text, token_ids, params, submits)

    def grammar(self, params: SamplingParams) -> str:
        """The checked grammar that the output has to fit, empty for none. Raises `RequestError`."""
        if params.structured_outputs is None:
            return ""
        if self.tokenizer is None or not self.info.token_masks:
            what = "platform cannot mask tokens" if self.tokenizer else "model has no tokenizer"
            raise RequestError(f"This {what}, so structured output cannot be enforced.", "structured_outputs")
        if self._grammars is None:
            from anychip.grammar.compiling import CheckedGrammars

            self._grammars = CheckedGrammars()
        return self._grammars.text(params.structured_outputs)

    def knows_grammar(self, params: SamplingParams) -> bool:
        """Whether `grammar` answers at once. Raises `RequestError`."""
        structured = params.structured_outputs
        return structured is None or (self._grammars is not None and self._grammars.knows(structured))

    def prepare_vector(
        self, texts: TokenizedTexts, text: str | None, *, priority: int = 0, cache_salt: str = ""
    ) -> PreparedRequest:
        """A request for the vector of one tokenized prompt. Raises `RequestError`."""
        self._max_tokens(len(texts.token_ids), _ONE_VECTOR)
        submit = Submit(
            handle=next(self._handles),
            prompt=self._checked(texts.token_ids, "prompt").tobytes(),
            sampling=RowSampling(seed=0),
            max_tokens=1,
            pool=True,
            second_text=texts.second,
            priority=priority,
            cache_salt=cache_salt,
        )
        return PreparedRequest(text, texts.token_ids, _ONE_VECTOR.replace(max_tokens=1), (submit,))

    def tokenize(self, prompt: Prompt, add_special_tokens: bool = True) -> tuple[str | None, list[int]]:
        """Text (if the prompt was text) and token ids of a prompt."""
        if isinstance(prompt, Mapping):
            if set(prompt) == {"prompt", "prompt_token_ids"}:
                return prompt["prompt"], prompt["prompt_token_ids"]
            prompt = self.unwrap(prompt)
        if not isinstance(prompt, str):
            return None, list(prompt)
        if self.tokenizer is None:
            raise RequestError("This model has no tokenizer, so it takes no text.", "prompt", "Send token ids instead.")
        return prompt, self.tokenizer.encode(prompt, add_special_tokens)

    def require(self, task: Task) -> None:
        """Raise `RequestError` unless the model was loaded for this task."""
        tasks = self.info.tasks
        if task not in tasks:
            raise RequestError(
                f"This model is loaded to {' and '.join(tasks)}, not to {task}.", "model", REMEDIES.get(task, "")
            )

    def unwrap(self, prompt: Mapping[str, Any]) -> str | Sequence[int]:
        """What a prompt given as a dict holds."""
        if set(prompt) == {"prompt"} or set(prompt) == {"prompt_token_ids"}:
            value: str | Sequence[int] = next(iter(prompt.values()))
            return value
        raise RequestError(
            f"A prompt given as a dict has the keys {sorted(prompt)}.",
            "prompt",
            "Give one of prompt, prompt_token_ids.",
        )

    def _checked(self, ids: Sequence[int], field: str) -> Int32:
        """The ids in an array. Raises `RequestError`."""
        if {*map(type, ids)} == {int}:  # a long prompt is looked through several times faster so
            array = np.array(ids)
            if array.min() >= 0 and array.max() < self.info.vocab_size:
                return array.astype(np.int32)
        for token in ids:
            if isinstance(token, bool) or not isinstance(token, int | np.integer):
                raise RequestError(f"{field} holds {token!r}, which is no token id.", field)
            if not 0 <= token < self.info.vocab_size:
                raise RequestError(
                    f"{field} holds the token id {token}; this model's ids are 0 to {self.info.vocab_size - 1}.", field
                )
        return np.array(ids, np.int32)

    def _max_tokens(self, length: int, params: SamplingParams) -> int:
        """Tokens that may be sampled after `length` of the prompt: max_tokens, or all that the context leaves."""
        if length == 0:
            raise RequestError(
                "The prompt is empty, and this model's tokenizer adds no beginning of sequence.",
                "prompt",
                "Send at least one token.",
            )
        limit = self.info.max_model_len
        if length >= limit and (params.max_tokens != 0 or length > limit):
            raise RequestError(
                f"This model's maximum context length is {limit} tokens, but the prompt has {length} tokens.",
                "prompt",
                f"Shorten the prompt, or start the server with a larger {self._limiting_flag}.",
            )
        if params.max_tokens is None:
            return limit - length
        if length + params.max_tokens > limit:
            raise RequestError(
                f"This model's maximum context length is {limit} tokens, but {length + params.max_tokens} were "
                f"requested: {length} in the prompt and {params.max_tokens} in max_tokens.",
                "max_tokens",
                "Shorten the prompt or lower max_tokens.",
            )
        return params.max_tokens

    @property
    def _limiting_flag(self) -> str:
        info = self.info
        by_step = info.whole_prompts and info.max_model_len == info.max_num_batched_tokens
        return "--max-num-batched-tokens, because this model computes a prompt whole" if by_step else "--max-model-len"

    def _check_params(self, params: SamplingParams) -> None:
        self._checked(params.stop_token_ids, "stop_token_ids")
        self._checked(params.allowed_token_ids or (), "allowed_token_ids")
        self._checked(tuple(params.logit_bias or ()), "logit_bias")
        if self.tokenizer is None:
            for field in ("stop", "bad_words"):
                if getattr(params, field):
                    raise RequestError(f"This model has no tokenizer, so {field} cannot be honoured.", field)

    def _stop_ids(self, params: SamplingParams) -> tuple[int, ...]:
        ends = () if params.ignore_eos else self.eos_ids
        return tuple(dict.fromkeys((*ends, *params.stop_token_ids)))

    def _seeds(self, params: SamplingParams) -> list[int]:
        """One 64-bit seed a choice; the first choice of a seeded request has the seed itself."""
        if params.seed is None:
            return [self._random.getrandbits(63) for _ in range(params.n)]
        return [params.seed, *(_derived_seed(params.seed, index) for index in range(1, params.n))]

    def _row_sampling(self, params: SamplingParams, stop_ids: tuple[int, ...], seed: int, first: bool) -> RowSampling:
        return RowSampling(
            seed=seed,
            temperature=float(params.temperature),
            top_p=float(params.top_p),
            top_k=params.top_k,
            min_p=float(params.min_p),
            presence_penalty=float(params.presence_penalty),
            frequency_penalty=float(params.frequency_penalty),
            repetition_penalty=float(params.repetition_penalty),
            min_tokens=params.min_tokens,
            stop_token_ids=stop_ids if params.min_tokens else (),
            bad_words=self._bad_words(params.bad_words),
            logit_bias=tuple((token, float(bias)) for token, bias in (params.logit_bias or {}).items()),
            allowed_token_ids=params.allowed_token_ids,
            logprobs=params.logprobs,
            prompt_logprobs=params.prompt_logprobs if first else None,
        )

    def _bad_words(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Token ids of each word, at the start of a text and after a space."""
        if not words:
            return ()
        assert self.tokenizer is not None, "checked before"
        spelled: dict[tuple[int, ...], None] = {}
        for word in words:
            for text in (word, " " + word.lstrip()):
                ids = tuple(self.tokenizer.encode(text, False))
                if ids:
                    spelled[ids] = None
        return tuple(spelled)


def model_tokenizer(config: EngineConfig, source: ModelSource) -> Tokenizer | None:
    """The tokenizer that the config names, else the model's own; None if it has none, or none is wanted."""
    if config.skip_tokenizer_init:
        return None
    return load_tokenizer(Path(config.tokenizer) if config.tokenizer else source.path, config.chat_template)


def _derived_seed(seed: int, index: int) -> int:
    digest = blake2b(f"{seed}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
