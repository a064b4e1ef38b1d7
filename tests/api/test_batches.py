"""/v1/files and /v1/batches, with OpenAI's client and without."""

from __future__ import annotations

import json
import time
from typing import Any

import openai
import pytest
from tests.api.running import LIMIT, RunningServer

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LONG = {"max_tokens": 1500, "ignore_eos": True}


def line(custom_id: str, url: str = COMPLETIONS, **body: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def upload(client: openai.OpenAI, *lines: dict[str, Any] | bytes) -> str:
    data = b"\n".join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in lines)
    return client.files.create(file=("in.jsonl", data), purpose="batch").id


def create(client: openai.OpenAI, *lines: dict[str, Any] | bytes, url: str = COMPLETIONS, **fields: Any) -> Any:
    fields.setdefault("completion_window", "24h")
    return client.batches.create(input_file_id=upload(client, *lines), endpoint=url, **fields)  # type: ignore[arg-type]


def ended(client: openai.OpenAI, batch: Any) -> Any:
    deadline = time.monotonic() + LIMIT
    while batch.status not in ("failed", "completed", "expired", "cancelled"):
        assert time.monotonic() < deadline, batch
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def results(client: openai.OpenAI, file_id: str | None) -> dict[str, Any]:
    assert file_id is not None
    text = client.files.content(file_id).text
    return {one["custom_id"]: one for one in map(json.loads, text.splitlines())}


def test_a_batch_of_chats(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    asked = [line(f"chat-{number}", CHAT, messages=messages, max_tokens=number, seed=1) for number in range(1, 9)]
    asked.append(line("wrong", CHAT, messages=messages, temperature=9))
    asked.append(line("streamed", CHAT, messages=messages, stream=True))
    batch = ended(client, create(client, *asked, url=CHAT, metadata={"for": "a test"}))
    assert batch.status == "completed"
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (10, 8, 2)
    good = results(client, batch.output_file_id)
    assert set(good) == {f"chat-{number}" for number in range(1, 9)}
    answer = good["chat-3"]["response"]
    assert (answer["status_code"], good["chat-3"]["error"]) == (200, None)
    assert answer["body"]["usage"]["completion_tokens"] <= 3
    bad = results(client, batch.error_file_id)
    assert {one: bad[one]["response"]["body"]["error"]["param"] for one in bad} == {
        "wrong": "temperature",
        "streamed": "stream",
    }
    total = sum(one["response"]["body"]["usage"]["total_tokens"] for one in good.values())
    assert batch.usage is not None
    assert batch.usage.total_tokens == total
    assert batch.metadata == {"for": "a test"}


def test_a_batch_is_listed_and_its_files_are_kept_until_deleted(client: openai.OpenAI) -> None:
    first, second = (ended(client, create(client, line("a", prompt="Hi", max_tokens=1))) for _ in range(2))
    listed = client.batches.list(limit=1)
    assert listed.data[0].id == second.id
    assert listed.has_more
    assert client.batches.list(limit=1, after=second.id).data[0].id == first.id
    outputs = {file.id for file in client.files.list(purpose="batch_output")}
    assert {first.output_file_id, second.output_file_id} <= outputs
    file = client.files.retrieve(first.input_file_id)
    assert (file.filename, file.purpose, file.bytes) == ("in.jsonl", "batch", len(client.files.content(file.id).read()))
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)


def test_cancelling_frees_the_rows_and_keeps_what_is_done(client: openai.OpenAI, server: RunningServer) -> None:
    batch = create(
        client, line("short", prompt="Hi", max_tokens=1), *(line(str(n), prompt="Hi", **LONG) for n in range(6))
    )
    server.wait_until(lambda: client.batches.retrieve(batch.id).request_counts.completed == 1)
    server.wait_until(lambda: server.metric("num_requests_running"))
    assert client.batches.cancel(batch.id).status == "cancelling"
    server.wait_quiet()
    batch = ended(client, batch)
    assert batch.status == "cancelled"
    assert set(results(client, batch.output_file_id)) == {"short"}
    errors = results(client, batch.error_file_id)
    assert {errors[str(number)]["error"]["code"] for number in range(6)} == {"batch_cancelled"}
    with pytest.raises(openai.ConflictError):
        client.batches.cancel(batch.id)


def test_a_batch_expires(client: openai.OpenAI) -> None:
    batch = ended(client, create(client, line("long", prompt="Hi", **LONG, n=4), completion_window="1s"))  # type: ignore[arg-type]
    assert batch.status == "expired"
    assert results(client, batch.error_file_id)["long"]["error"]["code"] == "batch_expired"
    assert batch.output_file_id is None


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([b""], "empty_file"),
        ([b"{"], "invalid_json_line"),
        ([b"[" * 100_000], "invalid_json_line"),
        ([b'{"custom_id": "\\ud800", "url": "/v1/completions", "body": {}}'], "invalid_json_line"),
        ([line("a"), line("a")], "duplicate_custom_id"),
        ([line("")], "invalid_custom_id"),
        ([line("a", CHAT)], "mismatched_url"),
        ([{"custom_id": 5, "url": COMPLETIONS, "body": {}}], "invalid_json_line"),
        ([{"custom_id": "a", "method": "GET", "url": COMPLETIONS, "body": {}}], "invalid_json_line"),
    ],
)
def test_a_file_that_is_no_batch(client: openai.OpenAI, lines: list[Any], code: str) -> None:
    batch = ended(client, create(client, *lines))
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert batch.errors.data[0].code == code
    assert batch.errors.data[-1].line == len(lines)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"endpoint": "/v1/models"}, "endpoint"),
        ({"endpoint": 5}, "endpoint"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"completion_window": "0h"}, "completion_window"),
        ({"input_file_id": None}, "input_file_id"),
        ({"metadata": {"a": "b" * 600}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after"),
    ],
)
def test_a_wrong_batch(client: openai.OpenAI, server: RunningServer, fields: dict[str, Any], param: str) -> None:
    body = {"input_file_id": upload(client, line("a")), "endpoint": COMPLETIONS, "completion_window": "24h"}
    assert server.refused("/v1/batches", {**body, **fields})["param"] == param


def test_what_is_not_there(server: RunningServer) -> None:
    for path in ("/v1/batches/x", "/v1/files/x", "/v1/files/x/content"):
        assert server.http.get(path).status_code == 404
    assert server.http.delete("/v1/files/x").status_code == 404
    body = {"input_file_id": "x", "endpoint": COMPLETIONS, "completion_window": "24h"}
    assert server.refused("/v1/batches", body, 404)["param"] == "input_file_id"
    for query in ("limit=0", "limit=x", f"limit={'9' * 30}", "order=up", "after=x"):
        assert server.http.get(f"/v1/batches?{query}").status_code == 400, query


def test_a_wrong_upload(server: RunningServer) -> None:
    def status(**fields: Any) -> int:
        return server.http.post("/v1/files", **fields).status_code

    file = {"file": ("a.jsonl", b"x")}
    assert status(files=file) == 400
    assert status(files=file, data={"purpose": "fine-tune"}) == 400
    assert status(data={"purpose": "batch"}) == 400
    assert status(files=file, data={"purpose": "batch", "expires_after[anchor]": "created_at"}) == 400
    assert status(content=b"{}", headers={"content-type": "application/json"}) == 400
    assert status(content=b"--x", headers={"content-type": "multipart/form-data; boundary=x"}) == 400
    assert status(content=b"x", headers={"content-type": "multipart/form-data"}) == 400
    large = {"file": ("a.jsonl", b"x" * 2_000_000)}
    assert status(files=large, data={"purpose": "batch"}) == 413
    kept = {"purpose": "batch", "expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    answer = server.http.post("/v1/files", files=file, data=kept).json()
    assert answer["expires_at"] == answer["created_at"] + 3600
