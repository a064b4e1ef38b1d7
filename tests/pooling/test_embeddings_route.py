"""POST /v1/embeddings and /pooling of a real server, asked by OpenAI's own client and by hand."""

from __future__ import annotations

import base64
import threading
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from tests.api.running import RunningServer

TEXTS = ["Hello world", "", "Überraschung 日本語", "cats and dogs " * 50, "x"]
SIZE = 384


def vector(server: RunningServer, given: Any, **fields: Any) -> np.ndarray:
    answer = server.post("/v1/embeddings", {"input": given, **fields})
    assert answer.status_code == 200, answer.text
    return np.array(answer.json()["data"][0]["embedding"])


def test_openais_client_gets_vectors(client: openai.OpenAI) -> None:
    """The client asks for base64 unless told otherwise; both are the same numbers."""
    packed = client.embeddings.create(model="demo-embeddings", input=TEXTS)
    plain = client.embeddings.create(model="demo-embeddings", input=TEXTS, encoding_format="float")
    assert [one.index for one in packed.data] == list(range(len(TEXTS)))
    assert [one.object for one in packed.data] == ["embedding"] * len(TEXTS)
    left, right = (np.array([one.embedding for one in each.data]) for each in (packed, plain))
    assert left.shape == (len(TEXTS), SIZE)
    assert np.abs(left - right).max() < 1e-6
    assert np.abs(np.linalg.norm(left, axis=1) - 1).max() < 1e-5
    assert packed.usage.prompt_tokens == packed.usage.total_tokens > len(TEXTS)
    assert packed.model == "demo-embeddings"


def test_one_text_and_a_list_and_token_ids_agree(embedding_server: RunningServer) -> None:
    ids = embedding_server.post("/tokenize", {"prompt": "Hello world"}).json()["tokens"]
    wanted = vector(embedding_server, "Hello world")
    for given in (["Hello world"], ids, [ids], ["Hello world", "another"]):
        assert np.abs(vector(embedding_server, given) - wanted).max() < 1e-5
    bare = vector(embedding_server, "Hello world", add_special_tokens=False)
    assert np.abs(bare - wanted).max() > 1e-3


def test_base64_is_little_endian_float32(embedding_server: RunningServer) -> None:
    body = {"input": "Hello world", "encoding_format": "base64"}
    text = embedding_server.post("/v1/embeddings", body).json()["data"][0]["embedding"]
    packed = np.frombuffer(base64.b64decode(text), "<f4")
    assert np.abs(packed - vector(embedding_server, "Hello world")).max() < 1e-7


def test_dimensions_and_normalization(embedding_server: RunningServer) -> None:
    whole = vector(embedding_server, "Hello world")
    cut = vector(embedding_server, "Hello world", dimensions=32)
    assert np.abs(cut - whole[:32] / np.linalg.norm(whole[:32])).max() < 1e-5
    for name in ("normalize", "use_activation"):
        raw = vector(embedding_server, "Hello world", **{name: False})
        assert np.linalg.norm(raw) > 1.5
        assert np.abs(raw / np.linalg.norm(raw) - whole).max() < 1e-5


def test_truncation_keeps_the_beginning_and_the_special_tokens(embedding_server: RunningServer) -> None:
    long = "cats and dogs " * 200
    embedding_server.refused("/v1/embeddings", {"input": long})
    whole = embedding_server.post("/v1/embeddings", {"input": long, "truncate_prompt_tokens": -1}).json()
    assert whole["usage"]["prompt_tokens"] == 256
    cut = vector(embedding_server, long, truncate_prompt_tokens=8)
    assert np.abs(cut - vector(embedding_server, "cats and dogs cats and dogs")).max() < 1e-5
    assert (
        np.abs(
            vector(embedding_server, [101, 7592, 102, 5], truncate_prompt_tokens=3) - vector(embedding_server, "hello")
        ).max()
        < 1e-5
    )


REFUSED = [
    ({}, "input"),
    ({"input": []}, "input"),
    ({"input": [[]]}, "input"),
    ({"input": 5}, "input"),
    ({"input": [1, "two"]}, "input"),
    ({"input": [30522]}, "input"),
    ({"input": [-1]}, "input"),
    ({"input": "word " * 300}, "input"),
    ({"input": ["short", "word " * 300]}, "input"),
    ({"input": ["x"] * 2049}, "input"),
    ({"input": "x", "dimensions": 0}, "dimensions"),
    ({"input": "x", "dimensions": 385}, "dimensions"),
    ({"input": "x", "dimensions": "8"}, "dimensions"),
    ({"input": "x", "encoding_format": "hex"}, "encoding_format"),
    ({"input": "x", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ({"input": "x", "truncate_prompt_tokens": 2}, "truncate_prompt_tokens"),
    ({"input": "x", "truncate_prompt_tokens": 257}, "truncate_prompt_tokens"),
    ({"input": "x", "prompt_name": "query"}, "prompt_name"),
    ({"input": "x", "embed_dtype": "int8"}, "embed_dtype"),
    ({"input": "x", "normalize": True, "use_activation": False}, "normalize"),
]


@pytest.mark.parametrize(("body", "param"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_wrong_is_named(embedding_server: RunningServer, body: dict[str, Any], param: str) -> None:
    error = embedding_server.refused("/v1/embeddings", body)
    assert error["param"] == param


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/classify", {"input": "x"}),
    ],
)
def test_a_route_the_model_cannot_serve_says_what_it_can(
    embedding_server: RunningServer, path: str, body: dict[str, Any]
) -> None:
    error = embedding_server.refused(path, body)
    assert "loaded to embed and score" in error["message"]
    assert error["param"] == "model"


def test_scores_and_ranks_by_cosine(embedding_server: RunningServer) -> None:
    texts = ["A kitten is on the rug", "Stock prices fell", "A kitten is on the rug"]
    answer = embedding_server.post("/v1/score", {"text_1": "A cat sits on the mat", "text_2": texts}).json()
    scores = [one["score"] for one in answer["data"]]
    left, right = vector(embedding_server, "A cat sits on the mat"), vector(embedding_server, texts[0])
    assert abs(scores[0] - float(left @ right)) < 1e-5
    assert scores[0] == scores[2] > 0.5 > scores[1]
    ranked = embedding_server.post("/rerank", {"query": "A cat sits on the mat", "documents": texts}).json()
    assert [one["index"] for one in ranked["results"]] == [0, 2, 1]


def test_pooling_gives_the_same_vector(embedding_server: RunningServer) -> None:
    answer = embedding_server.post("/pooling", {"input": ["Hello world"]}).json()
    assert np.abs(np.array(answer["data"][0]["data"]) - vector(embedding_server, "Hello world")).max() < 1e-6


def test_many_clients_at_once_and_one_that_hangs_up(embedding_server: RunningServer) -> None:
    """Thirty-two clients with batches of their own get their own vectors, whatever the others do."""
    texts = [f"text number {number} " * (number + 1) for number in range(32)]
    wanted = [vector(embedding_server, text) for text in texts]
    worst: list[float] = []

    def ask(number: int) -> None:
        answer = httpx.post(
            f"{embedding_server.base}/v1/embeddings", json={"input": [texts[number], "x", *texts]}, timeout=60
        )
        worst.append(float(np.abs(np.array(answer.json()["data"][0]["embedding"]) - wanted[number]).max()))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    with pytest.raises(httpx.TimeoutException):
        httpx.post(f"{embedding_server.base}/v1/embeddings", json={"input": ["many words " * 100] * 500}, timeout=0.3)
    for thread in threads:
        thread.join()
    assert len(worst) == 32
    assert max(worst) < 1e-5
    embedding_server.wait_quiet()
    assert np.abs(vector(embedding_server, texts[3]) - wanted[3]).max() < 1e-5
