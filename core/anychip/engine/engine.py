"""The engine: one model on one platform, driven a step at a time by whoever owns it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace

from anychip.config import EngineConfig
from anychip.engine.assemble import StepRecord
from anychip.engine.batch import StepResult
from anychip.engine.constrain import Constrained
from anychip.engine.locate import locate_model, with_plugin_class
from anychip.engine.messages import Abort, EngineInfo, Prepared, ResetPrefixCache, StepOutputs, Submit
from anychip.engine.opening import OpenedDevice, open_device
from anychip.engine.policy import Policy
from anychip.engine.scheduler import Scheduler
from anychip.engine.sizing import check_attention, check_task, plan_cache, resolve_config
from anychip.engine.task import model_task
from anychip.log import logger
from anychip.plugin.contract import Capabilities, KVPlan, ModelInfo, Pending, Progress, Runner
from anychip.plugin.signatures import check_members

WAIT_SECONDS = 0.005
"""How long a step that has nothing to do waits for a grammar that is being compiled."""


class Engine:
    """Loads a model and steps it. Not thread-safe; two of them may live in one process.

    Raises `UserError` for what the user can fix: no such device, no such model, too little memory.
    """

    def __init__(self, config: EngineConfig, progress: Progress, early: OpenedDevice | None = None) -> None:
        """`early` is a device that was opened for a config like this one, and is taken if it still suits."""
        opened = early.with_model(config) if early is not None else None
        opened = opened or open_device(config)
        registry, chosen, platform, phases = opened.registry, opened.chosen, opened.platform, opened.phases
        config = resolve_config(opened.config, platform.capabilities)
        self.source = with_plugin_class(locate_model(config, progress), registry.models)
        phases.end("model files")
        self.runner: Runner = platform.runner(config)
        check_members(self.runner, f"Platform {chosen.found.spec.name!r}")
        try:
            model = self.runner.load(self.source, progress)
            check_attention(model, platform.capabilities)
            check_task(model, model_task(config, self.source))
            phases.end("weights")
            plan = plan_cache(model, self.runner.measure(), config)
            phases.end("worst step")
            self.runner.start(plan)
            phases.end("cache and first step")
        except BaseException:
            self.runner.close()
            raise
        config = _without_reuse(config, plan) if model.pools_all else config
        policy = Policy(config.enable_prefix_caching, config.scheduling_policy == "priority", model.whole_prompts)
        assert config.steps_in_flight, "the config is unresolved"
        self._ahead = config.steps_in_flight - 1
        policy = replace(policy, ahead=self._ahead)
        self.scheduler = Scheduler(plan, policy)
        self.config = config
        device = f"{chosen.found.spec.name}:{chosen.index}"
        self.info = _info(config, model, plan, device, platform.capabilities, self.runner.compilations())
        logger.info("the engine is ready after %s", phases)
        self._under_way: deque[tuple[StepRecord, Pending[StepResult]]] = deque()
        self._prepared = Prepared()
        self._constrained = Constrained(config, self.source, model.vocab_size, self.scheduler)

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._under_way) or self.scheduler.has_work

    def handle(self, message: Submit | Abort | ResetPrefixCache) -> None:
        """Take in a client's message."""
        match message:
            case Submit():
                self.scheduler.add(message, self._constrained.follower(message))
            case Abort():
                self.scheduler.abort(message.handles)
            case ResetPrefixCache():
                self.scheduler.reset_prefix_cache()

    def step(self) -> list[StepOutputs]:
        """Submit the next step, and commit the oldest of those under way; returns messages for clients, in order.

        With nothing to schedule, one of those under way is committed.
        """
        outputs: list[StepOutputs] = []
        scheduled = self.scheduler.schedule()
        if scheduled is None:
            self._commit_down_to(len(self._under_way) - 1, outputs)
        else:
            batch, record = scheduled
            step = self.runner.submit(batch)
            self._commit_down_to(self._ahead - 1, outputs)
            self._under_way.append((record, step.finish(self._constrained.late(record))))
            self._commit_down_to(self._ahead, outputs)
        if not outputs and (report := self.scheduler.report()):
            outputs.append(report)
        if scheduled is None and not outputs:
            self._constrained.wait(WAIT_SECONDS)
        return outputs

    def warm_up(self) -> None:
        """Do ahead what the first request of some kind would have to wait for; call it when idle."""
        if self.info.token_masks:
            self._constrained.warm_up()

    def prepare(self) -> Prepared | None:
        """Make one more thing that a step to come would wait for; None where nothing is left. Call it when idle."""
        began, before = time.monotonic(), self._prepared
        if not self.runner.prepare():
            if before.count:
                logger.info("prepared while idle: %d shapes of steps, in %.1f s", before.count, before.seconds)
            return None
        self._prepared = Prepared(before.count + 1, before.seconds + time.monotonic() - began)
        return self._prepared

    def check_integrity(self) -> None:
        """Recount every row and block; call it when idle."""
        self.scheduler.check_integrity()

    def close(self) -> None:
        """End the runner, which gives the device's memory back."""
        self._under_way.clear()
        self._constrained.close()
        self.runner.close()

    def _commit_down_to(self, count: int, outputs: list[StepOutputs]) -> None:
        while len(self._under_way) > max(count, 0):
            record, pending = self._under_way.popleft()
            outputs.append(self.scheduler.commit(record, pending.result()))


def _without_reuse(config: EngineConfig, plan: KVPlan) -> EngineConfig:
    """`config` without prefix caching, for a model whose vectors need every token computed."""
    if config.enable_prefix_caching and plan.groups:
        logger.info("Prefix caching is off: a vector of this model needs every token of its prompt computed")
    return config.replace("model", enable_prefix_caching=False)


def _info(
    config: EngineConfig,
    model: ModelInfo,
    plan: KVPlan,
    device: str,
    capabilities: Capabilities,
    compilations: int,
) -> EngineInfo:
    for note in model.notes:
        logger.info("%s", note)
    if compilations:
        logger.info("%d programs were compiled for the shapes of steps; none is while serving", compilations)
    blocks = min((group.num_blocks for group in plan.groups), default=0)
    if plan.groups:
        _describe_cache(plan, blocks)
    return EngineInfo(
        max_model_len=plan.max_model_len,
        vocab_size=model.vocab_size,
        num_blocks=blocks,
        block_size=plan.block_size,
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        dtype=model.dtype,
        device=device,
        kv_cache_bytes=plan.bytes,
        weight_bytes=model.weight_bytes,
        prefix_caching=config.enable_prefix_caching,
        tasks=model.tasks,
        token_masks=capabilities.token_masks,
        vector_size=model.vector_size,
        whole_prompts=model.whole_prompts,
        notes=model.notes,
        ops=model.ops,
        compilations=compilations,
    )


def _describe_cache(plan: KVPlan, blocks: int) -> None:
    logger.info(
        "KV cache: %d blocks of %d tokens, %.0f MiB; up to %d tokens a sequence, %.1f sequences of full length",
        blocks,
        plan.block_size,
        plan.bytes / 2**20,
        plan.max_model_len,
        blocks * plan.block_size / plan.max_model_len,
    )
