"""Looking at a transformers model before it has weights: how its layers attend, and why it may not run here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from anychip.errors import UserError
from anychip.models.fallback_attention import STEP, AttentionCall, HostingError, Recorder
from anychip.models.fallback_module import FOREIGN_FAILURES, build, head_of, read_config
from anychip.ops.bind import bind
from anychip.ops.op import OpSpec
from anychip.ops.specs import case_specs
from anychip.plugin.contract import KVSpec, Plane

LENGTH_DEPENDENT = ("dynamic", "longrope")
"""Rotary types whose frequencies change with the longest request of a batch, beyond the original context."""

UNBOUNDED = 1 << 17
"""Positions served of a model that names no limit."""


@dataclass(frozen=True, slots=True)
class FallbackShape:
    """What the probe found."""

    calls: tuple[AttentionCall, ...]
    """One a layer."""
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_model_len: int

    def kv_specs(self, dtype: str) -> tuple[KVSpec, ...]:
        """What each layer caches."""
        return tuple(
            KVSpec(
                "full" if call.window is None else "sliding",
                (Plane("k", (call.kv_heads, call.head_dim), dtype), Plane("v", (call.kv_heads, call.value_dim), dtype)),
                call.window,
            )
            for call in self.calls
        )

    def op_spec(self, dtype: str, block_size: int) -> OpSpec:
        """The shapes ops are called with."""
        first = self.calls[0]
        return OpSpec(
            dtype=dtype,
            hidden_size=self.hidden_size,
            num_heads=first.heads,
            num_kv_heads=first.kv_heads,
            head_dim=first.head_dim,
            vocab_size=self.vocab_size,
            intermediate_size=self.intermediate_size,
            block_size=block_size,
            windows=tuple(sorted({call.window for call in self.calls if call.window is not None})),
            softcap=any(call.softcap for call in self.calls),
            sinks=any(call.sinks for call in self.calls),
        )


def probe(raw: Mapping[str, Any], dtype: torch.dtype) -> FallbackShape:
    """Run the model once on the meta device. Raises `UserError` that names it and says why it cannot run here."""
    config = read_config(raw)
    text = config.get_text_config(decoder=True)
    recorder = Recorder()
    try:
        _check_config(config, text)
        vocab_size = _run(_without_length_dependence(raw), dtype, recorder)
        calls = _uniform(recorder.calls, int(text.num_hidden_layers), getattr(text, "layer_types", None))
    except FOREIGN_FAILURES as error:
        reason = (
            str(error) if isinstance(error, HostingError) else f"its module fails with {type(error).__name__}: {error}"
        )
        raise UserError(
            f"Models of type {raw['model_type']!r} cannot run here: {reason.rstrip('.')}.",
            "It is not written for anychip, and transformers' own module does not fit paged attention.",
        ) from error
    return FallbackShape(
        calls=calls,
        hidden_size=int(text.hidden_size),
        intermediate_size=int(getattr(text, "intermediate_size", None) or 0),
        vocab_size=vocab_size,
        max_model_len=_max_model_len(text),
    )


def _run(raw: Mapping[str, Any], dtype: torch.dtype, recorder: Recorder) -> int:
    """Body and head on two tokens; the vocabulary's size."""
    ops = bind({}, case_specs("float32")[0])
    module = build(read_config(raw), dtype, torch.device("meta"), ops, experts="batched_mm")
    if getattr(module, "_is_stateful", False) or any(isinstance(layer, nn.Conv1d) for layer in module.modules()):
        raise HostingError("it keeps a recurrent state, or mixes neighbouring tokens outside attention")
    tokens = torch.zeros(1, 2, dtype=torch.long, device="meta")
    options = {STEP: recorder}
    output = module.base_model(input_ids=tokens, position_ids=tokens, use_cache=False, **options)
    logits: torch.Tensor = head_of(module)(inputs_embeds=output.last_hidden_state, use_cache=False).logits
    if logits.shape[:2] != (1, 2):
        raise HostingError("its head changes the number of tokens")
    return int(logits.shape[-1])


def _check_config(config: Any, text: Any) -> None:
    if config.is_encoder_decoder:
        raise HostingError("it has an encoder and a decoder")
    if getattr(text, "alibi", False):
        raise HostingError("it biases attention by distance (ALiBi)")
    kinds = set(getattr(text, "layer_types", None) or ()) - {"full_attention", "sliding_attention", "attention"}
    if kinds:
        raise HostingError(f"it has layers of kind {', '.join(sorted(kinds))}")


def _uniform(calls: Mapping[int, AttentionCall], layers: int, kinds: list[str] | None) -> tuple[AttentionCall, ...]:
    """The calls in layer order, once they are all there and of a kind that ops take."""
    if sorted(calls) != list(range(layers)):
        raise HostingError(f"only {len(calls)} of its {layers} layers attend through transformers' attention interface")
    ordered = tuple(calls[layer] for layer in range(layers))
    if len({(call.heads, call.kv_heads, call.head_dim) for call in ordered}) > 1:
        raise HostingError("its layers differ in their heads")
    if ordered[0].value_dim != ordered[0].head_dim or ordered[0].heads % ordered[0].kv_heads:
        raise HostingError("its keys and values differ in size, as in latent attention")
    slides = [kind == "sliding_attention" for kind in kinds or ()]
    if slides and any(slide and call.window is None for slide, call in zip(slides, ordered, strict=False)):
        raise HostingError("its sliding layers do not say how far they see")
    return ordered


def _ropes(raw: Mapping[str, Any]) -> Iterator[tuple[str, str | None, Mapping[str, Any]]]:
    """(config key, layer type or None, settings) of each rotary embedding of a config."""
    for key in ("rope_parameters", "rope_scaling"):
        settings = raw.get(key) or {}
        yield key, None, settings
        yield from ((key, name, value) for name, value in settings.items() if isinstance(value, Mapping))


def _kind(settings: Mapping[str, Any]) -> str:
    return str(settings.get("rope_type") or settings.get("type") or "default")


def _without_length_dependence(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The same config with plain rotary embeddings where they would ask for the longest position."""
    result = dict(raw)
    for key, layer_type, settings in _ropes(raw):
        if _kind(settings) in LENGTH_DEPENDENT:
            plain = {
                "rope_type": "default",
                "rope_theta": settings.get("rope_theta") or raw.get("rope_theta") or 10000.0,
            }
            result[key] = plain if layer_type is None else {**result[key], layer_type: plain}
    return result


def _max_model_len(text: Any) -> int:
    """Positions at which no request's rotation depends on the others in its batch."""
    limit = int(getattr(text, "max_position_embeddings", None) or UNBOUNDED)
    for _, _, settings in _ropes({"rope_parameters": getattr(text, "rope_parameters", None)}):
        if _kind(settings) == "longrope":
            limit = min(limit, int(settings.get("original_max_position_embeddings") or limit))
    return limit
