"""Cases C: stop strings, min_tokens and ends of sequence."""

from __future__ import annotations

import json

import pytest
from tests.api.running import RunningServer, joined, read_events

COMPLETIONS = "/v1/completions"
ALPHABET = "The alphabet: a b c d e f g h i j"
END = "<|im_end|>"


def reference(server: RunningServer) -> tuple[str, list[str]]:
    """What follows ALPHABET without a stop string, whole and by token."""
    choice = server.complete(ALPHABET, max_tokens=24, ignore_eos=True, return_token_ids=True)["choices"][0]
    return choice["text"], [server.decode([token]) for token in choice["token_ids"]]


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("cut", [0, 1])
def test_c1_a_stop_string_over_several_tokens(server: RunningServer, cut: int, include: bool) -> None:
    text, tokens = reference(server)
    stop = "".join(tokens[8:12])[cut:]
    request = {"max_tokens": 24, "ignore_eos": True, "stop": ["never", stop], "include_stop_str_in_output": include}
    choice = server.complete(ALPHABET, **request)["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["stop_reason"] == stop
    end = text.index(stop) + (len(stop) if include else 0)
    assert choice["text"] == text[:end]
    chunks = server.chunks(COMPLETIONS, {"prompt": ALPHABET, "temperature": 0, **request})
    assert joined(chunks) == choice["text"]
    assert [piece["finish_reason"] for chunk in chunks for piece in chunk["choices"]][-1] == "stop"


def test_c1_chat_stops_too(server: RunningServer) -> None:
    text = server.chat("Count from one to ten.", max_tokens=24)["choices"][0]["message"]["content"]
    stop = text[5:12]
    choice = server.chat("Count from one to ten.", max_tokens=24, stop=stop)["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == text[: text.index(stop)]


def test_c2_a_long_stop_holds_nothing_back(server: RunningServer) -> None:
    """Each chunk brings the text of all tokens that there were when it was made."""
    text, tokens = reference(server)
    request = {"prompt": ALPHABET, "temperature": 0, "max_tokens": 24, "ignore_eos": True, "stop": "Q" * 30}
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, usage = server.chunks(COMPLETIONS, {**request, "stream_options": options})
    assert usage["usage"]["completion_tokens"] == 24
    for number, chunk in enumerate(chunks, start=1):
        assert joined(chunks[:number]) == "".join(tokens[: chunk["usage"]["completion_tokens"]])
    assert joined(chunks) == text
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_c2_only_a_prefix_of_the_stop_is_held_and_flushed(server: RunningServer) -> None:
    text, tokens = reference(server)
    stop = tokens[-1] + "Q" * 30  # the output ends inside of a possible match
    request = {"prompt": ALPHABET, "temperature": 0, "max_tokens": 24, "ignore_eos": True, "stop": stop}
    chunks = server.chunks(COMPLETIONS, request)
    assert joined(chunks) == text
    assert server.text(ALPHABET, max_tokens=24, ignore_eos=True, stop=stop) == text


@pytest.mark.parametrize("minimum", [5, 200])
def test_c4_min_tokens_comes_before_stop(server: RunningServer, minimum: int) -> None:
    (newline,) = server.tokens("\n")
    fields = {"logit_bias": {str(newline): 100}, "stop": "\n", "max_tokens": minimum + 20}
    assert server.complete("Hi", **fields)["usage"]["completion_tokens"] == 1
    answer = server.complete("Hi", min_tokens=minimum, **fields)
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] in (minimum, minimum + 1)


@pytest.mark.parametrize("minimum", [0, 1, 4])
@pytest.mark.parametrize("route", ["completion", "chat"])
def test_c5_exactly_min_tokens_before_a_forced_end(server: RunningServer, minimum: int, route: str) -> None:
    (end,) = server.tokens(END)
    ask = server.complete if route == "completion" else server.chat
    choice = ask("Hi", logit_bias={str(end): 100}, min_tokens=minimum, max_tokens=16, return_token_ids=True)["choices"][
        0
    ]
    assert choice["finish_reason"] == "stop"
    assert choice["token_ids"].index(end) == minimum
    assert len(choice["token_ids"]) == minimum + 1


def test_c5_stop_token_ids_wait_for_min_tokens(server: RunningServer) -> None:
    (word,) = server.tokens(" the")
    fields = {"logit_bias": {str(word): 100}, "stop_token_ids": [word], "return_token_ids": True}
    choice = server.complete("Hi", min_tokens=3, max_tokens=16, **fields)["choices"][0]
    assert choice["token_ids"].index(word) == 3
    assert choice["stop_reason"] == word


def test_c8_ignore_eos(server: RunningServer) -> None:
    ends = [*server.tokens(END), *server.tokens("<|endoftext|>")]
    bias = {str(end): 100 for end in ends}
    answer = server.complete("Hi", ignore_eos=True, max_tokens=64, logit_bias=bias)
    assert answer["usage"]["completion_tokens"] == 64
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("skip", [True, False])
def test_special_tokens_in_the_text(server: RunningServer, skip: bool) -> None:
    (end,) = server.tokens(END)
    text = server.text("Hi", ignore_eos=True, max_tokens=3, logit_bias={str(end): 100}, skip_special_tokens=skip)
    assert text == ("" if skip else END * 3)


def test_chunks_come_as_they_are_made(server: RunningServer) -> None:
    """The first ones are here while the request still runs."""
    body = {"prompt": ALPHABET, "max_tokens": 1500, "ignore_eos": True}
    with server.cut_short(), server.stream(COMPLETIONS, body) as answer:
        events = read_events(answer.iter_lines())
        for _ in range(5):
            assert json.loads(next(events))["choices"][0]["finish_reason"] is None
        assert server.metric("num_requests_running") == 1
