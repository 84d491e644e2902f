"""The bandwidth of a scope: counted from the send, stored, merged, refused for a shared scope, and explained (A23)."""

from __future__ import annotations

import gzip
from typing import Any, cast

import msgspec
import pytest
from trio.testing import MockClock

import trawl
from tests.throttling.driving import throttle_of
from tests.throttling.test_job_scopes import resumed, stored
from tests.transport.http11.memory import Servers, transport_to
from tests.transport.http11.test_transport import ask
from trawl.errors import SettingsError
from trawl.http import Outcome, Request
from trawl.testing import SimulatedWeb, simulate
from trawl.throttling.common import stricter
from trawl.throttling.limits import TABLE, Limits
from trawl.throttling.reasons import Reason, report_of, send_limit
from trawl.throttling.scope import Scope
from trawl.throttling.scope_table import ScopePolicies
from trawl.throttling.settings import ThrottlingSettings
from trawl.throttling.shared import SharedScope, SharedScopeClient

A = "a.example"
FREE = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}


class Pages(trawl.Spider):
    name = "pages"
    start_urls = [f"http://{A}/{number}" for number in range(4)]

    def parse(self, response: Any) -> None:
        """Yield nothing."""


def heard(sent_at: float) -> Outcome:
    """Return the end of a request that was sent at that time, whose response has 2,000 bytes."""
    return Outcome(Request(f"http://{A}/"), sent_at=sent_at, size=2000)


def sends(bandwidth: float, concurrency: int = 1, connect: Any = 0.0) -> list[float]:
    """Return the times at which pages of 2,000 bytes are sent, which take 0.1 s and the time to connect."""
    web = SimulatedWeb()
    web.add_host(A, latency=0.1, body=b"x" * 2000, connect=connect)
    scopes = {A: {"bandwidth": bandwidth, "concurrency": concurrency}}
    return [round(time, 6) for time in simulate(Pages, web, {**FREE, "THROTTLING_SCOPES": scopes}).times(A)]


def test_a23_bytes_are_paid_for_from_the_send_on_so_the_average_is_the_bandwidth() -> None:
    assert sends(1000) == [0.0, 2.0, 4.0, 6.0]
    assert sends(100_000) == [0.0, 0.1, 0.2, 0.3]  # the pages take longer than their bytes


def test_a23_pages_in_flight_together_are_paid_for_after_one_another() -> None:
    assert sends(1000, concurrency=2) == [0.0, 0.0, 4.0, 4.0]


def test_a23_a_request_that_connects_while_others_receive_waits_until_their_bytes_are_paid_for() -> None:
    def connecting(request: Any) -> float:
        return 1.0 if request.url.endswith("/1") else 0.0

    assert sends(1000, concurrency=2, connect=connecting) == [0.0, 2.0, 2.0, 6.0]


async def test_a23_a_send_at_the_start_of_the_clock_counts_from_its_send(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host(A, latency=0.5, body=b"x" * 2000)
    run = await web.crawl(Pages, {**FREE, "THROTTLING_SCOPES": {A: {"bandwidth": 1000}}})
    assert run.times(A) == [0.0, 2.0, 4.0, 6.0]


def test_a23_i11_a_wait_for_the_bandwidth_is_explained_and_counted() -> None:
    throttle = throttle_of(throttling_scopes={A: {"bandwidth": 500, "delay": 0.0, "delay_per_slot": 0.0}})
    scope = throttle.scope(A, 0.0)
    scope.waits.need(None, 0.0)
    for at in (0.0, 4.0):
        slot = scope.take(at)
        scope.sent(slot, at)
        scope.heard(heard(at), at)
        scope.give(slot, now=at)
    scope.state.totals.sends, scope.state.totals.first_sent = 2, 0.0
    assert scope.reason(5.0) == Reason(A, "bandwidth", 8.0, f"THROTTLING_SCOPES[{A!r}]")
    assert scope.reason(8.0).limit == ""
    assert scope.waits.limited == {"bandwidth": 4.0}
    assert report_of(scope, 4.0).allowed == 0.25
    assert send_limit(scope, 5.0).rate == 0.25
    assert scope.delays(5.0, 8.0, 1.0, 1.0)
    assert not scope.delays(5.0, 36.0, 1.0, 1.0)
    assert not scope.is_idle(7.0)


def test_a23_a_changed_bandwidth_counts_for_the_next_bytes_and_none_forgets_them() -> None:
    scope = Scope("a", Limits(bandwidth=1000.0))
    scope.heard(heard(0.0), 0.0)
    scope.apply_limits(Limits(bandwidth=500.0), 1.0)
    assert scope.earliest_at(1.0) == 2.0
    scope.heard(heard(2.0), 2.0)
    assert scope.earliest_at(2.0) == 6.0
    scope.apply_limits(Limits(), 3.0)
    assert scope.earliest_at(3.0) <= 3.0


@pytest.mark.parametrize(("down", "left"), [(10.0, 10.0), (40.0, 0.0), (-900.0, 20.0)])
def test_a23_g09_a_job_stores_until_when_its_bytes_are_paid_for(down: float, left: float) -> None:
    settings = {"throttling_scopes": {A: {"bandwidth": 100}}}
    throttle = throttle_of(**settings)
    throttle.scope(A, 0.0).heard(heard(10.0), 10.0)
    state = stored(throttle, 10.0)
    scope = resumed(state, down, 10.0, **settings).scope(A, 1000.0)
    # A clock that was set back does not make the wait longer.
    assert max(scope.earliest_at(1000.0) - 1000.0, 0.0) == pytest.approx(left)


def test_a23_g09_unpaid_bytes_outlast_restarts_before_their_bandwidth_is_set_at_run_time_again() -> None:
    throttle = throttle_of()
    throttle.set(A, 0.0, bandwidth=100)
    throttle.scope(A, 0.0).heard(heard(10.0), 10.0)
    unset = resumed(stored(throttle, 10.0), 5.0, 10.0)
    assert unset.scope(A, 1000.0).earliest_at(1000.0) <= 1000.0
    unset.scope(A, 1000.0).state.has_answered = True
    state = msgspec.structs.replace(stored(unset, 1001.0), unknown_until=float("-inf"))
    assert state.scopes[A].times["bandwidth"] == pytest.approx((state.at + 14.0,))
    again = resumed(state, 0.0, 16.0)
    again.scope(A, 1000.0)
    again.restore_limits({A: {"bandwidth": 100}}, 1000.0)
    assert again.scope(A, 1000.0).earliest_at(1000.0) == pytest.approx(1014.0)
    assert "bandwidth" not in str(stored(again, 1015.0).scopes)


def test_a23_null_removes_a_bandwidth_at_run_time_too() -> None:
    throttle = throttle_of(throttling_scopes={A: {"bandwidth": 100, "delay": 0.0}, "b": {"bandwidth": None}})
    throttle.scope(A, 0.0).heard(heard(10.0), 10.0)
    throttle.set(A, 10.0, bandwidth=None)
    assert throttle.scope(A, 10.0).numbered == throttle.scope("b", 10.0).numbered == ()


def test_a23_i11_unpaid_bytes_of_an_earlier_run_are_the_reason_in_a_scope_of_another_crawl() -> None:
    throttle = throttle_of(throttling_scopes={A: {"bandwidth": 100}})
    throttle.scope(A, 0.0).heard(heard(10.0), 10.0)
    again, scope = resumed(stored(throttle, 10.0), 5.0, 10.0), Scope(A, Limits(bandwidth=100.0))
    again._job_scopes[None].hold(scope, 1000.0)
    reason = scope.reason(1000.0)
    assert reason.limit == "bandwidth"
    assert reason.until == pytest.approx(1015.0)


@pytest.mark.parametrize("method", ["hold", "restore"])
def test_a23_unpaid_bytes_wait_for_a_scope_that_has_a_bandwidth(method: str) -> None:
    throttle = throttle_of(throttling_scopes={A: {"bandwidth": 100}})
    throttle.scope(A, 0.0).heard(heard(10.0), 10.0)
    job_scopes = resumed(stored(throttle, 10.0), 5.0, 10.0)._job_scopes[None]
    job_scopes.hold(Scope(A, Limits()), 1000.0)  # another crawl's, which is then forgotten
    scope = Scope(A, Limits(bandwidth=100.0))
    getattr(job_scopes, method)(scope, 1000.0)
    assert scope.numbered[0].stored(1000.0)[0] == pytest.approx(1015.0)


def test_a23_a_preview_of_limits_keeps_the_average_size_and_the_unpaid_bytes() -> None:
    throttle = throttle_of(throttling_scopes={A: {"bandwidth": 500, "delay": 0.0, "delay_per_slot": 0.0}})
    scope = throttle.scope(A, 0.0)
    scope.heard(heard(0.0), 0.0)
    before, after = throttle.preview(A, 1.0, bandwidth=100)
    assert [(limit.rate, limit.opens_in) for limit in (before, after)] == [(0.25, 3.0), (0.05, 3.0)]
    assert scope.numbered[0].number == 500


def test_a23_the_lower_bandwidth_of_two_crawls_applies() -> None:
    assert stricter(Limits(bandwidth=10.0), Limits(bandwidth=20.0)).bandwidth == 10.0


def test_a23_a_shared_scope_applies_no_limit_that_it_cannot_have() -> None:
    scope = SharedScope("a", Limits(quota=5.0), cast("SharedScopeClient", None))
    numbers: Any = {row.key: 7.0 for row in TABLE}
    scope.apply_limits(Limits(**numbers))
    applied = {row.key: getattr(scope.limits, row.key) for row in TABLE if row.instead is not None}
    assert applied == {row.key: row.none for row in TABLE if row.instead is not None}
    assert (scope.limits.concurrency, scope.limits.delay, scope.quota) == (7.0, 7.0, None)


def test_a23_several_processes_cannot_share_a_bandwidth() -> None:
    policies = ScopePolicies(ThrottlingSettings(throttling_scopes={"proxy": {"bandwidth": 1000}}))
    with pytest.raises(SettingsError, match=r"THROTTLING_SCOPES\['proxy'\].*can't have 'bandwidth': give it a 'rate'"):
        policies.check_shared()


@pytest.mark.parametrize("number", [0, -1, 1e-305, "fast"])
def test_a23_i03_a_bandwidth_that_lets_nothing_through_is_refused(number: Any) -> None:
    with pytest.raises(SettingsError, match=r"\['bandwidth'\]"):
        ThrottlingSettings(throttling_scopes={A: {"bandwidth": number}})


async def test_a23_bytes_are_counted_as_received_before_decompression(autojump_clock: MockClock) -> None:
    body = gzip.compress(b"x" * 100_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    transport = transport_to(Servers([[head + body, head + body]]))
    for _ in range(2):
        outcome = await ask(transport)
        assert outcome.response is not None
        assert outcome.size == len(head + body)
        assert len(outcome.response.body) == 100_000
