"""/v1/responses, with OpenAI's client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from tests.api.running import RunningServer, read_events
from tests.api.test_case_i_disconnect import send, wait_for

RESPONSES = "/v1/responses"
QUESTION = "What is the capital of France?"
SHORT: Any = {"model": "demo", "input": QUESTION, "instructions": "Be short.", "temperature": 0}
LONG = {"input": "Tell a story.", "max_output_tokens": 1500, "ignore_eos": True}


def test_it_answers(client: openai.OpenAI, server: RunningServer) -> None:
    response = client.responses.create(
        model="demo", input=QUESTION, instructions="Be short.", temperature=0, metadata={"for": "a test"}
    )
    assert "Paris" in response.output_text
    assert (response.status, response.error, response.incomplete_details) == ("completed", None, None)
    assert (response.instructions, response.metadata) == ("Be short.", {"for": "a test"})
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": QUESTION}]
    chat = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0}).json()
    assert response.output_text == chat["choices"][0]["message"]["content"]
    assert response.usage.input_tokens == chat["usage"]["prompt_tokens"]


def test_the_events_of_a_stream(client: openai.OpenAI) -> None:
    fields: Any = {**SHORT, "store": False}
    events = list(client.responses.create(**fields, stream=True))
    kinds = [event.type for event in events]
    deltas = kinds.count("response.output_text.delta")
    assert deltas >= 1, "what comes while a client is busy comes together"
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * deltas,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    final = events[-1]
    assert final.type == "response.completed"
    assert final.response.output_text == text == client.responses.create(**fields).output_text
    item = final.response.output[0]
    assert {getattr(event, "item_id", item.id) for event in events} == {item.id}
    with client.responses.stream(**{key: value for key, value in fields.items() if key != "store"}) as stream:
        assert stream.get_final_response().output_text == text


def test_events_have_their_names(server: RunningServer) -> None:
    with server.stream(RESPONSES, {"input": "Hi", "max_output_tokens": 2}) as answer:
        lines = [line for line in answer.iter_lines() if line]
    names = [line.removeprefix("event: ") for line in lines[::2]]
    assert names == [json.loads(line)["type"] for line in read_events(iter(lines[1::2]))]


def test_a_cut_response_is_incomplete(client: openai.OpenAI) -> None:
    response = client.responses.create(
        model="demo", input=QUESTION, max_output_tokens=2, extra_body={"ignore_eos": True}
    )
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    last = list(client.responses.create(model="demo", input=QUESTION, max_output_tokens=2, stream=True))[-1]
    assert last.type == "response.incomplete"


def test_it_goes_on_from_a_response(client: openai.OpenAI, server: RunningServer) -> None:
    first = client.responses.create(model="demo", input=QUESTION, instructions="Be short.", temperature=0)
    second = client.responses.create(
        model="demo", input="And of Germany?", previous_response_id=first.id, temperature=0
    )
    assert "Berlin" in second.output_text
    said = [("user", QUESTION), ("assistant", first.output_text), ("user", "And of Germany?")]
    messages = [{"role": role, "content": content} for role, content in said]
    chat = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0}).json()
    assert second.usage is not None
    assert second.usage.input_tokens == chat["usage"]["prompt_tokens"], "instructions are not carried over"
    whole: Any = [*first.output, {"role": "user", "content": [{"type": "input_text", "text": "And of Germany?"}]}]
    by_hand = client.responses.create(
        model="demo", input=[{"role": "user", "content": QUESTION}, *whole], temperature=0
    )
    assert by_hand.output_text == second.output_text


def test_a_stored_response_can_be_read_and_deleted(client: openai.OpenAI) -> None:
    response = client.responses.create(model="demo", input=[{"role": "user", "content": "Hi"}], max_output_tokens=1)
    assert client.responses.retrieve(response.id).output_text == response.output_text
    (item,) = client.responses.input_items.list(response.id).data
    assert item.type == "message"
    assert item.content[0].text == "Hi"  # type: ignore[union-attr]
    client.responses.delete(response.id)
    for call in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            call(response.id)
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(model="demo", input="Hi", previous_response_id=response.id)
    assert caught.value.param == "previous_response_id"
    unkept = client.responses.create(model="demo", input="Hi", max_output_tokens=1, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)


def test_the_least_recently_used_are_forgotten(client: openai.OpenAI) -> None:
    kept = client.responses.create(model="demo", input="Hi", max_output_tokens=1).id
    lost = client.responses.create(model="demo", input="Hi", max_output_tokens=1).id
    for _ in range(9):  # the server of these tests keeps ten
        client.responses.create(model="demo", input="Hi", max_output_tokens=1)
        client.responses.retrieve(kept)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(lost)


def test_in_the_background(client: openai.OpenAI, server: RunningServer) -> None:
    response = client.responses.create(**SHORT, background=True)
    assert response.status == "queued"
    server.wait_until(lambda: client.responses.retrieve(response.id).status not in ("queued", "in_progress"))
    response = client.responses.retrieve(response.id)
    assert response.status == "completed"
    assert "Paris" in response.output_text


def test_what_is_under_way_cannot_be_gone_on_from(client: openai.OpenAI, server: RunningServer) -> None:
    with server.cut_short():
        response_id = server.post(RESPONSES, {**LONG, "background": True}).json()["id"]
        with pytest.raises(openai.BadRequestError, match="under way"):
            client.responses.create(model="demo", input="And?", previous_response_id=response_id)
        client.responses.cancel(response_id)


def test_a_background_stream_is_read_again(client: openai.OpenAI) -> None:
    stream = client.responses.create(**SHORT, background=True, stream=True)
    first = [next(stream) for _ in range(6)]  # type: ignore[call-overload]
    stream.close()
    assert first[0].type == "response.created"
    rest = list(client.responses.retrieve(first[0].response.id, stream=True, starting_after=5))
    assert [event.sequence_number for event in rest] == list(range(6, 6 + len(rest)))
    assert rest[-1].type == "response.completed"
    whole = list(client.responses.retrieve(first[0].response.id, stream=True))
    assert [event.type for event in whole] == [event.type for event in [*first, *rest]]


def test_cancelling_frees_its_rows(client: openai.OpenAI, server: RunningServer) -> None:
    for end in (client.responses.cancel, client.responses.delete):
        with server.cut_short():
            response_id = server.post(RESPONSES, {**LONG, "background": True}).json()["id"]
            wait_for(server, "num_requests_running", 1)
            end(response_id)
    response_id = server.post(RESPONSES, {**LONG, "background": True}).json()["id"]
    assert client.responses.cancel(response_id).status == "cancelled"
    assert client.responses.retrieve(response_id).status == "cancelled"
    done = client.responses.create(model="demo", input="Hi", max_output_tokens=1)
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(done.id)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_rows(server: RunningServer, stream: bool) -> None:
    with server.cut_short(), send(server, RESPONSES, {**LONG, "stream": stream}):
        wait_for(server, "num_requests_running", 1)


def test_logprobs(client: openai.OpenAI) -> None:
    fields: Any = {**SHORT, "top_logprobs": 2}
    fields["include"] = ["message.output_text.logprobs"]
    part: Any = client.responses.create(**fields).output[0].content[0]  # type: ignore[union-attr]
    assert "".join(row.token for row in part.logprobs).startswith(part.text)
    assert all(len(row.top_logprobs) == 2 for row in part.logprobs)
    events = list(client.responses.create(**fields, stream=True))
    rows = [row.token for event in events if event.type == "response.output_text.delta" for row in event.logprobs]
    assert rows == [row.token for row in part.logprobs][: len(rows)]
    assert "".join(rows) == part.text


def test_what_has_no_effect_is_named(server: RunningServer) -> None:
    fields = {
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"},
        "stream_options": {"include_obfuscation": False},
        "prompt_cache_key": "x",
        "user": "me",
        "stream": True,
    }
    answer = server.post(RESPONSES, {"input": "Hi", "max_output_tokens": 1, **fields})
    named = answer.headers["x-anychip-ignored"].split(", ")
    assert sorted(named) == [
        "include.reasoning.encrypted_content",
        "prompt_cache_key",
        "reasoning.summary",
        "stream_options.include_obfuscation",
        "user",
    ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": ["Hi"]}, "input"),
        ({"input": [{}]}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input"),
        ({"input": [{"type": "function_call_output", "call_id": "x"}]}, "input"),
        ({"temperature": 9}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 10**9}, "max_output_tokens"),
        ({"max_output_tokens": 10**30}, "max_output_tokens"),
        ({"top_logprobs": 1000}, "top_logprobs"),
        ({"instructions": 5}, "instructions"),
        ({"metadata": {"a": 5}}, "metadata"),
        ({"truncation": "auto"}, "truncation"),
        ({"conversation": "x"}, "conversation"),
        ({"prompt": {"id": "x"}}, "prompt"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"background": True, "store": False}, "background"),
        ({"stream_options": {}}, "stream_options"),
        ({"reasoning": 5}, "reasoning"),
    ],
)
def test_a_wrong_request(server: RunningServer, fields: dict[str, Any], param: str) -> None:
    assert server.refused(RESPONSES, {"input": "Hi", **fields})["param"] == param


@pytest.mark.parametrize("query", ["stream=true", "stream=true&starting_after=x"])
def test_what_was_no_background_response_is_not_streamed_again(server: RunningServer, query: str) -> None:
    response_id = server.post(RESPONSES, {"input": "Hi", "max_output_tokens": 1}).json()["id"]
    assert server.http.get(f"{RESPONSES}/{response_id}?{query}").status_code == 400


@pytest.mark.parametrize("body", ["{", "[]", "[" * 100_000, '{"input": "\\ud800"}', '{"input": ' + "[" * 50_000])
def test_what_is_no_request(server: RunningServer, body: str) -> None:
    assert server.refused(RESPONSES, body)["type"] == "invalid_request_error"
