"""Model shapes that every op is tried on: each ratio of query to cached heads, unusual head sizes, block sizes."""

from __future__ import annotations

from dataclasses import replace

from anychip.ops.op import OpSpec

# (heads, cached heads, head size, block size, windows, softcap, sinks, experts, experts a token)
_SHAPES = (
    (4, 4, 32, 16, (), False, False, 0, 0),
    (9, 3, 64, 16, (24,), False, False, 6, 1),
    (8, 2, 80, 32, (1, 70), True, False, 16, 4),
    (8, 1, 16, 8, (5,), False, True, 0, 0),
)


_HEADS, _FEW_HEADS = (128, 8), (2, 1)
_SIZES = (128, 64, 256)


def large_specs(
    dtype: str, block_sizes: tuple[int, ...], kv_dtypes: tuple[str, ...]
) -> tuple[tuple[OpSpec, ...], tuple[OpSpec, ...]]:
    """What decides how much work is attended: head sizes, block sizes and types of cache of models with many heads.

    Then block sizes and types of cache of models with few heads, for long prompts.
    """
    first, *others = block_sizes
    many = [_plain(dtype, _HEADS, dim, first) for dim in _SIZES]
    many += [_plain(dtype, _HEADS, _SIZES[0], size) for size in others]
    few = [_plain(dtype, _FEW_HEADS, 64, size) for size in block_sizes]
    many += [replace(many[0], kv_dtype=each) for each in kv_dtypes]
    few += [replace(few[0], kv_dtype=each) for each in kv_dtypes]
    return tuple(many), tuple(few)


def _plain(dtype: str, heads: tuple[int, int], dim: int, block_size: int) -> OpSpec:
    return OpSpec(dtype, 64, *heads, dim, 211, 96, block_size)


def case_specs(dtype: str) -> tuple[OpSpec, ...]:
    """Small models in `dtype` with grouped-query ratios 1, 3, 4 and 8; some are encoders, some have experts."""
    return tuple(
        OpSpec(
            dtype=dtype,
            hidden_size=heads * 16,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            vocab_size=211,
            intermediate_size=heads * 24,
            block_size=block_size,
            windows=windows,
            softcap=softcap,
            sinks=sinks,
            encoder=not windows,
            num_experts=experts,
            experts_per_token=per_token,
            expert_size=heads * 8 if experts else 0,
        )
        for heads, kv_heads, head_dim, block_size, windows, softcap, sinks, experts, per_token in _SHAPES
    )
