"""Offline inference: `LLM` runs the engine in the caller's own process."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from anychip.config import EngineConfig, calm_own_threads, make_config
from anychip.engine.collect import Collected, Collector
from anychip.engine.engine import Engine
from anychip.engine.input import InputProcessor, PreparedRequest, Prompt, model_tokenizer
from anychip.engine.messages import Abort
from anychip.engine.model_files import default_sampling
from anychip.engine.outputs import (
    ClassificationOutput,
    Delta,
    EmbeddingOutput,
    Pooled,
    PooledRequestOutput,
    PoolingOutput,
    RequestOutput,
    ScoringOutput,
)
from anychip.engine.pooling import Pair, Vector, VectorInputs, as_pairs
from anychip.engine.results import Gathered
from anychip.errors import RequestError, UserError
from anychip.log import setup_logging
from anychip.plugin.tasks import Task
from anychip.pooling_params import PoolingParams
from anychip.progress import LoadProgress, RequestProgress
from anychip.sampling_params import SamplingParams

Message = Mapping[str, Any]


class LLM:
    """A model to generate with. Options are those of `EngineConfig`; an unknown one is a `UserError`.

    >>> with LLM(model="demo") as llm:
    ...     print(llm.generate("The capital of France is")[0].outputs[0].text)
    """

    def __init__(self, model: str = "demo", **options: Any) -> None:
        config = make_config({"model": model, **options})
        self._open(config)

    def _open(self, config: EngineConfig) -> None:
        calm_own_threads()
        if gc.get_freeze_count():  # a model that was dropped without `close` goes before the next one is loaded
            gc.unfreeze()
            gc.collect()
        setup_logging(config.log_level if "log_level" in config.origins else "warning", config.log_format)
        with LoadProgress() as progress:
            self.engine = Engine(config, progress)
        source = self.engine.source
        self.tokenizer = model_tokenizer(config, source)
        self._inputs = InputProcessor(source, self.tokenizer, self.engine.info, config.seed)
        self._vectors = VectorInputs(source, self._inputs)
        self._defaults = default_sampling(config, source)
        self._collector = Collector()
        self._count = 0
        self._closed = False
        self._turn = threading.Lock()
        gc.freeze()  # looking through all that was imported and loaded takes 0.1 s, in the middle of a step

    def get_default_sampling_params(self) -> SamplingParams:
        """Parameters with the model's own defaults."""
        return SamplingParams(**self._defaults)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Continue each prompt; outputs come in the prompts' order. `use_tqdm` shows a progress bar.

        A prompt is text, {"prompt": text}, {"prompt_token_ids": ids} or a list of ids. Raises `RequestError` before
        anything runs if any of them is wrong.
        """
        items = _as_list(prompts)
        return self._run(items, self._each(sampling_params, len(items)), priority, use_tqdm, add_special_tokens=True)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation, or several, through the model's chat template."""
        if self.tokenizer is None or self.tokenizer.chat is None:
            raise UserError("This model has no chat template.", "Give one with chat_template=, or use generate().")
        template = self.tokenizer.chat
        talks: list[Any] = [messages] if messages and isinstance(messages[0], Mapping) else list(messages)
        prompts: list[Prompt] = [
            template.render(
                talk,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                variables=chat_template_kwargs or {},
            )
            for talk in talks
        ]
        return self._run(prompts, self._each(sampling_params, len(prompts)), None, use_tqdm, add_special_tokens=False)

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling_params: PoolingParams | None = None,
        use_tqdm: bool = True,
        prompt_name: str | None = None,
    ) -> list[PooledRequestOutput[EmbeddingOutput]]:
        """The embedding of each text. `prompt_name` names one of the prefixes that the model's files give."""
        params = pooling_params or PoolingParams()
        found = self._pool(_as_list(prompts), params, "embed", use_tqdm, prompt_name)
        finish = self._vectors.embedding
        return [_pooled(one, EmbeddingOutput(finish(vector, params).tolist())) for one, vector in found]

    def classify(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling_params: PoolingParams | None = None,
        use_tqdm: bool = True,
    ) -> list[PooledRequestOutput[ClassificationOutput]]:
        """A probability for each of the model's labels, for each text."""
        params = pooling_params or PoolingParams()
        found = self._pool(_as_list(prompts), params, "classify", use_tqdm)
        finish = self._vectors.activated
        return [_pooled(one, ClassificationOutput(finish(vector, params).tolist())) for one, vector in found]

    def score(
        self,
        data_1: str | Sequence[str],
        data_2: str | Sequence[str],
        pooling_params: PoolingParams | None = None,
        use_tqdm: bool = True,
    ) -> list[PooledRequestOutput[ScoringOutput]]:
        """How well texts go together: one with each of `data_2`, or each with its counterpart."""
        params = pooling_params or PoolingParams()
        pairs = as_pairs(data_1, data_2)
        if self._vectors.scores_pairs:
            found = self._pool(pairs, params, "score", use_tqdm)
            finish = self._vectors.activated
            return [_pooled(one, ScoringOutput(float(finish(vector, params)[0]))) for one, vector in found]
        found = self._pool([each for pair in pairs for each in (pair.first, pair.second)], params, "score", use_tqdm)
        similar = self._vectors.similarity
        return [
            _pooled(two, ScoringOutput(similar(left, right)))
            for (_, left), (two, right) in zip(found[::2], found[1::2], strict=True)
        ]

    def encode(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling_params: PoolingParams | None = None,
        use_tqdm: bool = True,
    ) -> list[PooledRequestOutput[PoolingOutput]]:
        """What the model makes of each text: an embedding, or its labels' values."""
        params = pooling_params or PoolingParams()
        task = self._vectors.plain_task
        finish = self._vectors.embedding if task == "embed" else self._vectors.activated
        found = self._pool(_as_list(prompts), params, task, use_tqdm)
        return [_pooled(one, PoolingOutput(finish(vector, params))) for one, vector in found]

    def close(self) -> None:
        """Give back the device; harmless when done before."""
        with self._turn:
            if not self._closed:
                self._closed = True
                self.engine.close()
                gc.unfreeze()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _each(self, params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
        if params is None or isinstance(params, SamplingParams):
            return [params or self.get_default_sampling_params()] * count
        if len(params) != count:
            raise RequestError(f"{count} prompts came with {len(params)} sampling_params.", "sampling_params")
        return list(params)

    def _pool(
        self,
        prompts: Sequence[Prompt | Pair],
        params: PoolingParams,
        task: Task,
        show: bool,
        prompt_name: str | None = None,
    ) -> list[tuple[Collected, Vector]]:
        """A raw vector for each prompt."""
        vectors: dict[Collected, Vector] = {}

        def take(collected: Collected, delta: Delta) -> None:
            if delta.vector is None:
                raise RequestError(delta.error or "The request was aborted.")
            vectors[collected] = delta.vector

        with self._taking_turns():
            prepared = [self._vectors.prepare(prompt, params, task, prompt_name=prompt_name) for prompt in prompts]
            requests = self._collect(prepared)
            self._drive(requests, take, show)
        return [(collected, vectors[collected]) for collected in requests]

    @contextmanager
    def _taking_turns(self) -> Iterator[None]:
        """One thread at a time drives the engine. Raises `UserError` where it was closed."""
        with self._turn:
            if self._closed:
                raise UserError("This LLM was closed.", "Make a new one.")
            yield

    def _collect(self, prepared: Sequence[PreparedRequest]) -> list[Collected]:
        """Requests with their numbers."""
        requests = [Collected(str(self._count + place), ready, self.tokenizer) for place, ready in enumerate(prepared)]
        self._count += len(requests)
        return requests

    def _run(
        self,
        prompts: list[Prompt],
        params: list[SamplingParams],
        priority: Sequence[int] | None,
        show: bool,
        add_special_tokens: bool,
    ) -> list[RequestOutput]:
        if priority is not None and len(priority) != len(prompts):
            raise RequestError(f"{len(prompts)} prompts came with {len(priority)} priorities.", "priority")
        with self._taking_turns():
            prepared = [
                self._inputs.prepare(prompt, each, priority=rank, add_special_tokens=add_special_tokens)
                for prompt, each, rank in zip(prompts, params, priority or [0] * len(prompts), strict=True)
            ]
            requests = self._collect(prepared)
            gathered = {collected: Gathered(collected) for collected in requests}
            self._drive(requests, lambda collected, delta: gathered[collected].add(delta), show)
        return [gathered[collected].output() for collected in requests]

    def _drive(self, requests: list[Collected], take: Callable[[Collected, Delta], None], show: bool) -> None:
        """Run requests to their ends; nothing is left running, also when the caller was interrupted."""
        try:
            self._step_until_done(requests, take, show)
        finally:
            self._abandon(requests)

    def _step_until_done(self, requests: list[Collected], take: Callable[[Collected, Delta], None], show: bool) -> None:
        for collected in requests:
            self._collector.open(collected)
            for submit in collected.prepared.submits:
                self.engine.handle(submit)
        with RequestProgress(len(requests), show) as progress:
            while len(self._collector):
                for outputs in self.engine.step():
                    touched, stopped = self._collector.collect(outputs)
                    if stopped:
                        self.engine.handle(Abort(stopped))
                    for collected in touched:
                        deltas = collected.take()
                        for delta in deltas:
                            take(collected, delta)
                        progress.advance(sum(len(delta.token_ids) for delta in deltas), collected.open == 0)

    def _abandon(self, requests: list[Collected]) -> None:
        left = tuple(handle for collected in requests for handle in self._collector.close(collected))
        if left:
            self.engine.handle(Abort(left))
        while self.engine.has_work:
            self.engine.step()


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str | Mapping):
        return [prompts]
    items: list[Any] = list(prompts)
    return [items] if items and isinstance(items[0], int) else items


def _pooled(collected: Collected, outputs: Pooled) -> PooledRequestOutput[Pooled]:
    prompt = collected.prepared.token_ids
    return PooledRequestOutput(collected.request_id, outputs, prompt, collected.num_cached_tokens)
