"""The client's side of vectors: texts to requests, and vectors to what was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from anychip.engine.input import InputProcessor, PreparedRequest, Prompt
from anychip.errors import RequestError
from anychip.plugin.contract import ModelSource
from anychip.plugin.tasks import Task
from anychip.pooling_params import WHOLE_CONTEXT, PoolingParams
from anychip.text.truncate import FIELD, TokenizedTexts, cut, encode_texts

Vector = npt.NDArray[np.float32]
Activation = Literal["identity", "sigmoid", "softmax"]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts, or two prompts in token ids, that are to be scored."""

    first: Prompt
    second: Prompt


def as_pairs(first: str | Sequence[str], second: str | Sequence[str]) -> list[Pair]:
    """Each text with its counterpart; a single first one with each of the second. Raises `RequestError`."""
    left = [first] if isinstance(first, str) else list(first)
    right = [second] if isinstance(second, str) else list(second)
    if len(left) == 1:
        left = left * len(right)
    if len(left) != len(right) or not right:
        raise RequestError(
            f"{len(left)} texts cannot be scored with {len(right)}.",
            "text_2",
            "Give one text and any number of others, or two lists of equal length.",
        )
    return [Pair(one, other) for one, other in zip(left, right, strict=True)]


class VectorInputs:
    """Validates requests for vectors of one model, and finishes what comes back."""

    def __init__(self, source: ModelSource, inputs: InputProcessor) -> None:
        self.inputs = inputs
        self.info = inputs.info
        self._config = source.config
        self._files = source.sentence
        self.labels = _labels(source.config, self.info.vector_size)
        self._activation = _activation(source.config, self.info.vector_size)

    def prepare(
        self,
        prompt: Prompt | Pair,
        params: PoolingParams,
        task: Task,
        *,
        prompt_name: str | None = None,
        priority: int = 0,
        cache_salt: str = "",
        add_special_tokens: bool = True,
    ) -> PreparedRequest:
        """One request. Raises `RequestError` naming the field, also where the model cannot do `task`."""
        self.inputs.require(task)
        if task == "embed":
            self.check_dimensions(params.dimensions)
        elif params.dimensions is not None:
            raise RequestError("dimensions are those of an embedding.", "dimensions", "Leave it out.")
        limit = self._limit(params.truncate_prompt_tokens)
        prefix = self._prefix(prompt_name) if task == "embed" else ""
        text, texts = self._tokenize(prompt, prefix, limit, add_special_tokens)
        return self.inputs.prepare_vector(texts, text, priority=priority, cache_salt=cache_salt)

    def check_dimensions(self, dimensions: int | None) -> None:
        """Raise `RequestError` unless an embedding can be cut to this many values."""
        if dimensions is None:
            return
        size, known = self.info.vector_size, self._config.get("matryoshka_dimensions")
        if dimensions > size:
            raise RequestError(f"This model's embeddings have {size} dimensions, not {dimensions}.", "dimensions")
        if known and dimensions not in (*known, size):
            listed = ", ".join(str(one) for one in known)
            raise RequestError(f"This model was not made for {dimensions} dimensions.", "dimensions", f"Use {listed}.")

    def embedding(self, vector: Vector, params: PoolingParams) -> Vector:
        """The first `dimensions` values of a vector, then normalized where asked."""
        kept = vector[: params.dimensions]
        wanted = params.use_activation
        if wanted is None:
            wanted = self._files is None or self._files.normalize
        if not wanted:
            return kept
        length = float(np.linalg.norm(kept.astype(np.float64)))
        return kept / np.float32(length) if length > 0 else kept

    def activated(self, vector: Vector, params: PoolingParams) -> Vector:
        """A label's values as probabilities."""
        return vector if params.use_activation is False else _ACTIVATIONS[self._activation](vector)

    @property
    def plain_task(self) -> Task:
        """What the model makes of one text: an embedding, else its labels."""
        return "embed" if "embed" in self.info.tasks else "classify"

    @property
    def scores_pairs(self) -> bool:
        """Whether a pair is one prompt, as for a cross-encoder; else two embeddings are compared."""
        return "classify" in self.info.tasks

    def similarity(self, first: Vector, second: Vector) -> float:
        """How near two raw vectors are, by the measure that the model's files name."""
        kind = self._files.similarity if self._files is not None else "cosine"
        left, right = first.astype(np.float64), second.astype(np.float64)
        if kind == "dot":
            return float(left @ right)
        if kind == "euclidean":
            return -float(np.linalg.norm(left - right))
        if kind == "manhattan":
            return -float(np.abs(left - right).sum())
        if kind != "cosine":
            raise RequestError(f"The model's files compare by {kind!r}, which is not supported.", "model")
        lengths = float(np.linalg.norm(left) * np.linalg.norm(right))
        return float(left @ right) / lengths if lengths > 0 else 0.0

    def _limit(self, asked: int | None) -> int | None:
        longest = self.info.max_model_len
        if asked is not None and asked > longest:
            raise RequestError(
                f"{FIELD} {asked} exceeds the model's maximum context length of {longest} tokens.",
                FIELD,
                f"Use at most {longest}, or -1.",
            )
        return longest if asked == WHOLE_CONTEXT else asked

    def _prefix(self, name: str | None) -> str:
        """What the model's files put before a text."""
        prompts: Mapping[str, str] = self._files.prompts if self._files is not None else {}
        if name is None:
            name = self._files.default_prompt if self._files is not None else ""
            return prompts.get(name, "")
        if name not in prompts:
            listed = ", ".join(prompts) or "none"
            raise RequestError(f"This model has no prompt named {name!r}.", "prompt_name", f"It has: {listed}.")
        return prompts[name]

    def _tokenize(
        self, prompt: Prompt | Pair, prefix: str, limit: int | None, special: bool
    ) -> tuple[str | None, TokenizedTexts]:
        first, second = (prompt.first, prompt.second) if isinstance(prompt, Pair) else (prompt, None)
        first, second = self._unwrapped(first), None if second is None else self._unwrapped(second)
        tokenizer = self.inputs.tokenizer
        if isinstance(first, str) and (second is None or isinstance(second, str)):
            if tokenizer is None:
                raise RequestError("This model has no tokenizer, so it takes no text.", "prompt", "Send token ids.")
            texts = [None if text is None else self._text(prefix + text) for text in (first, second)]
            assert texts[0] is not None, "there is a first text"
            return first, encode_texts(tokenizer, texts[0], texts[1], limit, special)
        if second is not None:
            raise RequestError("A cross-encoder takes pairs of texts, not of token ids.", "prompt", "Send texts.")
        assert not isinstance(first, str), "texts were taken above"
        return None, TokenizedTexts(cut(list(first), limit))

    def _unwrapped(self, prompt: Prompt) -> str | Sequence[int]:
        return self.inputs.unwrap(prompt) if isinstance(prompt, Mapping) else prompt

    def _text(self, text: str) -> str:
        return text.lower() if self._files is not None and self._files.lower_case else text


def _sigmoid(values: Vector) -> Vector:
    wide = values.astype(np.float64)
    return (0.5 * (1.0 + np.tanh(0.5 * wide))).astype(np.float32)


def _softmax(values: Vector) -> Vector:
    raised = np.exp(values.astype(np.float64) - float(values.max()))
    shares: Vector = (raised / raised.sum()).astype(np.float32)
    return shares


def _identity(values: Vector) -> Vector:
    return values


_ACTIVATIONS = {"identity": _identity, "sigmoid": _sigmoid, "softmax": _softmax}


def _activation(config: Mapping[str, Any], labels: int) -> Activation:
    """What sentence-transformers wrote down, else what transformers' `problem_type` means."""
    stated = (config.get("sentence_transformers") or {}).get("activation_fn")
    stated = str(stated or config.get("sbert_ce_default_activation_function") or "").lower()
    for known in ("identity", "sigmoid", "softmax"):
        if stated.endswith(known):
            return known
    kind = config.get("problem_type")
    if kind == "regression":
        return "identity"
    return "sigmoid" if labels == 1 or kind == "multi_label_classification" else "softmax"


def _labels(config: Mapping[str, Any], count: int) -> list[str]:
    named = config.get("id2label") or {}
    return [str(named.get(str(index), f"LABEL_{index}")) for index in range(count)]
