"""Filling in what the user left open, and dividing memory into KV blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anychip.config import EngineConfig
from anychip.errors import UserError
from anychip.plugin.contract import Capabilities, KVGroup, KVPlan, KVSpec, Memory, ModelInfo
from anychip.plugin.tasks import Task
from anychip.weights.scheme import scheme_of

MEBIBYTE = 2**20


def resolve_config(config: EngineConfig, capabilities: Capabilities) -> EngineConfig:
    """`config` with every None that a platform decides filled in; raises `UserError` for what it cannot do."""
    _require(config.block_size, capabilities.block_sizes, "block size", "--block-size")
    dtype = None if config.dtype == "auto" else config.dtype
    _require(dtype, capabilities.dtypes, "dtype", "--dtype")
    _require(config.kv_cache_dtype, ("auto", *capabilities.kv_cache_dtypes), "KV cache of type", "--kv-cache-dtype")
    _require(config.runtime, ("auto", *capabilities.runtimes), "runtime", "--runtime")
    scheme_of(config)
    if (config.steps_in_flight or 1) > capabilities.steps_in_flight:
        raise UserError(
            f"This platform takes {capabilities.steps_in_flight} steps in flight, not {config.steps_in_flight}.",
            "Leave --steps-in-flight out.",
        )
    chosen = {
        "block_size": config.block_size or capabilities.block_sizes[0],
        "steps_in_flight": config.steps_in_flight or capabilities.steps_in_flight,
        "max_num_batched_tokens": config.max_num_batched_tokens or capabilities.batched_tokens,
        "max_num_seqs": config.max_num_seqs or capabilities.max_num_seqs,
        "memory_utilization": config.memory_utilization or capabilities.memory_utilization,
    }
    return config.replace(
        "platform", **{name: value for name, value in chosen.items() if getattr(config, name) != value}
    )


def check_attention(info: ModelInfo, capabilities: Capabilities) -> None:
    """Raise `UserError` if a layer needs a kind of attention that the platform lacks."""
    missing = sorted({spec.kind for spec in info.kv_specs} - {*capabilities.attention_kinds, "none"})
    if missing:
        raise UserError(
            f"This platform has no {missing[0]} attention, which the model needs.", "Choose another --device."
        )


def check_task(info: ModelInfo, task: Task) -> None:
    """Raise `UserError` if a runner loaded the model for something else than `task`."""
    if task not in info.tasks:
        raise UserError(
            f"This platform runs the model to {' and '.join(info.tasks)}, not to {task}.", "Choose another --device."
        )


def plan_cache(info: ModelInfo, memory: Memory, config: EngineConfig) -> KVPlan:
    """How many blocks each KV group gets, and the longest sequence they hold.

    `memory` is what was left after the worst step. Raises `UserError` saying what would fit and which flag to change.
    """
    assert config.block_size and config.max_num_batched_tokens and config.memory_utilization, "the config is unresolved"
    assert config.max_num_seqs, "the config is unresolved"
    groups = group_layers(info.kv_specs)
    plan = KVPlan(
        groups=(),
        block_size=config.block_size,
        max_num_seqs=config.max_num_seqs,
        max_model_len=_longest(info, config.max_model_len, config.max_num_batched_tokens),
        max_num_batched_tokens=config.max_num_batched_tokens,
    )
    block_bytes = plan.block_size * sum(spec.bytes_per_token * len(layers) for spec, layers in groups)
    budget = config.kv_cache_memory_bytes or int(memory.free * config.memory_utilization)
    blocks = _count_blocks(budget, block_bytes, plan)
    fitting = (blocks - 1) * plan.block_size
    if fitting < plan.max_model_len:
        _check_may_shorten(plan, fitting, block_bytes, budget, asked=config.max_model_len is not None)
        plan = replace(plan, max_model_len=fitting)
    return replace(plan, groups=tuple(KVGroup(spec, layers, blocks) for spec, layers in groups))


def _longest(info: ModelInfo, asked: int | None, budget: int) -> int:
    """Most tokens of a sequence, memory apart. `asked`: --max-model-len; `budget`: tokens of a step."""
    if asked and asked > info.max_model_len:
        raise UserError(
            f"--max-model-len {asked} exceeds the {info.max_model_len} positions of the model.",
            f"Use --max-model-len {info.max_model_len} or less.",
        )
    longest = asked or info.max_model_len
    if not info.whole_prompts or longest <= budget:
        return longest
    if asked:
        raise UserError(
            f"A prompt of {asked} tokens does not fit in a step of {budget}, and this model computes a prompt whole.",
            f"Use --max-num-batched-tokens {asked}, or a smaller --max-model-len.",
        )
    return budget


def group_layers(specs: Sequence[KVSpec]) -> list[tuple[KVSpec, tuple[int, ...]]]:
    """Layers with equal specs together, in the order of their first layer; layers that cache nothing are left out."""
    groups: dict[KVSpec, list[int]] = {}
    for layer, spec in enumerate(specs):
        if spec.kind != "none":
            groups.setdefault(spec, []).append(layer)
    return [(spec, tuple(layers)) for spec, layers in groups.items()]


def _count_blocks(budget: int, block_bytes: int, plan: KVPlan) -> int:
    """Blocks the budget pays for, but no more than all rows at full length could use; one is the null block."""
    useful = plan.max_num_seqs * -(-plan.max_model_len // plan.block_size) + 1
    return useful if block_bytes == 0 else min(budget // block_bytes, useful)


def _check_may_shorten(plan: KVPlan, fitting: int, block_bytes: int, budget: int, asked: bool) -> None:
    """Raise `UserError` unless sequences may be shortened to the `fitting` tokens that the budget's blocks hold.

    They may not if their length was asked for, or if not even a block of tokens fits.
    """
    needed = (-(-plan.max_model_len // plan.block_size) + 1) * block_bytes
    what = (
        f"A sequence of {plan.max_model_len} tokens needs {show_size(needed)} of KV cache; "
        f"{show_size(budget)} are left, which hold {max(fitting, 0)} tokens."
    )
    if fitting < plan.block_size:
        raise UserError(
            what,
            "Free memory, raise --kv-cache-memory-bytes or --memory-utilization, or lower --max-num-batched-tokens or "
            "--max-num-seqs.",
        )
    if asked:
        raise UserError(
            what, f"Use --max-model-len {fitting}, or raise --kv-cache-memory-bytes or --memory-utilization."
        )


def show_size(count: int) -> str:
    """Bytes for a person."""
    return f"{count / MEBIBYTE:.0f} MiB" if count >= MEBIBYTE else f"{count} bytes"


def _require(value: object, choices: Sequence[object], what: str, flag: str) -> None:
    if value is not None and value not in choices:
        listed = ", ".join(str(choice) for choice in choices) or "none"
        raise UserError(f"This platform has no {what} {value}.", f"{flag} can be: {listed}.")
