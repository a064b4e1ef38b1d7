"""The numbers of a post-norm encoder, read from config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anychip.errors import UserError
from anychip.models.decoder_config import whole
from anychip.ops.composite import GELU
from anychip.ops.op import OpSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """What distinguishes one member of BERT's lineage from another."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_layers: int
    positions: int
    """Lines of the table of positions."""
    first_position: int = 0
    """Line of the first token."""
    texts: int = 0
    """Texts of one prompt that are told apart; 0 for none."""
    eps: float
    activation: str

    def op_spec(self, dtype: str, block_size: int) -> OpSpec:
        """The shapes ops are called with."""
        return OpSpec(
            dtype=dtype,
            hidden_size=self.hidden_size,
            num_heads=self.num_heads,
            num_kv_heads=self.num_heads,
            head_dim=self.hidden_size // self.num_heads,
            vocab_size=self.vocab_size,
            intermediate_size=self.intermediate_size,
            block_size=block_size,
            encoder=True,
        )


def read_encoder(config: Mapping[str, Any], *, first_position: int = 0) -> EncoderConfig:
    """Read what BERT and RoBERTa share. Raises `UserError` for a config that cannot be run."""
    check_encoder(config)
    return EncoderConfig(
        vocab_size=whole(config, "vocab_size"),
        hidden_size=whole(config, "hidden_size"),
        intermediate_size=whole(config, "intermediate_size"),
        num_heads=whole(config, "num_attention_heads"),
        num_layers=whole(config, "num_hidden_layers"),
        positions=whole(config, "max_position_embeddings", 512),
        first_position=first_position,
        texts=whole(config, "type_vocab_size", 2),
        eps=float(config.get("layer_norm_eps") or 1e-12),
        activation=known_activation(config, "hidden_act"),
    )


def known_activation(config: Mapping[str, Any], name: str) -> str:
    """The activation that a field of the config names. Raises `UserError` for one that is not known."""
    activation = str(config.get(name) or "gelu")
    if activation != "relu" and activation not in GELU:
        raise UserError(
            f"The model's activation {activation!r} is not supported.", f"Supported: relu, {', '.join(GELU)}."
        )
    return activation


def check_encoder(config: Mapping[str, Any]) -> None:
    """Raise `UserError` for the variants of BERT that are no plain encoders."""
    kind = config.get("position_embedding_type") or "absolute"
    if kind != "absolute":
        raise UserError(f"The model's positions are {kind}, which is not supported.", "Supported: absolute.")
    if config.get("is_decoder"):
        raise UserError("The model is an encoder turned into a decoder, which is not supported.", "Use another model.")
