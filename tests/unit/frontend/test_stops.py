"""Stop strings do not depend on where the text is cut."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pdcluster_worker.frontend.stops import StopMatcher

TEXT = st.text("abé😀", max_size=30)
STOPS = st.lists(st.text("abé😀", min_size=1, max_size=5), max_size=4).map(tuple)


def run(
    text: str, stops: tuple[str, ...], cuts: list[int], *, keep: bool = False
) -> tuple[str, str | None]:
    matcher = StopMatcher(stops, keep=keep)
    shown = ""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    for begin, end in pairwise(places):
        shown += matcher.push(text[begin:end])
        if matcher.matched is not None:
            return shown, matcher.matched
    return shown + matcher.finish(), None


def expected(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """Character by character, by the definition."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            longest = max(ended, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(TEXT, STOPS, st.lists(st.integers(0, 30), max_size=30))
def test_any_cut_gives_the_same(text: str, stops: tuple[str, ...], cuts: list[int]) -> None:
    assert run(text, stops, cuts) == expected(text, stops)


@given(TEXT, STOPS, st.lists(st.integers(0, 30), max_size=30))
def test_keep_shows_the_stop(text: str, stops: tuple[str, ...], cuts: list[int]) -> None:
    shown, matched = run(text, stops, cuts, keep=True)
    assert (shown, matched) == (expected(text, stops)[0] + (matched or ""), matched)


@given(TEXT, STOPS)
def test_holds_back_only_what_may_become_a_stop(text: str, stops: tuple[str, ...]) -> None:
    matcher = StopMatcher(stops)
    shown = ""
    for letter in text:
        shown += matcher.push(letter)
        if matcher.matched is not None:
            return
    rest = matcher.finish()
    assert shown + rest == text
    assert rest == "" or any(stop.startswith(rest) for stop in stops)


def test_without_stops_nothing_is_held() -> None:
    assert StopMatcher(()).push("abc") == "abc"


def test_overlapping_prefixes() -> None:
    matcher = StopMatcher(("aab",))
    assert matcher.push("aa") == ""
    assert matcher.push("a") == "a"
    assert matcher.push("b") == ""
    assert matcher.matched == "aab"
