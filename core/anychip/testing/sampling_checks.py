"""Level 3: each sampling field changes the result in its direction, or is refused. Ignoring one is a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise

from anychip.engine.outputs import CompletionOutput, RequestOutput
from anychip.errors import RequestError
from anychip.grammar.params import StructuredOutputsParams
from anychip.sampling_params import SamplingParams
from anychip.testing.bench import random_tokens
from anychip.testing.check import NotApplicableError, require, whole
from anychip.testing.subject import Subject
from anychip.testing.tiny_model import END_OF_SEQUENCE

LENGTH = 24
PROMPTS = 4
GREEDY = SamplingParams(temperature=0.0, max_tokens=LENGTH, ignore_eos=True)
HOT = GREEDY.replace(temperature=1.5, seed=1)
HEATS = (0.2, 0.6, 1.1, 2.0)
SEEDS = 48


class RefusedError(Exception):
    """The platform, or the model's lack of something, refuses a field."""


class Asker:
    """Asks the tiny model: the same prompts each time, with other parameters."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def ask(self, params: SamplingParams | list[SamplingParams]) -> list[RequestOutput]:
        """Continue all prompts. Raises `RefusedError`."""
        prompts = [{"prompt_token_ids": random_tokens(50 + index, 12)} for index in range(PROMPTS)]
        try:
            outputs = self.subject.llm.generate(prompts, params, use_tqdm=False)
        except RequestError as error:
            raise RefusedError(str(error)) from error
        if any(choice.finish_reason == "error" for output in outputs for choice in output.outputs):
            raise RefusedError("its rows ended with an error")
        return outputs

    def tokens(self, params: SamplingParams) -> list[list[int]]:
        """The tokens of each prompt's first choice."""
        return [output.outputs[0].token_ids for output in self.ask(params)]

    def each(self, params: list[SamplingParams]) -> list[list[int]]:
        """The tokens of each prompt, asked with parameters of its own in one batch."""
        return [output.outputs[0].token_ids for output in self.ask(params)]

    def spread(self, heat: float) -> int:
        """How many different tokens SEEDS seeds give after one prompt at a temperature."""
        params = [HOT.replace(temperature=heat, max_tokens=1, seed=seed) for seed in range(SEEDS)]
        prompts = [{"prompt_token_ids": random_tokens(60, 12)}] * SEEDS
        outputs = self.subject.llm.generate(prompts, params, use_tqdm=False)
        return len({output.outputs[0].token_ids[0] for output in outputs})

    def first(self, params: SamplingParams) -> CompletionOutput:
        """The first prompt's first choice."""
        return self.ask(params)[0].outputs[0]


def _temperature(ask: Asker) -> None:
    greedy = ask.tokens(GREEDY)
    require(greedy == ask.tokens(GREEDY), "temperature 0 gave two different results")
    require(ask.tokens(HOT.replace(temperature=1e-4)) == greedy, "temperature 0.0001 differs from temperature 0")
    spread = [ask.spread(heat) for heat in HEATS]
    rising = all(low < high for low, high in pairwise(spread))
    require(rising, f"{SEEDS} seeds gave {spread} different results at temperatures {HEATS}")


def _is_greedy(name: str, value: float, ask: Asker) -> None:
    """At its strongest value the field leaves the best token only."""
    require(ask.tokens(HOT) != ask.tokens(GREEDY), "temperature 1.5 equals temperature 0: nothing can be seen")
    require(
        ask.tokens(HOT.replace(**{name: value})) == ask.tokens(GREEDY), f"{name}={value} differs from temperature 0"
    )


def _seed(ask: Asker) -> None:
    first, again, other = (ask.tokens(HOT.replace(seed=seed)) for seed in (42, 42, 43))
    require(first == again, "the same seed gave two different results")
    require(first != other, "seeds 42 and 43 gave the same result")
    require(
        ask.tokens(HOT.replace(seed=None)) != ask.tokens(HOT.replace(seed=None)),
        "two requests without a seed gave the same result",
    )


def _fewer_repeats(name: str, value: float, ask: Asker) -> None:
    plain, penalized = (sum(map(_repeats, ask.tokens(GREEDY.replace(**field)))) for field in ({}, {name: value}))
    require(penalized < plain, f"{name}={value} left {penalized} repeated tokens of {plain}")


def _repetition(ask: Asker) -> None:
    _fewer_repeats("repetition_penalty", 100.0, ask)
    for output in ask.ask(GREEDY.replace(repetition_penalty=100.0)):
        again = set(output.outputs[0].token_ids[:8]) & set(output.prompt_token_ids)
        require(not again, f"repetition_penalty=100 repeated tokens of the prompt: {sorted(again)}")


def _logit_bias(ask: Asker) -> None:
    usual = ask.first(GREEDY).token_ids[0]
    wanted = (usual + 1) % END_OF_SEQUENCE
    require(
        set(ask.first(GREEDY.replace(logit_bias={wanted: 100.0})).token_ids) == {wanted}, "logit_bias 100 did not win"
    )
    require(
        usual not in ask.first(GREEDY.replace(logit_bias={usual: -100.0})).token_ids, "logit_bias -100 did not forbid"
    )


def _allowed(ask: Asker) -> None:
    allowed = (3, 14, 15, 92)
    for params in (GREEDY, HOT):
        found = {token for tokens in ask.tokens(params.replace(allowed_token_ids=allowed)) for token in tokens}
        require(found <= set(allowed), f"allowed_token_ids {allowed} let {sorted(found - set(allowed))} through")


def _bad_words(ask: Asker) -> None:
    first, second = ask.first(GREEDY).token_ids[:2]
    banned = ask.first(GREEDY.replace(bad_words=(f"w{first}",))).token_ids
    require(first not in banned, f"bad_words let the word of token {first} through")
    pair = ask.first(GREEDY.replace(bad_words=(f"w{first} w{second}",))).token_ids
    require(pair[0] == first, "a bad word of two tokens forbade the first of them alone")
    require((first, second) not in pairwise(pair), "bad_words let a word of two tokens through")


def _min_tokens(ask: Asker) -> None:
    stop = ask.first(GREEDY).token_ids[0]
    kept = ask.first(GREEDY.replace(stop_token_ids=(stop,), min_tokens=5)).token_ids
    require(len(kept) >= 5 and stop not in kept[:5], f"min_tokens=5 gave {kept} with the stop token {stop}")
    forced = ask.first(GREEDY.replace(ignore_eos=False, min_tokens=4, logit_bias={END_OF_SEQUENCE: 100.0})).token_ids
    ends = forced.index(END_OF_SEQUENCE) if END_OF_SEQUENCE in forced else len(forced)
    require(ends == 4, f"min_tokens=4 before a forced end of sequence gave {ends} tokens")


def _max_tokens(ask: Asker) -> None:
    for count in (1, 7):
        output = ask.first(GREEDY.replace(max_tokens=count))
        require(len(output.token_ids) == count, f"max_tokens={count} gave {len(output.token_ids)} tokens")
        require(output.finish_reason == "length", f"max_tokens={count} ended with {output.finish_reason!r}")


def _stop_token_ids(ask: Asker) -> None:
    tokens = ask.first(GREEDY).token_ids
    output = ask.first(GREEDY.replace(stop_token_ids=(tokens[3],)))
    require(output.token_ids == tokens[: tokens.index(tokens[3]) + 1], "stop_token_ids did not end the sequence there")
    require((output.finish_reason, output.stop_reason) == ("stop", tokens[3]), "stop_token_ids is not the stop reason")


def _stop(ask: Asker) -> None:
    tokens = ask.first(GREEDY).token_ids
    for include in (False, True):
        word = f"w{tokens[2]}"
        output = ask.first(GREEDY.replace(stop=(word,), include_stop_str_in_output=include))
        require(output.finish_reason == "stop", f"stop={word!r} ended with {output.finish_reason!r}")
        require(
            (word in output.text) == include,
            f"stop={word!r} with include_stop_str_in_output={include}: {output.text!r}",
        )


def _ignore_eos(ask: Asker) -> None:
    ending = GREEDY.replace(logit_bias={END_OF_SEQUENCE: 100.0})
    require(
        len(ask.first(ending.replace(ignore_eos=False)).token_ids) == 1, "an end of sequence did not end the sequence"
    )
    require(
        len(ask.first(ending.replace(ignore_eos=True)).token_ids) == LENGTH, "ignore_eos ended at an end of sequence"
    )


def _logprobs(ask: Asker) -> None:
    output = ask.first(GREEDY.replace(logprobs=5))
    require(output.logprobs is not None and len(output.logprobs) == LENGTH, "logprobs=5 did not come for every token")
    for token, entry in zip(output.token_ids, output.logprobs or (), strict=True):
        values = [logprob.logprob for logprob in entry.values()]
        require(
            len(entry) == 5 and entry[token].rank == 1,
            f"logprobs=5 gave {len(entry)}, the best one of rank {entry[token].rank}",
        )
        require(max(values) == entry[token].logprob <= 0, "the greedy token's log-probability is not the highest")
    require(ask.first(GREEDY).logprobs is None, "log-probabilities came unasked")


def _prompt_logprobs(ask: Asker) -> None:
    output = ask.ask(GREEDY.replace(prompt_logprobs=2))[0]
    scores = output.prompt_logprobs or []
    require(len(scores) == len(output.prompt_token_ids), "prompt_logprobs did not come for every token of the prompt")
    require(scores[0] is None, "the first token of a prompt has a log-probability")
    for token, entry in zip(output.prompt_token_ids[1:], scores[1:], strict=True):
        require(entry is not None and token in entry, "prompt_logprobs lacks the prompt's own token")


def _n(ask: Asker) -> None:
    choices = ask.ask(HOT.replace(seed=7, n=4))[0].outputs
    require(len(choices) == 4, f"n=4 gave {len(choices)} choices")
    require(len({tuple(choice.token_ids) for choice in choices}) == 4, "the choices of n=4 are not all different")


def _structured(ask: Asker) -> None:
    endless = GREEDY.replace(logit_bias={END_OF_SEQUENCE: -100.0})  # no grammar has an end of sequence in it
    plain = ask.tokens(endless)
    allowing = endless.replace(structured_outputs=StructuredOutputsParams(regex=r"(w\d+)*"))
    require(ask.tokens(allowing) == plain, "a grammar that allows every token changed some")
    wanted = [(tokens[0] + 1) % END_OF_SEQUENCE for tokens in plain]
    pairs = [StructuredOutputsParams(choice=(f"w{token}w{token}",)) for token in wanted]
    for params in (GREEDY, HOT.replace(top_k=20)):
        usual = ask.tokens(params)
        first, third = (params.replace(structured_outputs=pairs[index]) for index in (0, 2))
        found = ask.each([first, params, third, params])
        require(found[1] == usual[1] and found[3] == usual[3], "a mask changed rows that have none")
        require(found[0] == [wanted[0]] * 2 and found[2] == [wanted[2]] * 2, f"masks gave {found[0]} and {found[2]}")
    output = ask.first(GREEDY.replace(structured_outputs=pairs[0]))
    require(output.finish_reason == "stop", f"the end of a grammar ended with {output.finish_reason!r}")


def _text(ask: Asker) -> None:
    output = ask.first(GREEDY)
    words = [f"w{token}" for token in output.token_ids]
    require(output.text.split() == words, f"the text is {output.text!r}")
    require(ask.first(GREEDY.replace(detokenize=False)).text == "", "detokenize=False gave text")
    require(
        ask.first(GREEDY.replace(skip_special_tokens=False)).text.split() == words,
        "skip_special_tokens changed plain words",
    )
    require(
        ask.first(GREEDY.replace(visible_tokens=("w1",))).text.split() == words, "visible_tokens changed plain words"
    )


FIELDS: Mapping[str, Callable[[Asker], None]] = {
    "temperature": _temperature,
    "top_k": partial(_is_greedy, "top_k", 1),
    "top_p": partial(_is_greedy, "top_p", 1e-6),
    "min_p": partial(_is_greedy, "min_p", 1.0),
    "seed": _seed,
    "presence_penalty": partial(_fewer_repeats, "presence_penalty", 2.0),
    "frequency_penalty": partial(_fewer_repeats, "frequency_penalty", 2.0),
    "repetition_penalty": _repetition,
    "logit_bias": _logit_bias,
    "allowed_token_ids": _allowed,
    "bad_words": _bad_words,
    "min_tokens": _min_tokens,
    "max_tokens": _max_tokens,
    "stop_token_ids": _stop_token_ids,
    "stop, include_stop_str_in_output": _stop,
    "ignore_eos": _ignore_eos,
    "logprobs": _logprobs,
    "prompt_logprobs": _prompt_logprobs,
    "n": _n,
    "structured_outputs": _structured,
    "detokenize, skip_special_tokens, visible_tokens": _text,
}
"""By the fields each one tries; a test of the kit compares them with `SamplingParams`."""

DRAWS = ("temperature", "top_k", "top_p", "min_p", "seed", "n")
"""Fields that say how to draw from a distribution."""


def _repeats(tokens: list[int]) -> int:
    return len(tokens) - len(set(tokens))


def _honoured(name: str, check: Callable[[Asker], None], subject: Subject) -> str:
    if name in DRAWS and not subject.computes:
        raise NotApplicableError("the platform's distributions have one token")
    asker = Asker(subject)
    asker.ask(SamplingParams(max_tokens=1))  # what is refused here is no field's fault
    try:
        check(asker)
    except RefusedError as reason:
        return f"refused: {reason}"
    return ""


SAMPLING_CHECKS = tuple(
    whole(3, f"sampling: {name}", partial(_honoured, name, check), "sampling") for name, check in FIELDS.items()
)
