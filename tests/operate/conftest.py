"""Servers on the null platform: quick to start, and as fast as the host can be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.api.running import RunningServer, serving

from anychip.testing.tiny_model import write_tiny_model

LENGTH = 200_000
TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}w1"
Serve = Callable[..., AbstractContextManager[RunningServer]]


def write_null_model(folder: Path, **values: Any) -> Path:
    """The tiny model's tokenizer, with room for long answers."""
    write_tiny_model(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": LENGTH, **values}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


@pytest.fixture(scope="session")
def null_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_null_model(tmp_path_factory.mktemp("null"))


@pytest.fixture(scope="session")
def serve(null_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """Starts a server with some options; it has to end well."""

    @contextmanager
    def start(engine: dict[str, Any] | None = None, **options: Any) -> Iterator[RunningServer]:
        settings = {"model": str(null_model), "device": "null", "max_model_len": LENGTH, **(engine or {})}
        named = {"served_model_name": ["null"], **options}
        with serving(tmp_path_factory.mktemp("server"), settings, **named) as server:
            yield server

    return start


@pytest.fixture(scope="session")
def plain_server(serve: Serve) -> Iterator[RunningServer]:
    with serve() as server:
        yield server
