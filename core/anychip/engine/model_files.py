"""What a model's own files say of generating with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anychip.config import EngineConfig
from anychip.errors import RequestError, UserError
from anychip.plugin.contract import ModelSource
from anychip.sampling_params import SamplingParams

if TYPE_CHECKING:
    from anychip.text.tokenizer import Tokenizer

SAMPLING_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Fields that a model's generation_config.json may give a default."""


def default_sampling(config: EngineConfig, source: ModelSource) -> dict[str, Any]:
    """Sampling defaults in the model's generation_config.json, unless the config ignores them."""
    if config.generation_config == "none":
        return {}
    given = source.generation_config
    defaults = {name: given[name] for name in SAMPLING_DEFAULTS if given.get(name) is not None}
    try:
        SamplingParams(**defaults)
    except RequestError as error:
        what = f"The model's generation_config.json has a default that cannot be: {error.message}"
        raise UserError(what, "Start with --generation-config none, or correct it.") from None
    return defaults


def eos_ids(source: ModelSource, tokenizer: Tokenizer | None, vocab_size: int) -> tuple[int, ...]:
    """All ends of sequence that the generation config, the config and the tokenizer name, and that the model has.

    Raises `UserError` for what is no token id.
    """
    named: list[Any] = [source.generation_config.get("eos_token_id"), source.config.get("eos_token_id")]
    if tokenizer is not None:
        named.append(tokenizer.eos_token_id)
    ids: dict[int, None] = {}
    for value in named:
        for token in value if isinstance(value, list | tuple) else [value]:
            if token is not None:
                ids[_whole_number(token)] = None
    return tuple(token for token in ids if 0 <= token < vocab_size)


def _whole_number(token: Any) -> int:
    if isinstance(token, bool) or not isinstance(token, int):
        where = "The eos_token_id in the model's config.json or generation_config.json"
        raise UserError(
            f"{where} is {token!r}, which is no token id.", "Compare it with the file that its authors published."
        )
    return token
