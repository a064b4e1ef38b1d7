"""A model's tokenizer out of its folder or its GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from anychip.errors import UserError
from anychip.text.gguf_tokenizer import build_gguf_backend, set_affixes, special_ids
from anychip.text.tokenizer import Tokenizer
from anychip.weights.gguf_metadata import GGUFFile
from anychip.weights.json_file import read_json_object, read_optional_json_object

_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def load_tokenizer(path: Path, chat_template: str | None = None) -> Tokenizer | None:
    """The tokenizer of a model folder or .gguf file; None for a folder without one.

    `chat_template`, a template file or the template itself, takes the place of the model's own.
    """
    tokenizer = _load_gguf(path) if path.is_file() else _load_folder(path)
    if tokenizer is not None and chat_template is not None:
        tokenizer.chat_templates = {"default": _given_template(chat_template)}
    return tokenizer


def _load_gguf(path: Path) -> Tokenizer | None:
    file = GGUFFile(path)
    if file.get("tokenizer.ggml.model", "none") in ("none", "no_vocab"):
        return None
    backend = build_gguf_backend(file)
    ids = special_ids(file)
    roles = {"bos_token": ids.bos, "eos_token": ids.eos, "unk_token": ids.unknown, "pad_token": ids.padding}
    tokens = {role: None if token_id is None else backend.id_to_token(token_id) for role, token_id in roles.items()}
    templates = {"default": file.get("tokenizer.chat_template")}
    for name in file.get("tokenizer.chat_templates", []):
        templates[name] = file.get(f"tokenizer.chat_template.{name}")
    return Tokenizer(backend, _without_none(tokens), _without_none(templates))


def _load_folder(folder: Path) -> Tokenizer | None:
    config = read_optional_json_object(folder / "tokenizer_config.json")
    if (folder / "tokenizer.json").is_file():
        backend = _read_backend(folder / "tokenizer.json")
    elif (folder / "tokenizer.model").is_file():
        backend = _convert_sentencepiece(folder)
    else:
        return None
    backend.no_truncation()
    backend.no_padding()
    roles = _special_tokens(config, read_optional_json_object(folder / "special_tokens_map.json"))
    _mark_special(backend, config, roles)
    _add_affixes(backend, config, roles)
    return Tokenizer(backend, roles, _folder_templates(folder, config))


def _read_backend(path: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:
        raise UserError(f"{path} is not a usable tokenizer: {error}.", "Download it again.") from error


def _convert_sentencepiece(folder: Path) -> tokenizers.Tokenizer:
    remedy = "Save the tokenizer as tokenizer.json with transformers, or install sentencepiece and protobuf."
    try:
        from transformers import AutoTokenizer

        converted = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        backend: tokenizers.Tokenizer = converted.backend_tokenizer
    except (ImportError, OSError, ValueError, AttributeError) as error:
        raise UserError(f"{folder / 'tokenizer.model'} cannot be converted: {error}.", remedy) from error
    return backend


def _special_tokens(config: Mapping[str, Any], special_tokens_map: Mapping[str, Any]) -> dict[str, str]:
    found = {role: _content(config.get(role)) or _content(special_tokens_map.get(role)) for role in _ROLES}
    return _without_none(found)


def _content(token: Any) -> str | None:
    """A token is written as a string or as an object with its matching rules."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _mark_special(backend: tokenizers.Tokenizer, config: Mapping[str, Any], roles: Mapping[str, str]) -> None:
    """Make special what the configuration calls so; a token outside the vocabulary has no embedding and stays out."""
    listed = config.get("additional_special_tokens") or config.get("extra_special_tokens") or []
    extra = listed.values() if isinstance(listed, dict) else listed
    special = {token for token in (*roles.values(), *map(_content, extra)) if token is not None}
    plain: set[str] = set()
    for token_id, token in (config.get("added_tokens_decoder") or {}).items():
        content = _content(token)
        if content is not None and backend.token_to_id(content) == int(token_id):
            (special if token.get("special") else plain).add(content)
    known = {token.content: token.special for token in backend.get_added_tokens_decoder().values()}
    new_special = [token for token in special if backend.token_to_id(token) is not None and not known.get(token)]
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in sorted(new_special)])
    new_plain = plain - special - set(known)
    backend.add_tokens([AddedToken(token, normalized=False, special=False) for token in sorted(new_plain)])


def _add_affixes(backend: tokenizers.Tokenizer, config: Mapping[str, Any], roles: Mapping[str, str]) -> None:
    """`add_bos_token` and `add_eos_token`, where the configuration states them, decide; else tokenizer.json does.

    Each decides for its own end only: an embedding model's tokenizer.json may end texts with a token nobody names.
    """
    add_bos, add_eos = config.get("add_bos_token"), config.get("add_eos_token")
    if add_bos is None and add_eos is None:
        return
    before, after = _affixes(backend)
    first = before if add_bos is None else _named(backend, roles.get("bos_token")) if add_bos else None
    last = after if add_eos is None else _named(backend, roles.get("eos_token")) if add_eos else None
    set_affixes(backend, first, last)


def _affixes(backend: tokenizers.Tokenizer) -> tuple[tuple[str, int] | None, tuple[str, int] | None]:
    """The special token that tokenizer.json puts before a text, and the one after it, where it is one."""
    bare, whole = (backend.encode("a", add_special_tokens=special) for special in (False, True))
    if not bare.ids:
        return None, None
    begin = next((at for at, mask in enumerate(whole.special_tokens_mask) if not mask), 0)
    ends = ((0, begin), (begin + len(bare.ids), len(whole.ids)))
    first, last = (
        (str(whole.tokens[start]), int(whole.ids[start])) if stop - start == 1 else None for start, stop in ends
    )
    return first, last


def _named(backend: tokenizers.Tokenizer, token: str | None) -> tuple[str, int] | None:
    token_id = None if token is None else backend.token_to_id(token)
    return None if token is None or token_id is None else (token, token_id)


def _folder_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Newer folders keep templates in files of their own; the configuration holds one, or a list of named ones."""
    templates: dict[str, str] = {}
    stated = config.get("chat_template")
    if (folder / "chat_template.json").is_file():
        stated = read_json_object(folder / "chat_template.json").get("chat_template", stated)
    if isinstance(stated, str):
        templates["default"] = stated
    elif isinstance(stated, list):
        templates.update({item["name"]: item["template"] for item in stated})
    elif isinstance(stated, dict):
        templates.update(stated)
    if (folder / "chat_template.jinja").is_file():
        templates["default"] = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        templates[path.stem] = path.read_text(encoding="utf-8")
    return templates


def _given_template(chat_template: str) -> str:
    if "{" in chat_template or "\n" in chat_template:
        return chat_template
    path = Path(chat_template).expanduser()
    if not path.is_file():
        raise UserError(
            f"The chat template {chat_template!r} is neither a file nor a Jinja template.",
            "Give the path of a .jinja file, or the template's text.",
        )
    return path.read_text(encoding="utf-8")


def _without_none(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}
