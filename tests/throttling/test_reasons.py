"""Reasons in words."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.throttling import Reason
from trawl.throttling.reasons import LIMIT_NAMES


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (Reason("a.example", "delay", 10.4, "configuration"), "a.example delay 0.4 s (configuration)"),
        (Reason("a.example", "delay", 10.0266, "configuration"), "a.example delay 0.03 s (configuration)"),
        (Reason("a.example", "quota", 86410.4, "configuration"), "a.example quota 86400 s (configuration)"),
        (Reason("", "not_before", 12.0, "the request's own delay"), "the request's own delay 2 s"),
        (
            Reason("b.example", "hint", 22.0, "Retry-After: 12, 429 of /x"),
            "b.example hint 12 s (Retry-After: 12, 429 of /x)",
        ),
        (Reason("a.example", "concurrency", math.inf), "a.example all slots are busy"),
        (Reason("", "places", math.inf), "CONCURRENT_REQUESTS are under way"),
        (Reason("a.example", "delay", 3.0), "a.example delay 0 s"),
        (Reason("a.example", "", 3.0), "a.example may go"),
    ],
)
def test_i11_a_reason_is_one_line(reason: Reason, text: str) -> None:
    assert reason.text(10.0) == text


REASONS = st.builds(
    Reason,
    scope=st.sampled_from(["", "a.example", "api", "[::1]:8080"]),
    limit=st.sampled_from(["", *LIMIT_NAMES]),
    until=st.one_of(st.just(math.inf), st.floats(-1e6, 1e9)),
    source=st.sampled_from(["", "configuration", "Retry-After: 12, 429 of /x", "backoff step 3"]),
)


@given(reason=REASONS, now=st.floats(0.0, 1e6))
def test_i11_any_reason_is_one_line_that_names_scope_and_source(reason: Reason, now: float) -> None:
    text = reason.text(now)
    assert text == text.strip() == " ".join(text.split())
    assert reason.scope in text
    assert text.endswith(f"({reason.source})") == bool(reason.source and reason.limit)
    assert text.endswith("may go") == (not reason.limit)


@given(left=st.one_of(st.floats(-1.0, 30.0), st.floats(-1e3, 1e9)), now=st.floats(0.0, 1e6))
def test_i11_the_seconds_left_are_told_to_the_hundredth_or_whole_and_never_below_nothing(
    left: float, now: float
) -> None:
    words = Reason("a", "delay", now + left).text(now)
    told = re.fullmatch(r"a delay (\d+(?:\.\d\d?)?) s", words)
    assert told is not None
    exact = max(0.0, (now + left) - now)
    assert abs(float(told[1]) - exact) <= (0.5 if exact >= 9.995 else 0.005) + 1e-9
    assert exact < 9.995 or "." not in told[1]
    assert Reason("a", "delay", math.inf).text(now) == "a delay"  # only a release helps: there is no time to tell


@given(now=st.floats(0.0, 1e4), waits=st.lists(st.floats(0.0, 1e5), min_size=2, max_size=2))
def test_i11_of_two_reasons_the_one_that_holds_longer_never_tells_less(now: float, waits: list[float]) -> None:
    first, second = (float(Reason("", "x", now + wait).text(now).split()[1]) for wait in sorted(waits))
    assert first <= second


@pytest.mark.parametrize("limit", LIMIT_NAMES)
def test_i11_every_limit_has_words_of_its_own(limit: str) -> None:
    told = Reason("a", limit).text(0.0).removeprefix("a ")
    others = {Reason("a", other).text(0.0).removeprefix("a ") for other in LIMIT_NAMES if other != limit}
    assert told
    assert told not in others
