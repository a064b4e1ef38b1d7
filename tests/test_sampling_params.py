"""Sampling parameters: what is legal, and what is refused with its name."""

import math

import pytest

from anychip.errors import RequestError
from anychip.sampling_params import MAX_CHOICES, MAX_LOGPROBS, MAX_WORDS, SamplingParams

REFUSED = [
    ("temperature", -1),
    ("temperature", -0.1),
    ("temperature", 2.5),
    ("top_p", 0),
    ("top_p", 1.1),
    ("top_p", -0.5),
    ("top_k", -2),
    ("top_k", 1.5),
    ("top_k", 2**31),
    ("min_p", -0.1),
    ("min_p", 1.1),
    ("presence_penalty", 2.1),
    ("presence_penalty", -2.1),
    ("frequency_penalty", 2.1),
    ("frequency_penalty", -2.1),
    ("repetition_penalty", 0),
    ("repetition_penalty", -1),
    ("repetition_penalty", 1.1e-308),
    ("repetition_penalty", 1e308),
    ("max_tokens", -5),
    ("max_tokens", -1),
    ("max_tokens", 2**31),
    ("max_tokens", 1.5),
    ("min_tokens", -1),
    ("min_tokens", 17),
    ("stop", [""]),
    ("stop", ["a", ""]),
    ("stop", ""),
    ("stop", [1]),
    ("bad_words", [""]),
    ("logprobs", -2),
    ("logprobs", -1),
    ("logprobs", MAX_LOGPROBS + 1),
    ("logprobs", True),
    ("prompt_logprobs", -2),
    ("prompt_logprobs", MAX_LOGPROBS + 1),
    ("n", 0),
    ("n", -1),
    ("n", MAX_CHOICES + 1),
    ("n", 1.0),
    ("seed", 2**64),
    ("seed", 10**400),
    ("stop", [f"w{index}" for index in range(MAX_WORDS + 1)]),
    ("bad_words", [f"w{index}" for index in range(MAX_WORDS + 1)]),
    ("temperature", 10**400),
    ("seed", 2**63),
    ("seed", -(2**63) - 1),
    ("seed", 1.5),
    ("stop_token_ids", [1.5]),
    ("stop_token_ids", [True]),
    ("stop_token_ids", ["1"]),
    ("allowed_token_ids", []),
    ("allowed_token_ids", ["1"]),
    ("logit_bias", {1: 101}),
    ("logit_bias", {1: -100.5}),
    ("logit_bias", {1: math.nan}),
    ("logit_bias", {"1": 1}),
    ("logit_bias", {1: "1"}),
    ("logit_bias", {1: True}),
]
NUMBERS = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "max_tokens",
    "min_tokens",
    "logprobs",
    "prompt_logprobs",
    "n",
    "seed",
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_what_is_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(RequestError, match=name) as refused:
        SamplingParams(**{name: value})
    assert refused.value.param == name


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "1", True, [1]], ids=repr)
def test_what_is_no_number_is_refused_by_name(name, value):
    with pytest.raises(RequestError, match=name) as refused:
        SamplingParams(**{name: value})
    assert refused.value.param == name


@pytest.mark.parametrize("name", [*NUMBERS, "stop_token_ids", "logit_bias"])
def test_a_mandatory_number_is_not_null(name):
    nullable = {"max_tokens", "logprobs", "prompt_logprobs", "seed", "stop_token_ids", "logit_bias"}
    if name in nullable:
        SamplingParams(**{name: None})
    else:
        with pytest.raises(RequestError, match=name):
            SamplingParams(**{name: None})


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"temperature": 2},
        {"top_p": 1e-6},
        {"top_k": 0},
        {"min_p": 1},
        {"presence_penalty": -2, "frequency_penalty": 2},
        {"repetition_penalty": 0.1},
        {"max_tokens": 0},
        {"min_tokens": 16},
        {"min_tokens": 100, "max_tokens": None},
        {"logprobs": 0, "prompt_logprobs": MAX_LOGPROBS},
        {"seed": -(2**63)},
        {"seed": 2**63 - 1},
        {"n": MAX_CHOICES},
        {"logit_bias": {0: -100, 5: 100}},
        {"stop": None, "bad_words": None},
    ],
)
def test_the_edges_of_the_ranges_are_legal(fields):
    SamplingParams(**fields)


def test_values_take_one_form():
    params = SamplingParams(stop="end", top_k=-1, stop_token_ids=[1, 2], allowed_token_ids=[3], bad_words=["no"])
    assert params.stop == ("end",)
    assert params.top_k == 0
    assert params.stop_token_ids == (1, 2)
    assert params.allowed_token_ids == (3,)
    assert params.bad_words == ("no",)


def test_greedy_is_temperature_zero():
    assert SamplingParams(temperature=0.0).greedy
    assert not SamplingParams(temperature=1e-6).greedy


def test_a_changed_copy_is_checked():
    assert SamplingParams().replace(n=2).n == 2
    with pytest.raises(RequestError, match="top_p"):
        SamplingParams().replace(top_p=0)


def test_a_refusal_reads_like_a_sentence():
    with pytest.raises(RequestError, match=r"^temperature must be between 0 and 2, got 3\.$"):
        SamplingParams(temperature=3)
    with pytest.raises(RequestError, match=r"^top_p must be above 0 and at most 1, got 0\.$"):
        SamplingParams(top_p=0)
    with pytest.raises(RequestError, match=r"^repetition_penalty must be between 0.001 and 1000, got 0\.$"):
        SamplingParams(repetition_penalty=0)
