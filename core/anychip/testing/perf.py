"""How long each op takes as the platform binds it, against its reference on the same device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from anychip.errors import UserError
from anychip.ops.attention_cases import attention_cases, filled_cache
from anychip.ops.bind import bind
from anychip.ops.norm import EPSILON
from anychip.ops.op import Op, OpSpec
from anychip.ops.parts import Ops
from anychip.ops.registry import OPS
from anychip.ops.rope import rotation_table
from anychip.testing.compare import moved
from anychip.testing.op_checks import SEED
from anychip.testing.subject import Subject
from anychip.weights.weight import Weight

if TYPE_CHECKING:
    from anychip.runner.platform import TorchPlatform

CALLS = 20


@dataclass(frozen=True, slots=True)
class Timing:
    """Median microseconds of one call."""

    op: str
    dtype: str
    case: str
    bound: float
    reference: float


def timings(subject: Subject) -> Iterator[Timing]:
    """Time the largest case of each op in the platform's first dtype. Raises `UserError` without a torch device."""
    platform = subject.torch_platform
    if platform is None:
        raise UserError(f"{subject.device} brings its own runner, so there are no ops to time.")
    spec = OpSpec(  # the demo model's shapes, so that the numbers mean something
        dtype=platform.capabilities.dtypes[0],
        hidden_size=576,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        vocab_size=49152,
        intermediate_size=1536,
        block_size=platform.capabilities.block_sizes[0],
    )
    bound, reference = bind(platform.kernels(spec), spec), bind({}, spec)
    for op in OPS.values():
        label, own = _call(op, platform, spec, bound, prepared=True)
        _, plain = _call(op, platform, spec, reference, prepared=False)
        yield Timing(op.name, spec.dtype, label, _time(platform, own), _time(platform, plain))


def _call(op: Op, platform: TorchPlatform, spec: OpSpec, ops: Ops, prepared: bool) -> tuple[str, Callable[[], object]]:
    """The largest case of an op, ready to be called."""
    generator = torch.Generator().manual_seed(SEED)
    if op.family == "attention":
        return _attention_call(op, platform, spec, ops, generator)
    case = max(op.generate(generator, spec), key=lambda case: case.arguments[0].numel())
    arguments = [_on_device(value, platform, prepared) for value in case.arguments]
    return case.label, partial(getattr(ops, op.name), *arguments)


def _on_device(value: Any, platform: TorchPlatform, prepared: bool) -> Any:
    there = moved(value, platform.device)
    return platform.prepare_weight(there) if prepared and isinstance(there, Weight) else there


def _attention_call(
    op: Op, platform: TorchPlatform, spec: OpSpec, ops: Ops, generator: torch.Generator
) -> tuple[str, Callable[[], object]]:
    case = next(each for each in attention_cases(generator, spec) if each.label == "mixed").to(platform.device)
    cache, plan = filled_cache(ops, case)
    table = rotation_table(spec.head_dim, length=256).to(platform.device)
    block = torch.tensor([1], device=platform.device)
    arguments: dict[str, tuple[Any, ...]] = {
        "new_cache": (case.spec, case.num_blocks, case.block_size, platform.device),
        "copy_blocks": (cache, block, block + 1),
        "plan_attention": (case.inputs, case.spec, case.block_size),
        "kv_write": (case.k, case.v, cache, plan),
        "paged_attention": (case.q, cache, plan, case.scale),
        "qk_norm_rope_kv_write": (
            *(case.q, case.k, case.v, None, None, EPSILON),
            *(case.inputs.positions, table, cache, plan),
        ),
    }
    return case.label, partial(getattr(ops, op.name), *arguments[op.name])


def _time(platform: TorchPlatform, call: Callable[[], object]) -> float:
    times = []
    with torch.inference_mode():
        for _ in range(CALLS):
            platform.synchronize()
            begin = time.perf_counter()
            call()
            platform.synchronize()
            times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)
