"""A tokenizer built from a GGUF file's metadata (`tokenizer.ggml.*`)."""

from __future__ import annotations

from typing import NamedTuple

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

from anychip.errors import UserError
from anychip.text.gguf_pretokenizers import build_pre_tokenizer, find_pre_tokenizer
from anychip.weights.gguf_metadata import GGUFFile

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_SPACE = "\u2581"


class SpecialIds(NamedTuple):
    """Ids that a GGUF file names; None where it names none."""

    bos: int | None
    eos: int | None
    unknown: int | None
    padding: int | None


def special_ids(file: GGUFFile) -> SpecialIds:
    """The special token ids of a file's metadata."""
    names = ("bos", "eos", "unknown", "padding")
    return SpecialIds(*(file.get(f"tokenizer.ggml.{name}_token_id") for name in names))


def build_gguf_backend(file: GGUFFile) -> Tokenizer:
    """Build the tokenizer that a GGUF file describes.

    Raises `UserError` for a vocabulary kind or a pre-tokenizer that is not known.
    """
    kind = file.require("tokenizer.ggml.model")
    tokens: list[str] = file.require("tokenizer.ggml.tokens")
    if kind == "gpt2":
        backend, add_bos = _byte_level(file, tokens), _pre_tokenizer_adds_bos(file)
    elif kind == "llama":
        backend, add_bos = _sentencepiece(file, tokens), True
    else:
        raise UserError(
            f"{file.path} has a tokenizer of kind {kind!r}, which is not read out of GGUF files.",
            "Kinds gpt2 and llama are. Give the tokenizer of the original model with --tokenizer.",
        )
    _add_special_tokens(backend, file, tokens)
    _add_post_processor(backend, file, tokens, bool(file.get("tokenizer.ggml.add_bos_token", add_bos)))
    return backend


def _pre_tokenizer_adds_bos(file: GGUFFile) -> bool:
    return find_pre_tokenizer(file.get("tokenizer.ggml.pre", "default")).add_bos


def _byte_level(file: GGUFFile, tokens: list[str]) -> Tokenizer:
    rule = find_pre_tokenizer(file.get("tokenizer.ggml.pre", "default"))
    merges = [_split_merge(merge) for merge in file.require("tokenizer.ggml.merges")]
    backend = _bpe(file, tokens, merges, ignore_merges=rule.ignore_merges)
    backend.pre_tokenizer = build_pre_tokenizer(rule)
    backend.decoder = decoders.ByteLevel()
    return backend


def _split_merge(merge: str) -> tuple[str, str]:
    # A piece may itself begin with a space, so the separator is the first one after the first character.
    separator = merge.find(" ", 1)
    return merge[:separator], merge[separator + 1 :]


def _bpe(
    file: GGUFFile,
    tokens: list[str],
    merges: list[tuple[str, str]],
    *,
    ignore_merges: bool = False,
    unk: str | None = None,
) -> Tokenizer:
    vocabulary = {token: index for index, token in enumerate(tokens)}
    fallback = unk is not None
    try:
        return Tokenizer(
            models.BPE(
                vocab=vocabulary,
                merges=merges,
                ignore_merges=ignore_merges,
                unk_token=unk,
                fuse_unk=fallback,
                byte_fallback=fallback,
            )
        )
    except Exception as error:
        raise UserError(
            f"{file.path} has a broken tokenizer: {error}.", "Convert or download the model again."
        ) from error


def _sentencepiece(file: GGUFFile, tokens: list[str]) -> Tokenizer:
    unknown = special_ids(file).unknown
    merges = file.get("tokenizer.ggml.merges")
    pairs = [_split_merge(merge) for merge in merges] if merges else _merges_from_scores(file, tokens)
    backend = _bpe(file, tokens, pairs, unk=tokens[unknown if unknown is not None else 0])
    prefixed = bool(file.get("tokenizer.ggml.add_space_prefix", True))
    prepend = [normalizers.Prepend(_SPACE)] if prefixed else []
    backend.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", _SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if prefixed else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return backend


def _merges_from_scores(file: GGUFFile, tokens: list[str]) -> list[tuple[str, str]]:
    """Sentencepiece merges the neighbours whose union scores best; listing all unions best first says the same."""
    scores: list[float] = file.require("tokenizer.ggml.scores")
    index_of = {token: index for index, token in enumerate(tokens)}
    ranked: list[tuple[float, int, int, str, str]] = []
    for union, (token, score) in enumerate(zip(tokens, scores, strict=False)):
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in index_of and right in index_of:
                ranked.append((-score, union, index_of[left], left, right))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]


def _add_special_tokens(backend: Tokenizer, file: GGUFFile, tokens: list[str]) -> None:
    types: list[int] = file.get("tokenizer.ggml.token_type", [])
    ids = special_ids(file)
    special = {index for index in (ids.bos, ids.eos) if index is not None and index < len(tokens)}
    special |= {index for index, kind in enumerate(types) if kind in (_UNKNOWN, _CONTROL)}
    user_defined = [index for index, kind in enumerate(types) if kind == _USER_DEFINED and index not in special]
    backend.add_special_tokens([AddedToken(tokens[index], normalized=False, special=True) for index in sorted(special)])
    backend.add_tokens([AddedToken(tokens[index], normalized=False, special=False) for index in user_defined])


def _add_post_processor(backend: Tokenizer, file: GGUFFile, tokens: list[str], add_bos: bool) -> None:
    ids = special_ids(file)
    first = ids.bos if add_bos else None
    last = ids.eos if file.get("tokenizer.ggml.add_eos_token", False) else None
    set_affixes(backend, _named(tokens, first), _named(tokens, last))


def _named(tokens: list[str], index: int | None) -> tuple[str, int] | None:
    return None if index is None or index >= len(tokens) else (tokens[index], index)


def set_affixes(backend: Tokenizer, first: tuple[str, int] | None, last: tuple[str, int] | None) -> None:
    """Make `encode` put the (token, id) `first` before and `last` after every text; None puts nothing."""
    pieces = ["bos:0"] if first else []
    pieces += ["$A:0"] + (["eos:0"] if last else [])
    named = {"bos": first, "eos": last}
    special = [{"id": name, "ids": [token[1]], "tokens": [token[0]]} for name, token in named.items() if token]
    pair = [*pieces, "$B:1"]
    backend.post_processor = processors.TemplateProcessing(single=pieces, pair=pair, special_tokens=special)
