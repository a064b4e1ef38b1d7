"""The default runner: one model on one torch device, a step at a time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from anychip.config import EngineConfig
from anychip.engine.batch import Batch, BlockCopy
from anychip.models.loading import load_weights
from anychip.models.model import Model
from anychip.models.pooled import PooledModel
from anychip.models.step import StepContext
from anychip.ops.bind import describe
from anychip.ops.parts import Ops
from anychip.ops.shapes import dtype_of
from anychip.plugin.contract import KVPlan, Memory, ModelInfo, ModelSource, Pending, Progress, Runner, Step
from anychip.runner.host_memory import give_back_heap
from anychip.runner.inputs import Computed, DeviceBatch, RunBatch, Wanted, uploading
from anychip.runner.loading import build_model, dequantized_note, lower_model, model_bytes, weight_stream
from anychip.runner.pooler import Pooler, TextStarts
from anychip.runner.preparation import Preparation
from anychip.runner.prepared import LikelySteps
from anychip.runner.shortage import cache_too_large, fitting, runs_out, step_too_large, weights_too_large
from anychip.runner.step import EmptyStep, Launched, TorchStep
from anychip.runner.warmup import first_batch, worst_batch, worst_plan
from anychip.sample.logit_ops import LogitOps, ReferenceLogitOps
from anychip.sample.op import SampleOps
from anychip.sample.sampler import Sampler
from anychip.sample.state import SamplerState, most_bytes
from anychip.weights.scheme import scheme_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from anychip.runner.platform import TorchPlatform


class TorchRunner(Runner):
    """Runs on a `TorchPlatform`. Calls come in the order load, measure, start, then steps, from one thread."""

    def __init__(self, platform: TorchPlatform, config: EngineConfig) -> None:
        self.platform = platform
        self.config = config
        self._model: Model | None = None
        self._ops: Ops | None = None
        self._plan: KVPlan | None = None
        self._caches: tuple[Any, ...] = ()
        self._run: RunBatch | None = None
        self._sampler: Sampler | None = None
        self._pooler: Pooler | None = None
        self._texts: TextStarts | None = None
        self._last_tokens = torch.zeros(0, dtype=torch.int32)
        self._dtype = torch.float32
        self._likely: LikelySteps | None = None
        self._last_step: TorchStep | None = None
        self._again: Launched | None = None
        """Runs the last step's batch again, where there is a quicker way than the first."""

    @property
    def model(self) -> Model:
        """The loaded model."""
        assert self._model is not None, "load() comes first"
        return self._model

    @property
    def ops(self) -> Ops:
        """The ops that the model was built with."""
        assert self._ops is not None, "load() comes first"
        return self._ops

    @torch.inference_mode()
    def load(self, source: ModelSource, progress: Progress) -> ModelInfo:
        """See `Runner.load`."""
        model, ops, spec = build_model(self.platform, self.config, source)
        device, dtype = self._workplace, dtype_of(spec.dtype)
        self._dtype = dtype
        expected, free = model_bytes(model), self.platform.memory().free
        prepare = Preparation(self.platform, scheme_of(self.config), dtype)
        stream = weight_stream(model, self.config, source, spec, device, progress)
        if runs_out(lambda: load_weights(model, stream, device, prepare)):
            raise weights_too_large(expected, free)
        self._model, self._ops = lower_model(self.platform, model, spec), ops
        give_back_heap()
        lost = "" if self.config.quantization else dequantized_note(source, spec)
        notes = (*self.platform.notes(), prepare.note(), lost, describe(ops))
        pooled = self._pooled_model
        return ModelInfo(
            kv_specs=model.kv_specs,
            vocab_size=model.vocab_size,
            max_model_len=model.max_model_len,
            weight_bytes=expected - prepare.saved,
            dtype=spec.dtype,
            notes=tuple(note for note in notes if note),
            ops=tuple((one.op, one.kind, "; ".join(one.reasons)) for one in ops.bindings),
            tasks=pooled.tasks if pooled else ("generate",),
            vector_size=pooled.vector_size if pooled else 0,
            pools_all=pooled is not None and pooled.pooling != "last",
        )

    @property
    def _workplace(self) -> torch.device:
        """Where weights are assembled and tokens sampled: the platform's device, unless a subclass prefers the host."""
        return self.platform.device

    @property
    def _choice(self) -> SampleOps:
        """The sampling ops of that place."""
        return self.ops

    @property
    def _logit_ops(self) -> LogitOps:
        """The ops that edit and score logits there: the references, if it is not the platform's device."""
        return self.ops if self._workplace == self.platform.device else ReferenceLogitOps()

    @property
    def _pooled_model(self) -> PooledModel | None:
        return self.model if isinstance(self.model, PooledModel) else None

    def measure(self) -> Memory:
        """See `Runner.measure`."""
        tokens = self.config.max_num_batched_tokens or self.platform.capabilities.batched_tokens
        rows = self.config.max_num_seqs or self.platform.capabilities.max_num_seqs
        free = self.platform.memory().free
        if not self._fits(tokens, rows):
            raise step_too_large(tokens, rows, fitting(self._fits, tokens, rows), free)
        give_back_heap()
        memory = self.platform.memory()
        samples_there = self._pooled_model is None and self._workplace == self.platform.device
        asked = most_bytes(rows, self.model.vocab_size) if samples_there else 0
        return Memory(max(0, memory.free - asked), memory.total)

    def _fits(self, tokens: int, rows: int) -> bool:
        fits = not runs_out(partial(self._run_worst, tokens, rows))
        self._release()
        return fits

    def _run_worst(self, tokens: int, rows: int) -> None:
        longest = min(self.config.max_model_len or self.model.max_model_len, self.model.max_model_len)
        block_size = self.config.block_size or self.platform.capabilities.block_sizes[0]
        plan = worst_plan(self.model.kv_specs, block_size, rows, tokens, longest)
        self._prepare(plan)
        self.submit(worst_batch(plan, self._pooler is not None)).finish().result()
        self.platform.synchronize()

    def start(self, plan: KVPlan) -> None:
        """See `Runner.start`."""
        if runs_out(lambda: self._start(plan)):
            self._release()
            free = int(self.platform.memory().free * (self.config.memory_utilization or 1))
            raise cache_too_large(plan.bytes, min(free, plan.bytes * 3 // 4))

    def _start(self, plan: KVPlan) -> None:
        self._prepare(plan)
        with torch.inference_mode():
            if self._pooler is None:
                self._run = self.platform.compile(self._forward, plan)
                self._likely = LikelySteps(self._run, plan, self.platform.memory)
        self.submit(first_batch(plan, self._pooler is not None)).finish().result()
        self.platform.synchronize()
        self._reset_rows(plan)

    def prepare(self) -> bool:
        """See `Runner.prepare`."""
        return self._likely is not None and self._likely.prepare_next()

    def submit(self, batch: Batch) -> Step:
        """See `Runner.submit`."""
        last = self._last_step
        assert last is None or last.finished, "the step before was not finished"
        if last is None or batch is not last.batch:
            return self._begin(batch)
        last.launch_again(self._again or self._launch_as_before(batch, last.greedy))
        return last

    @torch.inference_mode()
    def _begin(self, batch: Batch) -> Step:
        """Submit another batch than the last one."""
        assert self._sampler is not None and self._run is not None, "start() comes first"
        self._sampler.state.retire(batch.retired)
        self._sampler.state.admit(batch.admitted)
        if self._texts is not None:
            self._texts.admit(batch.admitted)
        if batch.block_copies:
            self._copy_blocks(batch.block_copies)
        if batch.num_tokens == 0:
            return EmptyStep()
        wanted = Wanted.of(batch)
        rows = wanted.sampled_rows
        launched = self._launch(batch, len(rows) > 0 and self._sampler.takes_highest(rows))
        sampling = self._sampler.plan(rows) if len(rows) else None  # what it sends travels while the device computes
        step = TorchStep(batch, launched, wanted, sampling, self._logits, self._sampler, self._fetch, self._pooler)
        self._last_step = step
        return step

    def _launch(self, batch: Batch, greedy: bool) -> Launched:
        """Start the forward pass of a batch; `greedy`: every row that samples takes its highest logit, as it is."""
        assert self._run is not None, "start() comes first"
        computed = self._run(batch, greedy)
        self._again = computed.again
        return lambda masked: computed

    @torch.inference_mode()
    def _launch_as_before(self, batch: Batch, greedy: bool) -> Launched:
        return self._launch(batch, greedy)

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[M, V] of hidden states [M, H]."""
        return self.model.logits(hidden)

    def _send(self, array: npt.NDArray[Any], out: torch.Tensor | None = None) -> torch.Tensor:
        """Copy an array to where tokens are sampled."""
        return self.platform.send(array, out)

    def _fetch(self, tensor: torch.Tensor) -> Pending[npt.NDArray[Any]]:
        """Start copying a tensor from there to the host."""
        return self.platform.fetch(tensor)

    def close(self) -> None:
        """See `Runner.close`."""
        self._release()
        self._model = self._ops = None

    def _forward(self, inputs: DeviceBatch) -> Computed:
        """Fill in tokens that are only on the device, run the model, take logits; with `greedy` also choose tokens."""
        token_ids = self._filled(inputs) if inputs.pending else inputs.token_ids
        hidden = self._run_model(token_ids, inputs)
        if not len(inputs.sampled_at):
            return Computed(inputs, hidden, None, None)
        whole = len(hidden) == len(inputs.sampled_at)
        selected = hidden if whole else self.ops.embedding(inputs.sampled_at, hidden)
        if inputs.deferred and not inputs.greedy:
            return Computed(inputs, hidden, selected=selected)
        logits = self.model.logits(selected)
        chosen = self._choose(logits, inputs) if inputs.greedy else None
        return Computed(inputs, hidden, logits, chosen, selected=selected)

    def _filled(self, inputs: DeviceBatch) -> torch.Tensor:
        """[T] token ids, each row's newest from its last sample where the host has not seen it."""
        single = inputs.rows.shape == inputs.token_ids.shape
        newest = inputs.token_ids if single else inputs.token_ids[inputs.newest]
        newest = torch.where(newest < 0, self._last_tokens.index_select(0, inputs.rows), newest)
        return newest if single else inputs.token_ids.index_copy(0, inputs.newest.long(), newest)

    def _choose(self, logits: torch.Tensor, inputs: DeviceBatch) -> torch.Tensor:
        """[S] the highest logit's token of each row, which becomes its newest."""
        return self.ops.take_highest(logits, inputs.sampled_rows, self._last_tokens)

    def _run_model(self, token_ids: torch.Tensor, inputs: DeviceBatch) -> torch.Tensor:
        """Hidden states [T, H], or of the wanted tokens only; attention is planned once for each KV group."""
        assert self._plan is not None, "start() comes first"
        plans: list[Any] = [None] * len(self.model.kv_specs)
        for group, attention in zip(self._plan.groups, inputs.groups, strict=True):
            plan = self.ops.plan_attention(attention, group.spec, self._plan.block_size)
            for layer in group.layers:
                plans[layer] = plan
        text_ids = inputs.text_ids
        if self._texts is not None and text_ids is None:
            text_ids = self._texts.text_ids(inputs)
        wanted = None if self._pooler is not None else inputs.wanted_at
        context = StepContext(inputs.positions, tuple(plans), self._caches, inputs.ragged, wanted, text_ids)
        hidden: torch.Tensor = self.model(token_ids, inputs.positions, context)
        return hidden

    @torch.inference_mode()
    def _prepare(self, plan: KVPlan) -> None:
        self._plan = plan
        self._caches = self.platform.allocate_kv(plan, self.ops)
        # One row more than there are: the padding of a captured batch is noted there.
        self._last_tokens = torch.zeros(plan.max_num_seqs + 1, dtype=torch.int32, device=self._workplace)
        self._run = uploading(self._forward, self.platform.send)
        self._reset_rows(plan)

    @torch.inference_mode()
    def _reset_rows(self, plan: KVPlan) -> None:
        state = SamplerState(plan.max_num_seqs, self.model.vocab_size, self._workplace, self._send)
        self._sampler = Sampler(state, self._choice, self._logit_ops, self._last_tokens)
        self._last_tokens.zero_()
        model = self._pooled_model
        if model is not None:
            self._pooler = Pooler(model, plan.max_num_seqs, self._workplace)
            self._texts = TextStarts(plan.max_num_seqs, self._send) if model.tells_texts_apart else None
        self._last_step = None

    def _release(self) -> None:
        self._caches, self._plan, self._sampler, self._last_step, self._run = (), None, None, None, None
        self._pooler = self._texts = self._again = self._likely = None

    def _copy_blocks(self, copies: tuple[BlockCopy, ...]) -> None:
        assert self._plan is not None, "start() comes first"
        for number, group in enumerate(self._plan.groups):
            pairs = [(copy.source, copy.target) for copy in copies if copy.group == number]
            if pairs:
                source, target = self.platform.send(np.array(pairs, np.int64)).unbind(1)
                for layer in group.layers:
                    self.ops.copy_blocks(self._caches[layer], source, target)
