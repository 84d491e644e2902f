from __future__ import annotations

from math import inf

from trawl.observe.status import SendLimit, WindowLimit, estimate, estimate_words


def test_the_crawl_ends_with_its_last_scope() -> None:
    limits = {
        "a.example": SendLimit(rate=10.0, reason="delay 0.1 s"),
        "b.example": SendLimit(rate=0.2, reason="delay 5 s", opens_in=60.0),
    }
    found = estimate({"a.example": 1001, "b.example": 13}, limits)
    assert found is not None
    assert (found.seconds, found.scope, found.reason) == (120.0, "b.example", "delay 5 s")
    assert [(each.scope, each.pending, each.seconds) for each in found.scopes] == [
        ("b.example", 13, 120.0),
        ("a.example", 1001, 100.0),
    ]
    assert estimate_words(found) == "pending ends in 2 min: b.example (delay 5 s), a.example in 1 min 40 s"


def test_too_few_places_for_the_whole_crawl_end_it_later_than_any_scope() -> None:
    pending = {f"{number}.example": 10 for number in range(1000)}
    found = estimate(pending, {}, places=SendLimit(rate=9.999, reason="CONCURRENT_REQUESTS"))
    assert found is not None
    assert (round(found.seconds), found.scope, found.reason) == (1000, "", "CONCURRENT_REQUESTS")
    assert estimate_words(found).startswith("pending ends in 16 min 40 s: CONCURRENT_REQUESTS")


def test_a_request_of_two_scopes_counts_in_each_but_once_for_the_crawl() -> None:
    limits = {"proxy": SendLimit(rate=1.0, reason="rate 1/s")}
    found = estimate({"a.example": 11, "proxy": 11}, limits, total=11, places=SendLimit(rate=5.0))
    assert found is not None
    assert (found.seconds, found.scope) == (10.0, "proxy")


def test_without_pending_requests_there_is_no_estimate() -> None:
    assert estimate({}, {}) is None
    assert estimate_words(None) == ""


def test_a_scope_that_lets_nothing_through_never_ends() -> None:
    found = estimate({"a.example": 2}, {"a.example": SendLimit(rate=0.0, reason="concurrency 0")})
    assert found is not None
    assert found.seconds == inf
    assert estimate_words(found) == "pending never ends: a.example (concurrency 0)"


def test_the_estimate_names_only_the_scopes_that_end_last() -> None:
    found = estimate(
        {f"{n}.example": n for n in range(1, 50)}, {f"{n}.example": SendLimit(rate=1.0) for n in range(50)}
    )
    assert found is not None
    assert [each.pending for each in found.scopes] == [49, 48, 47, 46, 45]


def test_a_quota_lets_requests_through_in_windows() -> None:
    quota = WindowLimit(requests=50, left=10, window=60.0, renews_in=20.0, reason="quota 50")
    limit = SendLimit(rate=1.0, reason="delay 1 s", quota=quota)
    assert limit.end(10) == (9.0, "delay 1 s")
    assert limit.end(11) == (20.0, "quota 50")
    assert limit.end(60) == (59.0, "delay 1 s")
    assert limit.end(61) == (80.0, "quota 50")
    assert limit.words == "0.83/s"
    assert SendLimit().words == "no limit"
    nothing = WindowLimit(requests=0, left=0, window=60.0, renews_in=20.0, reason="quota 0")
    assert SendLimit(quota=nothing).lasts(1) == inf


def test_without_a_known_limit_there_is_no_estimate() -> None:
    assert estimate({"a.example": 5}, {}) is None
    assert estimate({"a.example": 5}, {"a.example": SendLimit(opens_in=3.0, reason="hint")}) is not None
