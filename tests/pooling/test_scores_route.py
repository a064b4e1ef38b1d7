"""Scores, ranks and labels of a cross-encoder behind a real server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.running import RunningServer

QUERY = "w5 w6 w7"
DOCUMENTS = ["w8 w9", "w10", "w11 w12 w13 w14", "w15"]


def scores(server: RunningServer, path: str = "/v1/score", **body: Any) -> list[float]:
    answer = server.post(path, body)
    assert answer.status_code == 200, answer.text
    return [one["score"] for one in answer.json()["data"]]


def test_one_text_with_many_and_pairwise_agree(scoring_server: RunningServer) -> None:
    many = scores(scoring_server, text_1=QUERY, text_2=DOCUMENTS)
    assert len(set(many)) == len(DOCUMENTS)
    assert all(0 < score < 1 for score in many)
    pairwise = scores(scoring_server, "/score", data_1=[QUERY] * 4, data_2=DOCUMENTS)
    assert pairwise == pytest.approx(many, abs=1e-6)
    assert scores(scoring_server, queries=QUERY, documents=DOCUMENTS[0]) == pytest.approx(many[:1], abs=1e-6)
    raw = scores(scoring_server, text_1=QUERY, text_2=DOCUMENTS, use_activation=False)
    assert sorted(range(4), key=raw.__getitem__) == sorted(range(4), key=many.__getitem__)
    assert raw != pytest.approx(many, abs=1e-3)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_come_best_first(scoring_server: RunningServer, path: str) -> None:
    wanted = scores(scoring_server, text_1=QUERY, text_2=DOCUMENTS)
    body = {"query": QUERY, "documents": [DOCUMENTS[0], {"text": DOCUMENTS[1]}, *DOCUMENTS[2:]], "top_n": 3}
    answer = scoring_server.post(path, body).json()
    order = sorted(range(4), key=lambda index: -wanted[index])[:3]
    assert [one["index"] for one in answer["results"]] == order
    assert [one["document"]["text"] for one in answer["results"]] == [DOCUMENTS[index] for index in order]
    assert [one["relevance_score"] for one in answer["results"]] == pytest.approx(
        [wanted[index] for index in order], abs=1e-6
    )
    assert answer["usage"]["total_tokens"] > 0
    bare = scoring_server.post(path, {**body, "top_n": 0, "return_documents": False}).json()["results"]
    assert len(bare) == 4
    assert "document" not in bare[0]


def test_labels(scoring_server: RunningServer) -> None:
    answer = scoring_server.post("/classify", {"input": DOCUMENTS}).json()
    assert [one["index"] for one in answer["data"]] == [0, 1, 2, 3]
    assert {one["label"] for one in answer["data"]} == {"LABEL_0"}
    assert all(one["num_classes"] == 1 and 0 < one["probs"][0] < 1 for one in answer["data"])
    pooled = scoring_server.post("/pooling", {"input": DOCUMENTS}).json()["data"]
    for one, other in zip(pooled, answer["data"], strict=True):  # another batch may round another way
        assert one["data"] == pytest.approx(other["probs"], abs=1e-6)


def test_a_pair_is_cut_at_the_longer_text(scoring_server: RunningServer) -> None:
    long = " ".join(f"w{number}" for number in range(10, 90))
    scoring_server.refused("/v1/score", {"text_1": QUERY, "text_2": long})
    (cut,) = scores(scoring_server, text_1=QUERY, text_2=long, truncate_prompt_tokens=12)
    kept = " ".join(long.split()[: 12 - 3 - 3])
    assert cut == pytest.approx(scores(scoring_server, text_1=QUERY, text_2=kept)[0], abs=1e-6)


REFUSED = [
    ("/v1/score", {"text_1": QUERY}, "text_1"),
    ("/v1/score", {"text_1": QUERY, "text_2": []}, "text_2"),
    ("/v1/score", {"text_1": [QUERY, QUERY], "text_2": DOCUMENTS}, "text_2"),
    ("/v1/score", {"text_1": QUERY, "text_2": "w8", "data_1": "w9"}, "text_1"),
    ("/v1/score", {"text_1": 5, "text_2": "w8"}, "text_1"),
    ("/rerank", {"documents": DOCUMENTS}, "query"),
    ("/rerank", {"query": QUERY, "documents": []}, "documents"),
    ("/rerank", {"query": QUERY, "documents": [{"title": "x"}]}, "documents"),
    ("/rerank", {"query": QUERY, "documents": DOCUMENTS, "top_n": -1}, "top_n"),
    ("/rerank", {"query": QUERY, "documents": DOCUMENTS, "max_tokens_per_doc": 5}, "max_tokens_per_doc"),
    ("/classify", {"input": "w5 " * 70}, "input"),
    ("/classify", {}, "input"),
    ("/v1/embeddings", {"input": "w5"}, "model"),
    ("/pooling", {"input": "w5", "dimensions": 3}, "dimensions"),
]


@pytest.mark.parametrize(("path", "body", "param"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_wrong_is_named(scoring_server: RunningServer, path: str, body: dict[str, Any], param: str) -> None:
    assert scoring_server.refused(path, body)["param"] == param
