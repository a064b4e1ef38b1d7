"""One server on the demo model for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from tests.api.running import RunningServer, serving


@pytest.fixture(scope="session")
def running_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    limits = {"max_file_bytes": 1_000_000, "max_stored_responses": 10}
    with serving(tmp_path_factory.mktemp("server"), **limits) as server:
        yield server


@pytest.fixture
def server(running_server: RunningServer) -> Iterator[RunningServer]:
    """The server; whatever a test sends, an ordinary request works afterwards and nothing is left running."""
    yield running_server
    assert running_server.process.poll() is None, running_server.log.read_text()
    running_server.complete("Hello", max_tokens=1)
    running_server.wait_quiet()


@pytest.fixture
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.base}/v1", api_key="none", max_retries=0) as client:
        yield client
