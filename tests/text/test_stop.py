from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from anychip.text.stop import StopChecker


def run(checker: StopChecker, pieces: list[str]) -> tuple[str, str | None]:
    shown, stopped = "", None
    for piece in pieces:
        emit, stopped = checker.push(piece)
        shown += emit
        if stopped is not None:
            return shown, stopped
    return shown + checker.flush(), stopped


def naive(text: str, stops: tuple[str, ...], include: bool) -> tuple[str, str | None]:
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end if include else end - len(longest)], longest
    return text, None


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in itertools.pairwise(edges)]


WORDS = st.text(alphabet="abc", min_size=1, max_size=5)


@settings(max_examples=500, deadline=None)
@given(
    text=st.text(alphabet="abc", max_size=40),
    stops=st.lists(WORDS, max_size=3),
    places=st.lists(st.integers(0, 100), max_size=10),
    include=st.booleans(),
)
def test_equals_a_naive_reading_of_the_whole_text(text, stops, places, include):
    checker = StopChecker(tuple(stops), include)
    assert run(checker, cut(text, places)) == naive(text, tuple(stops), include)


@settings(max_examples=300, deadline=None)
@given(text=st.text(alphabet="ab", max_size=20), stop=WORDS)
def test_only_a_proper_prefix_of_a_stop_is_held_back(text, stop):
    checker, shown = StopChecker((stop,)), 0
    for pushed, character in enumerate(text, start=1):
        emit, stopped = checker.push(character)
        shown += len(emit)
        if stopped:
            return
        held = text[shown:pushed]
        assert len(held) < len(stop)
        assert stop.startswith(held)


def test_a_long_stop_does_not_delay_text():
    checker = StopChecker(("x" * 30,))
    assert checker.push("hello ") == ("hello ", None)
    assert checker.push("worldx") == ("world", None)
    assert checker.push("y") == ("xy", None)


def test_a_stop_over_three_pieces_never_shows():
    checker = StopChecker(("defgh",))
    assert [checker.push(piece) for piece in ("abcd", "ef", "ghij")] == [("abc", None), ("", None), ("", "defgh")]
    assert checker.push("more") == ("", "defgh")


def test_without_stops_text_passes():
    assert StopChecker(()).push("abc") == ("abc", None)
