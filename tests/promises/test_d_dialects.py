"""D14: every dialect of rate limit headers, each in a 429 of a whole crawl.

Each page takes 0.1 s. A refusal that says nothing that counts is followed by a send at 2.1 (twice the delay of 1.0 s
after its answer), one that asks for 30 s by one at 30.1.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.promises.pacing import SPACED, A, crawl, pages, web_of
from trawl.testing import RateLimit, SimulatedResponse

UNASKED = 2.1
EPOCH = 1735689600
"""2025-01-01T00:00:00Z, at which the wall clock of a simulation starts, in epoch seconds."""


def second(headers: Mapping[str, str]) -> float:
    """When the second send goes after a 429 with these fields."""
    answers = iter([SimulatedResponse(429, headers=headers)])
    web = web_of(latency=0.1, handler=lambda request: next(answers, SimulatedResponse()))
    return crawl(web, pages(2), SPACED).times(A)[1]


def policies(text: str) -> dict[str, str]:
    """A ``RateLimit`` field of drafts 08-11."""
    return {"RateLimit": text}


@pytest.mark.parametrize(
    ("headers", "at"),
    [
        ({"RateLimit-Limit": "100, 100;w=60", "RateLimit-Remaining": "9", "RateLimit-Reset": "30"}, 30.1),
        ({"RateLimit-Limit": "10, 10;w=1, 50;w=60", "RateLimit-Remaining": "0", "RateLimit-Reset": "30"}, 30.1),
        ({"RateLimit-Reset": "30"}, 30.1),
        ({"ratelimit-limit": "100", "ratelimit-remaining": "0", "ratelimit-reset": "30"}, 30.1),
        ({"RateLimit-Limit": "100, 100;w=60", "RateLimit-Remaining": "0"}, UNASKED),
        ({"RateLimit-Reset": "1735689630"}, 300.1),  # seconds from now, whatever they look like: D05's cap
    ],
)
def test_d14_drafts_00_to_06(headers: dict[str, str], at: float) -> None:
    assert second(headers) == at


@pytest.mark.parametrize(
    ("field", "at"),
    [
        ("limit=100, remaining=50, reset=30", 30.1),
        ("limit=100,remaining=0,reset=30", 30.1),
        ("reset=30, limit=100, remaining=0", 30.1),
        ("limit=100, remaining=0", UNASKED),
        ("limit=100, remaining=0, reset=-30", UNASKED),
        ("limit=100, remaining=0, reset=0.5", UNASKED),
        ("limit=100, remaining=0, reset=soon", UNASKED),
    ],
)
def test_d14_draft_07(field: str, at: float) -> None:
    assert second({"RateLimit": field, "RateLimit-Policy": "100;w=60"}) == at


@pytest.mark.parametrize(
    ("field", "at"),
    [
        ('"burst";r=50;t=30', 30.1),
        ('"burst";r=0;t=30', 30.1),
        ('"burst";t=30', 30.1),
        ("burst;r=0;t=30", 30.1),  # a token in place of a string
        ('"burst"; r=0; t=30', 30.1),
        ('"a;b, \\"c\\"";r=0;t=30', 30.1),
        ('"default";r=0;t=30;pk=:cHsdsRa894==:', 30.1),  # a partition key, as bytes
        ('"default";pk="x;t=99";r=0;t=30', 30.1),
        ('"burst";r=0', 60.1),  # without t, the window of its policy bounds it
        ("burst;r=0", 60.1),
        ('"hour";r=0', UNASKED),  # no policy has this name
        ('"burst";r=0, "day";r=7', 60.1),
        ('"burst";r=0;t=-30', UNASKED),
        ('"burst";r=0;t=1.5', UNASKED),
        ('"burst;r=0;t=30', UNASKED),
        ("garbage here", UNASKED),
    ],
)
def test_d14_drafts_08_to_11(field: str, at: float) -> None:
    assert second({"RateLimit": field, "RateLimit-Policy": '"burst";q=100;w=60, "day";q=9000;w=86400'}) == at


@pytest.mark.parametrize(
    ("field", "at"),
    [
        ('"burst";r=0;t=5, "day";r=0;t=90', 90.1),  # the longest of those with nothing remaining
        ('"burst";r=0;t=5, "day";r=700;t=90', 5.1),
        ('"burst";r=3;t=5, "day";r=0;t=90', 90.1),
        ('"burst";r=3;t=5, "day";r=700;t=90', 5.1),  # all have some: the shortest
        ('"day";r=700;t=90, "burst";r=3;t=5', 5.1),
        ('"a";r=0;t=5, "b";r=0;t=40, "c";r=1;t=3, "d";r=1;t=99', 40.1),
        ('"burst";r=0;t=0, "day";r=700;t=90', UNASKED),  # what was spent is there again
    ],
)
def test_d14_of_several_policies_the_longest_spent_one_else_the_shortest(field: str, at: float) -> None:
    assert second({"RateLimit": field}) == at


@pytest.mark.parametrize("prefix", ["X-RateLimit", "X-Rate-Limit", "x-ratelimit", "X-RATELIMIT"])
@pytest.mark.parametrize(
    ("reset", "at"),
    [
        ("30", 30.1),
        (str(EPOCH + 30), 30.0),  # epoch seconds above 10^8: that instant
        (str(EPOCH + 10**6), 300.1),
        (str(EPOCH - 5), UNASKED),
        ("100000000", 300.1),  # 10^8 is not above it: seconds from now
        ("100000001", UNASKED),  # 1973
        ("30.5", UNASKED),
        ("-30", UNASKED),
        ("0", UNASKED),
        ("2025-01-01T00:00:30Z", UNASKED),
    ],
)
def test_d14_vendors(prefix: str, reset: str, at: float) -> None:
    assert second({f"{prefix}-Limit": "100", f"{prefix}-Remaining": "0", f"{prefix}-Reset": reset}) == at


@pytest.mark.parametrize(
    ("headers", "at"),
    [
        ({"Retry-After": "5", "RateLimit": '"burst";r=0;t=30'}, 30.1),
        ({"Retry-After": "40", "RateLimit": '"burst";r=0;t=30'}, 40.1),
        ({"X-RateLimit-Reset": "12", "RateLimit-Reset": "9", "RateLimit": "limit=1, remaining=0, reset=4"}, 12.1),
        ({"Retry-After": "soon", "X-Rate-Limit-Reset": "8"}, 8.1),
    ],
)
def test_d04_d14_of_several_dialects_the_larger_counts(headers: dict[str, str], at: float) -> None:
    assert second(headers) == at


@pytest.mark.parametrize(
    "dialect", ["draft-03", "draft-07", "draft-10", "x-ratelimit", "x-ratelimit-epoch", "x-rate-limit"]
)
def test_d14_a_server_that_speaks_a_dialect_is_never_asked_too_early(dialect: str) -> None:
    # Twenty seconds a token, and only one in the bucket: the second send is refused at 1.0, with 19 s left.
    web = web_of(latency=0.1, limit=RateLimit(rate=0.05, burst=1, headers=dialect))
    sim = crawl(web, pages(2), {**SPACED, "THROTTLING_RATELIMIT_OBEY": False})  # or it would not be asked at 1.0 at all
    assert [(send.time, send.status) for send in sim.sends][:2] == [(0.0, 200), (1.0, 429)]
    assert 20.0 <= sim.times(A)[2] <= 20.1
    assert sim.sends[2].status == 200
    assert len(sim.sends) == 3


@pytest.mark.parametrize(("more", "times"), [({}, [0.0, 60.1, 61.1]), ({"OBEY": False}, [0.0, 1.0, 2.0])])
def test_d07_d14_what_remains_on_a_good_answer_is_obeyed_and_can_be_switched_off(
    more: dict[str, object], times: list[float]
) -> None:
    answers = iter([SimulatedResponse(200, headers={"RateLimit": '"burst";r=0;t=59', "X-RateLimit-Remaining": "0"})])
    web = web_of(latency=0.1, handler=lambda request: next(answers, SimulatedResponse()))
    settings = {**SPACED, **{f"THROTTLING_RATELIMIT_{name}": value for name, value in more.items()}}
    assert [round(time, 6) for time in crawl(web, pages(3), settings).times(A)] == times
