"""What every limit of one number gets from its scope: its number, each response once, and a place in the job."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from trio.testing import MockClock

import trawl
from tests.throttling.driving import throttle_of
from tests.throttling.test_job_scopes import resumed, stored
from trawl.errors import ConnectFailed
from trawl.http import Outcome
from trawl.testing import SimulatedWeb
from trawl.throttling.configuration import check_scope
from trawl.throttling.job_scopes import moved
from trawl.throttling.limit import NumberLimit
from trawl.throttling.limits import Limits
from trawl.throttling.scope import Scope

A = "a.example"
LIMITED = {A: {"bandwidth": 5, "delay": 0.0, "delay_per_slot": 0.0}}

pytestmark = pytest.mark.interpreted  # a compiled scope does not see a replaced list of limits


class Open(NumberLimit):
    """Closes nothing, and remembers several times."""

    key = "bandwidth"
    hears_responses = True
    times: tuple[float, ...] = ()
    heard_outcomes: list[tuple[float, int | None, int]] = []

    def earliest_at(self, scope: Scope, now: float, amount: float) -> float:
        return max(self.times, default=0.0)

    def heard(self, outcome: Outcome, now: float) -> None:
        status = None if outcome.response is None else outcome.response.status
        self.heard_outcomes.append((round(now, 6), status, outcome.size))

    def stored(self, now: float) -> tuple[float, ...]:
        return self.times

    def restore(self, times: tuple[float, ...], now: float) -> None:
        self.times += times


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> type[Open]:
    """Replace all limits of one number."""
    monkeypatch.setattr("trawl.throttling.scope.NUMBERED", (Open,))
    monkeypatch.setattr(Open, "heard_outcomes", [])
    return Open


def test_a_limit_whose_number_for_none_is_zero_is_made_only_if_it_is_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Zeroed(NumberLimit):
        key = "delay_per_slot"

    monkeypatch.setattr("trawl.throttling.scope.NUMBERED", (Zeroed,))
    assert [limit.number for limit in Scope("a", Limits(delay_per_slot=2.0)).numbered] == [2.0]
    assert Scope("a", Limits()).numbered == ()


async def test_each_response_and_each_error_is_heard_once_when_it_ends_with_its_size_and_status(
    limit: type[Open], autojump_clock: MockClock
) -> None:
    class Pages(trawl.Spider):
        name = "pages"
        start_urls = [f"http://{A}/", "http://broken.example/", "http://down.example/"]

        def parse(self, response: Any) -> None:
            """Yield nothing."""

    web = SimulatedWeb()
    web.add_host(A, latency=1.0, body=b"x" * 7)
    web.add_host("broken.example", latency=2.0, status=500, body=b"x" * 3)
    web.add_host("down.example", connect=3.0, connect_error=ConnectFailed)
    scopes = dict.fromkeys((A, "broken.example", "down.example"), LIMITED[A])
    settings = {"ROBOTSTXT_OBEY": False, "RETRY_ENABLED": False, "BACKOFF_EXCEPTIONS": []}
    await web.crawl(Pages, {**settings, "THROTTLING_SCOPES": scopes})
    assert limit.heard_outcomes == [(1.0, 200, 7), (2.0, 500, 3), (3.0, None, 0)]


def test_g09_all_times_of_a_limit_that_have_not_passed_are_stored_moved_and_restored(limit: type[Open]) -> None:
    throttle = throttle_of(throttling_scopes=LIMITED)
    throttle.scope(A, 0.0).numbered[0].restore((5.0, 10.0, 20.0, 50.0), 0.0)
    state = stored(throttle, 10.0)
    assert state.scopes[A].times == {"bandwidth": pytest.approx((state.at + 10.0, state.at + 40.0))}
    later = moved(state, state.at + 1e6).scopes[A].times["bandwidth"]
    assert later == pytest.approx((state.at + 1e6 + 10.0, state.at + 1e6 + 40.0))
    unset = stored(resumed(state, 15.0, 10.0), 1000.0)
    [known] = resumed(unset, 0.0, 25.0, throttling_scopes=LIMITED).scope(A, 1000.0).numbered
    assert [at for at in known.stored(1000.0) if at > 1000.0] == pytest.approx([1025.0])


def test_a_wrong_definition_of_a_key_is_not_reported_as_a_wrong_value(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"bandwidth": Annotated[float | None, msgspec.Meta(pattern="x")]}
    monkeypatch.setattr("trawl.throttling.configuration._hints_of", lambda kind: wrong)
    with pytest.raises(TypeError, match="pattern"):
        check_scope({"bandwidth": 1.0}, "X")
