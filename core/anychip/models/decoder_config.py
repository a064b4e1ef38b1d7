"""The numbers of a pre-norm decoder, read from config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anychip.errors import UserError
from anychip.models.rotary import RopeSettings, read_rope
from anychip.ops.composite import GELU
from anychip.ops.op import OpSpec
from anychip.weights.role import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """A model's mixtures of experts."""

    count: int
    per_token: int
    size: int
    """Intermediate size of one expert."""
    renormalize: bool
    """Whether the weights of a token's experts are scaled to add up to one."""
    layers: frozenset[int]
    """Layers that have experts; others have one feed-forward network."""
    shared_size: int = 0
    """Intermediate size of the expert that takes every token; 0: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """What distinguishes one member of the Llama lineage from another."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    eps: float
    activation: str
    rope: RopeSettings
    windows: tuple[int | None, ...]
    """For each layer the tokens that attention sees, its own included; None: all."""
    tied: bool
    """Whether the output matrix is the embedding's."""
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_norms: bool = False
    """Whether queries and keys are normalized, each head by itself."""
    experts: ExpertsConfig | None = None

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return len(self.windows)

    def role(self, layer: int, inside: Role) -> Role:
        """That of a layer's matrix, which is `inside` in all but the first layer and the last one."""
        if layer == self.num_layers - 1:
            return "output"
        return inside if layer else "first"

    def op_spec(self, dtype: str, block_size: int) -> OpSpec:
        """The shapes ops are called with."""
        return OpSpec(
            dtype=dtype,
            hidden_size=self.hidden_size,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            vocab_size=self.vocab_size,
            intermediate_size=self.intermediate_size,
            block_size=block_size,
            windows=tuple(sorted({window for window in self.windows if window is not None})),
            num_experts=self.experts.count if self.experts else 0,
            experts_per_token=self.experts.per_token if self.experts else 0,
            expert_size=self.experts.size if self.experts else 0,
        )


def read_decoder(
    config: Mapping[str, Any],
    *,
    max_position: int,
    windows: tuple[int | None, ...] | None = None,
    head_dim: int | None = None,
    qkv_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
    head_norms: bool = False,
) -> DecoderConfig:
    """Read what all families share; the keywords are what a family does in its own way.

    `max_position` and `head_dim` are defaults for what config.json may leave out. Raises `UserError` for a config that
    is incomplete or contradicts itself.
    """
    heads, hidden = whole(config, "num_attention_heads"), whole(config, "hidden_size")
    kv_heads = whole(config, "num_key_value_heads", heads)
    if heads % kv_heads:
        raise UserError(
            f"The model's config has {heads} heads, which is no multiple of its {kv_heads} key-value heads."
        )
    activation = str(config.get("hidden_act") or "silu")
    if activation != "silu" and activation not in GELU:
        raise UserError(
            f"The model's activation {activation!r} is not supported.", f"Supported: silu, {', '.join(GELU)}."
        )
    size = whole(config, "head_dim", head_dim or hidden // heads)
    return DecoderConfig(
        vocab_size=whole(config, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=whole(config, "intermediate_size"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=size,
        eps=float(config.get("rms_norm_eps") or 1e-6),
        activation=activation,
        rope=read_rope(config, size, whole(config, "max_position_embeddings", max_position)),
        windows=windows or (None,) * whole(config, "num_hidden_layers"),
        tied=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        mlp_bias=mlp_bias,
        head_norms=head_norms,
    )


def read_experts(config: Mapping[str, Any], shared_size: int = 0) -> ExpertsConfig:
    """Qwen's rule: every `decoder_sparse_step`-th layer has experts, but not those in `mlp_only_layers`."""
    step, dense = whole(config, "decoder_sparse_step", 1), config.get("mlp_only_layers") or ()
    layers = range(whole(config, "num_hidden_layers"))
    count = whole(config, "num_experts", whole(config, "num_local_experts", 128))
    per_token = whole(config, "num_experts_per_tok")
    if per_token > count:
        raise UserError(f"The model's config sends a token to {per_token} of {count} experts.")
    return ExpertsConfig(
        count=count,
        per_token=per_token,
        size=whole(config, "moe_intermediate_size"),
        renormalize=bool(config.get("norm_topk_prob", False)),
        layers=frozenset(layer for layer in layers if (layer + 1) % step == 0 and layer not in dense),
        shared_size=shared_size,
    )


def whole(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A positive whole number of the config, or `default` where it is absent or null."""
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(
            f"The model's config.json needs a positive whole number {name}, not {value!r}.",
            "Compare it with the config.json that the model's authors published.",
        )
    return value


def windows_by_layer(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Qwen's rule: with `use_sliding_window`, `layer_types`, or else each layer from `max_window_layers` on, slides."""
    layers = whole(config, "num_hidden_layers")
    if not config.get("use_sliding_window", False):
        return (None,) * layers
    window = whole(config, "sliding_window", 4096)
    first = config.get("max_window_layers", 28)
    kinds = config.get("layer_types") or ["full_attention"] * min(first, layers) + ["sliding_attention"] * (
        layers - first
    )
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)
