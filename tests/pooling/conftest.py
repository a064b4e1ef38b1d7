"""Two servers for all tests here: the demo embedding model, and a tiny cross-encoder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest
from tests.api.running import RunningServer, serving
from tests.pooling.tiny import write_classifier


@contextmanager
def running(folder: Path, model: str) -> Iterator[RunningServer]:
    options = {"model": model, "dtype": "float32", "max_model_len": None, "max_num_seqs": 64}
    with serving(folder, options) as server:
        yield server


@pytest.fixture(scope="session")
def embedding_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("embeddings"), "demo-embeddings") as server:
        yield server


@pytest.fixture(scope="session")
def scoring_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("scores")
    write_classifier(folder / "model", labels=1)
    with running(folder, str(folder / "model")) as server:
        yield server


@pytest.fixture
def client(embedding_server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{embedding_server.base}/v1", api_key="none", max_retries=0) as client:
        yield client
