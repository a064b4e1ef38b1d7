"""Models of the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path

from anychip.errors import UserError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_CONFIGURATION = ["*.json", "*.jinja", "tokenizer.model"]
_DUPLICATES = ["*/*.safetensors", "*/*.json", "consolidated*"]


def is_hub_id(name: str) -> bool:
    """Whether a name can be `repository` or `owner/repository`."""
    return _HUB_ID.fullmatch(name) is not None and not name.endswith(".gguf")


def fetch_snapshot(name: str, revision: str | None, token: str | None, weights: bool) -> Path:
    """The folder of a hub model in the hub's own cache; the hub library shows its progress.

    Only safetensors, JSON, templates and the sentencepiece model are fetched: never pickles, never Python.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(
            snapshot_download(
                name,
                revision=revision,
                token=token,
                allow_patterns=[*_CONFIGURATION, *(["*.safetensors"] if weights else [])],
                ignore_patterns=_DUPLICATES,
            )
        )
    except (OSError, HFValidationError) as error:
        raise _explain(name, revision, error) from error


def fetch_file(name: str, file: str, revision: str | None, token: str | None) -> Path:
    """One file of a hub model, such as a .gguf."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError

    try:
        return Path(hf_hub_download(name, file, revision=revision, token=token))
    except (OSError, HFValidationError, EntryNotFoundError) as error:
        raise _explain(name, revision, error) from error


def _explain(name: str, revision: str | None, error: Exception) -> UserError:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return UserError(f"Model {name!r} is gated.", "Accept its terms on huggingface.co and pass HF_TOKEN.")
    if isinstance(error, errors.RevisionNotFoundError):
        return UserError(f"Model {name!r} has no revision {revision!r}.", "Leave --revision out or name another.")
    if isinstance(error, errors.RepositoryNotFoundError):
        return UserError(
            f"There is no model {name!r} on the Hugging Face hub, and no such folder here.",
            "Check the spelling; a private model needs HF_TOKEN.",
        )
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return UserError(f"Model {name!r} has no such file on the Hugging Face hub.", "Check the file's name.")
    return UserError(
        f"Model {name!r} is no folder here, not in the Hugging Face cache, and the hub cannot be reached "
        f"({type(error).__name__}).",
        "Check the path or the network, or use the model `demo`.",
    )
