from __future__ import annotations

from math import inf

import msgspec

from trawl.observe import CrawlStatus, Estimate, decode_status, encode_status, status_line, together
from trawl.observe.status import ErrorExample, Health, Rate, Rates, ScopeEstimate, WaitingGroup

NOW = CrawlStatus(
    spider="quotes",
    pages=1203,
    items=950,
    queued=37,
    in_flight=4,
    errors=2,
    rates=Rates(pages=Rate(minute=20.05), items=Rate(minute=15.8)),
)


def test_a_line_says_everything_that_counts() -> None:
    assert status_line(NOW) == "1,203 pages (20.1/s), 950 items (15.8/s), 37 queued, 4 in flight, 2 errors"


def test_a_line_says_what_is_waited_for_and_when_it_ends() -> None:
    """I11."""
    groups = [WaitingGroup(20, "a.example delay 0.4 s"), WaitingGroup(17, "b.example Retry-After 12 s")]
    end = Estimate(seconds=60.0, scope="a.example")
    line = status_line(CrawlStatus(held=37, groups=2, waiting=groups, estimate=end))
    assert line.endswith(
        "; 37 waiting: a.example delay 0.4 s; b.example Retry-After 12 s; pending ends in 1 min: a.example"
    )


def test_of_many_reasons_three_are_shown_and_the_others_counted() -> None:
    groups = [WaitingGroup(9 - n, f"{n}.example") for n in range(5)]
    line = status_line(CrawlStatus(held=40, groups=7, waiting=groups))
    assert line.endswith("40 waiting: 0.example; 1.example; 2.example; and 4 more")


def test_a_status_survives_the_way_to_another_process() -> None:
    status = msgspec.structs.replace(
        NOW,
        estimate=Estimate(seconds=inf, scopes=[ScopeEstimate(scope="a", pending=2, seconds=inf)]),
        last_errors=[ErrorExample(kind="callback ValueError", count=2, at=1.0, message="no")],
        limits={"delay": 3},
    )
    assert encode_status(decode_status(encode_status(status)) or NOW) == encode_status(status)


def test_a_status_of_another_version_is_not_read() -> None:
    assert decode_status(encode_status(msgspec.structs.replace(NOW, version=2))) is None
    assert decode_status(msgspec.msgpack.encode({"since": 1.0, "pages": "many"})) is None
    assert decode_status(b"\xff\xfe") is None


def test_the_statuses_of_several_processes_add_up() -> None:
    first = CrawlStatus(
        at=9.0,
        pages=1,
        held=1,
        groups=1,
        waiting=[WaitingGroup(1, "a")],
        statuses={"200": 1},
        rates=Rates(pages=Rate(1.0, 2.0, 3.0)),
        last_errors=[ErrorExample(kind="callback ValueError", count=2, at=5.0, message="first")],
        estimate=Estimate(seconds=5.0, scope="a", scopes=[ScopeEstimate(scope="a", pending=1, seconds=5.0)]),
        health=Health(lateness=0.5, memory=10),
    )
    second = CrawlStatus(
        pages=2,
        items=5,
        held=3,
        groups=2,
        waiting=[WaitingGroup(2, "b"), WaitingGroup(1, "c")],
        statuses={"200": 1, "404": 1},
        rates=Rates(pages=Rate(0.5, 0.5, 0.5)),
        last_errors=[ErrorExample(kind="callback ValueError", count=1, at=4.0, message="second")],
        estimate=Estimate(seconds=50.0, scope="b", scopes=[ScopeEstimate(scope="b", pending=9, seconds=50.0)]),
        health=Health(lateness=0.1, memory=20),
    )
    both = together([first, second])
    assert (both.at, both.pages, both.items, both.held, both.groups) == (9.0, 3, 5, 4, 3)
    assert [group.words for group in both.waiting] == ["b", "a", "c"]
    assert both.statuses == {"200": 2, "404": 1}
    assert both.rates.pages == Rate(1.5, 2.5, 3.5)
    assert [(error.count, error.message) for error in both.last_errors] == [(3, "first")]
    assert both.estimate is not None
    assert (both.estimate.scope, [each.scope for each in both.estimate.scopes]) == ("b", ["b", "a"])
    assert (both.health.lateness, both.health.memory) == (0.5, 30)


def test_of_a_process_that_has_ended_only_the_totals_remain() -> None:
    assert NOW.totals() == CrawlStatus(pages=1203, items=950, errors=2)
