"""The throttle as the engine sees it: scopes, outcomes, holds, quotas, robots.txt, changes, reasons."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from tests.throttling.driving import Answer, Bucket, Drive, answer, attempt_of, outcome_of, sent_attempt, throttle_of
from trawl.errors import BodyTooLarge, ConnectFailed, ReadTimeout, SettingsError, TLSFailed
from trawl.http import Request
from trawl.throttling import Scope, Throttle, ThrottlingManager

A = "a.example"


def request(path: str = "/", host: str = A, **meta: Any) -> Request:
    return Request(f"http://{host}{path}", meta=meta or None)


def send(throttle: Throttle, now: float, status: int = 200, latency: float = 0.0, **given: Any) -> None:
    answer(throttle, attempt_of(throttle, request(), now), now + latency, status, **given)


# -- which scopes


@pytest.mark.parametrize(
    ("url", "scope"),
    [
        ("http://books.toscrape.com/a", "books.toscrape.com"),  # A02
        ("http://User:pw@A.Example.:80/", "a.example"),  # R6
        ("https://a.example:8443/", "a.example:8443"),
        ("http://[::1]:8000/", "[::1]:8000"),
        ("http://[::ffff:192.0.2.7]/", "192.0.2.7"),
        ("http://[::ffff:c000:207]:8000/", "192.0.2.7:8000"),
        ("http://[::ffff:0:192.0.2.7]/", "[::ffff:0:c000:207]"),
        ("http://bücher.example/", "xn--bcher-kva.example"),
    ],
)
def test_a01_a02_e19_the_default_scope_is_the_host(url: str, scope: str) -> None:
    assert throttle_of().resolver.of_nowait(Request(url)) == ((scope, None),)


@pytest.mark.parametrize(
    ("named", "charges"),
    [
        ("api", (("api", None),)),
        (["users", "api"], (("api", None), ("users", None))),
        ({"cost": 5, "A.Example.": None}, (("a.example", None), ("cost", 5.0))),
        ([], ()),
        (None, (("a.example", None),)),
    ],
)
def test_e01_meta_names_scopes_in_place_of_the_host(named: Any, charges: Any) -> None:
    assert throttle_of().resolver.of_nowait(request(throttling_scopes=named)) == charges


def test_e20_a_name_without_a_dot_is_a_host_once_a_request_goes_to_it() -> None:
    throttle = throttle_of()
    throttle.resolver.of_nowait(Request("http://intranet/"))
    assert throttle.scope("intranet", 0.0).effective.concurrency == 1
    assert throttle.scope("api", 0.0).effective.concurrency == math.inf
    throttle.resolver.of_nowait(Request("http://wiki/", meta={"throttling_scopes": ["wiki", "all"]}))
    assert throttle.scope("wiki", 0.0).effective.delay == 1.0
    assert throttle.scope("all", 0.0).effective.delay == 0.0


def test_e19_a13_configuration_is_found_by_host_and_port_then_by_host() -> None:
    throttle = throttle_of(throttling_scopes={"A.Example": {"delay": 3.0}, "a.example:81": {"delay": 4.0}})
    assert throttle.scope("a.example", 0.0).effective.delay == 3.0
    assert throttle.scope("a.example:80", 0.0).effective.delay == 3.0
    assert throttle.scope("a.example:81", 0.0).effective.delay == 4.0
    assert throttle.scope("b.example", 0.0).effective.delay == 1.0  # I10
    assert throttle.scope("A.EXAMPLE.", 0.0) is throttle.scope("a.example", 0.0)


def test_a14_a_configured_sandbox_is_sixteen_slots_without_delay() -> None:
    scopes = {"quotes.toscrape.com": {"concurrency": 16, "delay": 0.0}}
    scope = throttle_of(throttling_scopes=scopes).scope("quotes.toscrape.com", 0.0)
    assert (scope.effective.concurrency, scope.effective.delay, scope.effective.delay_per_slot) == (16, 0.0, 1.0)


async def test_i05_with_a_limit_per_address_requests_are_charged_to_their_address() -> None:
    asked = []

    async def resolve(host: str) -> str | None:
        asked.append(host)
        return {"a.example": "10.0.0.1", "b.example": "10.0.0.1"}.get(host)

    throttle = throttle_of(concurrent_requests_per_ip=3, resolve=resolve)
    assert throttle.resolver.of_nowait(request()) is None
    assert await throttle.resolver.of(request()) == (("10.0.0.1", None),)
    assert await throttle.resolver.of(request(host="b.example")) == (("10.0.0.1", None),)
    assert throttle.resolver.of_nowait(request()) == (("10.0.0.1", None),)
    assert await throttle.resolver.of(request(host="c.example")) == (("c.example", None),)
    assert asked == ["a.example", "b.example", "c.example"]
    assert throttle.scope("10.0.0.1", 0.0).effective.concurrency == 3


# -- backing off


def test_b01_b03_a_trigger_doubles_the_delay_and_holds_the_scope_from_its_response() -> None:
    throttle = throttle_of()
    send(throttle, 0.0, 429, latency=30.0)
    scope = throttle.scope(A, 30.0)
    assert scope.effective.delay == 2.0
    assert scope.earliest_at(30.0) == 32.0
    why = throttle.scope(A, 30.0).reason(30.0)
    assert (why.limit, why.until, why.source) == ("backoff", 32.0, "backoff step 1: 429 of http://a.example/")


@pytest.mark.parametrize("status", [200, 404, 500])
def test_b01_other_answers_do_not_back_off(status: int) -> None:
    throttle = throttle_of()
    send(throttle, 0.0, status)
    assert throttle.scope(A, 0.0).effective.delay == 1.0


def test_b02_exceptions_back_off() -> None:
    throttle = throttle_of()
    outcome = answer(throttle, attempt_of(throttle, request()), 30.0, error=ReadTimeout("no answer"))
    assert outcome.response is None
    assert throttle.scope(A, 30.0).effective.delay == 2.0
    assert "ReadTimeout of http://a.example/" in throttle.scope(A, 30.0).reason(30.0).source


def test_b19_p5_eight_refusals_at_once_are_one_step_and_the_next_one_is_another() -> None:
    throttle = throttle_of(concurrent_requests_per_domain=8, download_delay=1.0, download_delay_per_slot=0.0)
    entries = [attempt_of(throttle, request(f"/{n}"), 0.0) for n in range(8)]
    for attempt in entries:
        answer(throttle, attempt, 0.1, 429)
    assert throttle.scope(A, 0.1).effective.delay == 2.0
    send(throttle, 3.0, 429)
    assert throttle.scope(A, 3.0).effective.delay == 4.0


def test_b10_b11_all_scopes_of_the_request_back_off_and_no_other() -> None:
    throttle = throttle_of()
    throttle.scope("c.example", 0.0)
    attempt = attempt_of(throttle, request(throttling_scopes=["a.example", "b.example"]))
    answer(throttle, attempt, 0.0, 503)
    assert [throttle.scope(id, 0.0).effective.delay for id in ("a.example", "b.example", "c.example")] == [
        2.0,
        2.0,
        1.0,
    ]


def test_b14_only_the_scopes_for_which_it_is_a_trigger_back_off() -> None:
    throttle = throttle_of(throttling_scopes={"api": {"delay": 1.0, "backoff": {"http_codes": [418]}}})
    answer(throttle, attempt_of(throttle, request(throttling_scopes=["api", A])), 0.0, 429)
    assert [throttle.scope(id, 0.0).effective.delay for id in ("api", A)] == [1.0, 2.0]
    answer(throttle, attempt_of(throttle, request(throttling_scopes=["api", A]), 9.0), 9.0, 418)
    assert [throttle.scope(id, 9.0).effective.delay for id in ("api", A)] == [2.0, 2.0]


def test_b07_b08_recovery_is_felt_at_its_instant_and_reported() -> None:
    told: list[tuple[float, float]] = []
    throttle = throttle_of(changed=lambda scope, now: told.append((now, scope.effective.delay)))
    send(throttle, 0.0, 429)
    send(throttle, 2.0, 429)
    send(throttle, 6.0)
    assert throttle.next_change(6.0) == 66.0
    assert throttle.next_change(66.0) == 66.0  # it moved: look again now
    assert throttle.next_change(66.0) == 126.0
    throttle.next_change(126.0)
    assert told == [(0.0, 2.0), (2.0, 4.0), (66.0, 2.0), (126.0, 1.0)]


def test_b07_windows_pass_while_nobody_looks() -> None:
    throttle = throttle_of()
    send(throttle, 0.0, 429)
    send(throttle, 2.0, 429)
    send(throttle, 6.0)
    throttle.tick(10_000.0)
    assert throttle.scope(A, 10_000.0).effective.delay == 1.0


def test_b06_while_backing_off_its_own_jitter_rules() -> None:
    throttle = throttle_of(randomize_download_delay=True, backoff_jitter=0.2)
    scope = throttle.scope(A, 0.0)
    assert scope.effective.jitter == (0.5, 1.5)
    send(throttle, 0.0, 429)
    assert scope.effective.jitter == pytest.approx((1.0, 1.2))
    assert scope.effective.delay == 2.0  # the standing delay is never moved by it
    assert 2.0 <= scope.earliest_at(0.0) <= 2.4
    send(throttle, 3.0)
    throttle.tick(100.0)
    assert scope.effective.jitter == (0.5, 1.5)


def test_r10_a_header_is_only_ever_lengthened_by_jitter() -> None:
    holds = set()
    for seed in range(20):
        throttle = throttle_of(backoff_jitter=0.1, seed=seed)
        send(throttle, 0.0, 429, headers={"Retry-After": "100"})
        holds.add(throttle.scope(A, 0.0).earliest_at(0.0))
    assert all(100.0 <= until <= 110.0 for until in holds)
    assert len(holds) > 10


@pytest.mark.long
def test_b17_under_a_steady_limit_triggers_settle_at_one_a_window_or_less() -> None:
    throttle = throttle_of(download_delay=0.1, download_delay_per_slot=0.0, backoff_min_delay=0.1)
    drive = Drive(throttle, Bucket(rate=5.0, burst=2.0), endless=request())
    drive.run(60.0 * 40)
    late = [send for send in drive.sends if send.time > 600.0]
    refused = sum(send.status == 429 for send in late)
    assert refused <= 30
    assert len(late) - refused > 0.75 * 5.0 * 1800.0  # B08's plain halves would do no better than 2/3


# -- hints


def test_d01_d06_a_header_holds_the_scope_and_the_standing_delay_takes_one_step() -> None:
    throttle = throttle_of()
    send(throttle, 0.0, 429, headers={"Retry-After": "7"}, latency=0.5)
    scope = throttle.scope(A, 0.5)
    assert (scope.earliest_at(0.5), scope.effective.delay) == (7.5, 2.0)
    why = throttle.scope(A, 0.5).reason(0.5)
    assert (why.limit, why.source) == ("hint", "Retry-After: 7, 429 of http://a.example/")
    assert "hint 7 s (Retry-After: 7" in why.text(0.5)


def test_d06_a_longer_header_in_the_same_incident_still_counts() -> None:
    throttle = throttle_of(concurrent_requests_per_domain=2)
    first, second = (attempt_of(throttle, request(f"/{n}")) for n in range(2))
    answer(throttle, first, 0.0, 429, {"Retry-After": "7"})
    answer(throttle, second, 1.0, 429, {"Retry-After": "20"})
    assert (throttle.scope(A, 1.0).effective.delay, throttle.scope(A, 1.0).earliest_at(1.0)) == (2.0, 21.0)


def test_d07_a_header_of_a_good_answer_does_nothing() -> None:
    throttle = throttle_of()
    send(throttle, 0.0, 200, headers={"Retry-After": "7"})
    assert throttle.scope(A, 0.0).earliest_at(0.0) == 1.0


def test_d05_the_cap_is_logged_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    throttle = throttle_of()
    with caplog.at_level(logging.INFO, "trawl.throttling"):
        send(throttle, 0.0, 429, headers={"Retry-After": "3600"})
    assert throttle.scope(A, 0.0).earliest_at(0.0) == 300.0
    assert "capped at 300 s" in throttle.scope(A, 0.0).reason(0.0).source
    capped = "a.example: Retry-After: 3600 asks for 3600 s after 429 of http://a.example/; capped at 300 s"
    assert [record.message for record in caplog.records].count(capped) == 1


# -- what counts as a retry


def test_b20_r12_a_429_or_a_hint_never_counts() -> None:
    throttle = throttle_of()
    send(throttle, 0.0)
    assert answer(throttle, attempt_of(throttle, request(), 1.0), 1.0, 429).is_excused
    assert answer(throttle, attempt_of(throttle, request(), 9.0), 9.0, 503, {"Retry-After": "3"}).is_excused


def test_b20_an_answer_that_is_no_trigger_is_not_excused() -> None:
    throttle = throttle_of()
    assert not answer(throttle, attempt_of(throttle, request()), 0.0, 500).is_excused
    assert not answer(throttle, attempt_of(throttle, request(), 2.0), 2.0, error=BodyTooLarge("big")).is_excused


def test_b20_one_bad_page_on_a_healthy_host_ends_after_its_retries() -> None:
    def server(request: Request, now: float) -> Answer:
        return Answer(503 if request.url.endswith("/bad") else 200)

    drive = Drive(throttle_of(backoff_window=5.0), server, endless=request("/good"))
    drive.push(request("/bad"))
    drive.run(200.0)
    assert drive.ended[request("/bad").url] == "failed"
    assert 3 <= sum(send.url.endswith("/bad") for send in drive.sends) <= 4


def test_b20_an_outage_ends_nobody() -> None:
    def server(request: Request, now: float) -> Answer:
        return Answer(503 if 10.0 <= now <= 500.0 else 200)

    drive = Drive(throttle_of(concurrent_requests_per_domain=4, download_delay=0.5), server)
    drive.push(*[request(f"/{n}") for n in range(60)])
    drive.run()
    assert set(drive.ended.values()) == {"done"}
    assert len(drive.ended) == 60


def test_b20_a_host_that_was_never_there_ends_each_request_after_its_retries() -> None:
    drive = Drive(throttle_of(), lambda request, now: Answer(error=ConnectFailed("refused")))
    drive.push(*[request(f"/{n}") for n in range(3)])
    drive.run()
    assert set(drive.ended.values()) == {"failed"}
    assert len(drive.sends) == 9


def test_b20_a_certificate_that_is_refused_is_no_outage() -> None:
    throttle = throttle_of()
    send(throttle, 0.0)
    assert not answer(throttle, attempt_of(throttle, request(), 5.0), 5.0, error=TLSFailed("expired")).is_excused


def test_b20_r13_a_host_that_refuses_for_ever_is_given_up_once_and_starts_afresh(
    caplog: pytest.LogCaptureFixture,
) -> None:
    throttle = throttle_of()
    drive = Drive(throttle, lambda request, now: Answer(503 if now < 2000.0 else 200))
    drive.push(*[request(f"/{n}") for n in range(5)])
    drive.run()
    assert set(drive.ended.values()) == {"refused"}
    assert drive.now == pytest.approx(900.0, abs=1.0)
    assert sum("are refused" in record.message for record in caplog.records) == 1
    assert throttle.scope(A, drive.now).effective.delay == 1.0
    later = request("/later")
    throttle.admitted(later, ((A, None),))
    assert throttle.refused(sent_attempt(later, ((A, None),)), drive.now) is None
    assert throttle.refused(sent_attempt(request("/old"), ((A, None),)), drive.now) == "refused"
    late = drive.now + 100.0  # it had its own time
    assert throttle.refused(sent_attempt(request("/old"), ((A, None),)), late) == "refused"


def test_e21_an_exempt_requests_429_still_backs_its_scopes_off() -> None:
    throttle = throttle_of()
    attempt = attempt_of(throttle, request(dont_throttle=True))
    answer(throttle, attempt, 0.0, 429)
    scope = throttle.scope(A, 0.0)
    assert (scope.effective.delay, scope.grants) == (2.0, 0)


# -- managers


class Prices(ThrottlingManager):
    """Charges an account, sync and async mixed."""

    def get_scopes(self, request: Request) -> dict[str, float]:  # type: ignore[override]
        return {"cost": 10.0}

    async def get_response_backoff(self, response: Any) -> Any:
        if response.headers.get("X-Actual-Cost"):
            return {"cost": {"consumed": float(response.headers["X-Actual-Cost"])}}
        if response.headers.get("X-Left"):
            return {"cost": {"quota": float(response.headers["X-Left"])}}
        return await super().get_response_backoff(response)


COST: Any = {"cost": {"quota": 100.0, "window": 60.0, "delay": 1.0}}


async def hear(throttle: Throttle, now: float, status: int = 200, **headers: str) -> None:
    charges = await throttle.resolver.of(request())
    scopes = [throttle.scope(id, now) for id, _ in charges]
    slots = [scope.take(now, amount or 1.0) for scope, (_, amount) in zip(scopes, charges, strict=True)]
    for scope, slot, (_, amount) in zip(scopes, slots, charges, strict=True):
        scope.sent(slot, now, amount or 1.0)
    attempt = sent_attempt(request(), charges, tuple(scope.step for scope in scopes), now)
    outcome = outcome_of(attempt, now, status, {key.replace("_", "-"): value for key, value in headers.items()})
    assert not throttle.record_outcome_nowait(attempt, outcome, now)
    await throttle.record_outcome(attempt, outcome, now)
    for scope, slot in zip(scopes, slots, strict=True):
        scope.give(slot)


async def test_e06_e09_e11_f04_what_was_consumed_corrects_the_quota_without_a_step() -> None:
    throttle = throttle_of(manager=Prices, throttling_scopes=COST)
    scope = throttle.scope("cost", 0.0)
    assert scope.quota is not None
    await hear(throttle, 0.0)
    assert scope.quota.spent(0.0) == 10.0
    await hear(throttle, 1.0, X_Actual_Cost="35")
    assert scope.quota.spent(1.0) == 45.0
    await hear(throttle, 2.0, X_Actual_Cost="0")
    assert scope.quota.spent(2.0) == 45.0
    await hear(throttle, 3.0, X_Left="5")
    assert scope.quota.spent(3.0) == 95.0
    assert scope.step == 0
    await hear(throttle, 70.0, 429)  # E07: the default's word, through super()
    assert (scope.step, scope.effective.delay) == (1, 2.0)


class Reports:
    """Not a ThrottlingManager at all: what it lacks is the default's."""

    said: Any = None

    def get_response_backoff(self, response: Any) -> Any:
        return self.said

    def get_initial_backoff(self) -> Any:
        return {"scope1": {"delay": 5.0}, A: {}}


async def test_e06_e07_e09_a_manager_of_any_class_may_say_which_scopes_are_exhausted() -> None:
    manager = Reports()
    throttle = throttle_of(manager=manager)
    manager.said = ["other", "other2"]
    await hear(throttle, 0.0, 200)
    assert [throttle.scope(id, 0.0).effective.delay for id in ("other", "other2", A)] == [1.0, 1.0, 1.0]
    manager.said = {A: {"delay": 9.0}}
    await hear(throttle, 1.0, 200)
    assert throttle.scope(A, 1.0).reason(1.0).until == 10.0
    manager.said = None
    await hear(throttle, 20.0, 429)  # B11: the manager says otherwise
    assert throttle.scope(A, 20.0).effective.delay == 2.0


async def test_e10_what_is_held_before_the_first_send() -> None:
    throttle = throttle_of(manager=Reports())
    await throttle.begin(0.0)
    assert throttle.scope("scope1", 0.0).earliest_at(0.0) == 5.0
    assert throttle.scope("scope1", 0.0).effective.delay == 0.0
    assert throttle.scope(A, 0.0).effective.delay == 2.0
    assert throttle.scope(A, 0.0).earliest_at(0.0) <= 0.0


class Rude(ThrottlingManager):
    async def get_exception_backoff(self, request: Request, exception: Exception) -> Any:
        raise LookupError("a bug")

    async def get_response_backoff(self, response: Any) -> Any:
        raise LookupError("a bug")


async def test_e07_when_a_manager_raises_the_defaults_word_counts() -> None:
    throttle = throttle_of(manager=Rude())
    with pytest.raises(LookupError, match="a bug"):
        await hear(throttle, 0.0, 429)
    assert throttle.scope(A, 0.0).effective.delay == 2.0


class Slower(ThrottlingManager):
    def get_response_delay(self, response: Any) -> float | None:
        return 42.0


async def test_e12_get_response_delay_alone_may_be_overridden() -> None:
    throttle = throttle_of(manager=Slower)
    await hear(throttle, 0.0, 429)
    assert throttle.scope(A, 0.0).earliest_at(0.0) == 42.0
    await hear(throttle, 50.0, 200)
    assert throttle.scope(A, 50.0).reason(50.0).until == 52.0


class Patient:
    """A scope manager: its own triggers, waits and idea of a retry (G11)."""

    made: list[str] = []

    def __init__(self, config: dict[str, Any]) -> None:
        self.made.append(config["id"])
        self.config = config
        self.failures = 0

    def is_trigger(self, response: Any, exception: Any) -> bool | None:
        return True if response is not None and response.status == 200 and "X-Blocked" in response.headers else None

    def get_delay(self, response: Any, exception: Any, delay: float) -> float | None:
        self.failures += 1
        return 10.0 * self.failures

    def is_retry(self, request: Request, response: Any, exception: Any) -> bool | None:
        return response is None or response.status != 429


def test_e17_e18_g11_each_scope_has_one_manager_made_with_its_merged_configuration() -> None:
    Patient.made.clear()
    throttle = throttle_of(throttling_scopes={A: {"manager": Patient, "delay": 0.5}})
    throttle.scope("b.example", 0.0)
    send(throttle, 0.0, headers={"X-Blocked": "1"})
    scope = throttle.scope(A, 0.0)
    assert Patient.made == [A]
    assert scope.state.manager.config["delay"] == 0.5
    assert scope.state.manager.config["concurrency"] == 1
    assert scope.state.manager.config["backoff"]["window"] == 60.0
    assert scope.earliest_at(0.0) == 10.0
    send(throttle, 11.0, headers={"X-Blocked": "1"})
    assert scope.earliest_at(11.0) == 31.0
    outcomes = [
        answer(throttle, attempt_of(throttle, request(), 40.0 + n), 40.0 + n, status)
        for n, status in ((0, 429), (1, 503))
    ]
    assert [outcome.is_excused for outcome in outcomes] == [True, False]


# -- robots.txt


def crawl_delayed(delay: float, **given: Any) -> Scope:
    throttle = throttle_of(**given)
    throttle.robots_delay(A, delay, 0.0)
    return throttle.scope(A, 0.0)


def test_d09_r8_a_crawl_delay_gives_one_slot_and_its_delay() -> None:
    scope = crawl_delayed(3.0, concurrent_requests_per_domain=8)
    assert (scope.effective.concurrency, scope.effective.delay, scope.effective.delay_limit) == (1, 3.0, "robots")
    assert "robots.txt" in scope.effective.delay_source
    assert crawl_delayed(0.5, download_delay=0.1).effective.delay == 0.5
    assert crawl_delayed(0.5, download_delay=2.0).effective.delay == 2.0  # never faster than configured


def test_d09_it_reaches_a_scope_that_is_there_already_and_one_that_is_not_yet() -> None:
    told: list[str] = []
    throttle = throttle_of(changed=lambda scope, now: told.append(scope.id))
    scope = throttle.scope(A, 0.0)
    throttle.robots_delay(A, 3.0, 0.0)
    assert scope.effective.delay == 3.0
    assert told == [A]


def test_d10_d11_it_is_capped_and_can_be_turned_off() -> None:
    assert crawl_delayed(999.0).effective.delay == 60.0
    assert crawl_delayed(5.0, throttling_robotstxt_max_delay=2.0).effective.delay == 2.0
    assert crawl_delayed(3.0, throttling_robotstxt_obey=False).effective.delay == 1.0
    assert crawl_delayed(math.nan).effective.delay == 1.0


def test_d12_what_the_user_sets_for_the_scope_stays_with_one_warning_if_it_differs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    throttle = throttle_of(
        throttling_scopes={A: {"delay": 0.5}, "b.example": {"delay": 9.0}, "c.example": {"concurrency": 4}}
    )
    for _ in range(2):
        for host in (A, "b.example", "c.example"):
            throttle.robots_delay(host, 3.0, 0.0)
    a, b, c = (throttle.scope(host, 0.0) for host in (A, "b.example", "c.example"))
    assert (
        a.effective.delay,
        a.effective.concurrency,
        b.effective.delay,
        c.effective.delay,
        c.effective.concurrency,
    ) == (
        0.5,
        1,
        9.0,
        3.0,
        4,
    )
    assert [record.message[:9] for record in caplog.records] == [A, "b.example", "c.example"]


def test_d13_a_scope_may_ignore_robots_txt_silently(caplog: pytest.LogCaptureFixture) -> None:
    assert crawl_delayed(3.0, throttling_scopes={A: {"delay": 0.1, "ignore_robots_txt": True}}).effective.delay == 0.1
    assert not caplog.records


def test_d09_a_host_that_its_requests_scopes_leave_out_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    throttle = throttle_of()
    throttle.robots_delay(A, 3.0, 0.0)
    for now in (0.0, 5.0):
        answer(throttle, attempt_of(throttle, request(throttling_scopes="api"), now), now)
        answer(throttle, attempt_of(throttle, request(), now), now)
    assert ["leave the host out" in record.message for record in caplog.records] == [True]


def test_d09_of_several_origins_in_one_scope_the_longest_wish_counts_and_the_latest_word_of_each() -> None:
    throttle = throttle_of()
    scope = throttle.scope(A, 0.0)

    def said(origin: str, delay: float) -> float:
        throttle.robots_delay(A, delay, 0.0, origin=origin)
        return scope.effective.delay

    http, https = f"http://{A}", f"https://{A}"
    assert [
        said(https, 7.0),
        said(http, 3.0),
        said(https, 5.0),
        said(https, 0.0),
        said(http, 0.0),
    ] == [7, 7, 5, 3, 1]
    assert scope.effective.delay_limit == "delay"


def test_i12_d13_whether_robots_txt_counts_may_change_while_it_runs() -> None:
    throttle = throttle_of(concurrent_requests_per_domain=4)
    throttle.robots_delay(A, 3.0, 0.0)
    scope = throttle.scope(A, 0.0)
    throttle.set(A, 1.0, ignore_robots_txt=True)
    assert (scope.effective.delay, scope.effective.concurrency) == (1.0, 4)
    throttle.set(A, 2.0, ignore_robots_txt=False)
    assert (scope.effective.delay, scope.effective.concurrency) == (3.0, 1)


def test_r9_a_backoff_and_a_crawl_delay_are_two_clocks() -> None:
    throttle = throttle_of()
    throttle.robots_delay(A, 3.0, 0.0)
    send(throttle, 0.0, 429, headers={"Retry-After": "1"})
    assert throttle.scope(A, 0.0).effective.delay == 6.0
    send(throttle, 10.0)
    throttle.tick(1000.0)
    assert throttle.scope(A, 1000.0).effective.delay == 3.0


def test_b20_a_request_of_two_scopes_is_no_retry_while_one_of_them_answers_nobody() -> None:
    throttle = throttle_of()
    both, api = request("/both", throttling_scopes=[A, "api"]), request("/api", throttling_scopes="api")
    for n in range(6):
        refused = answer(throttle, attempt_of(throttle, both, 10.0 * n), 10.0 * n, 503)
        assert (refused.is_trigger, refused.is_excused) == (True, True)
        answer(throttle, attempt_of(throttle, api, 10.0 * n + 5.0), 10.0 * n + 5.0)
    send(throttle, 70.0)  # now both have
    assert not answer(throttle, attempt_of(throttle, both, 80.0), 80.0, 503).is_excused


def test_b20_a_scope_that_its_own_refusals_keep_silent_is_given_up_all_the_same() -> None:
    throttle = throttle_of(backoff_max_delay=2000.0, backoff_min_delay=2000.0)
    send(throttle, 0.0, 429)
    throttle.scope(A, 0.0).waits.lanes = 1  # somebody waits
    throttle.tick(899.0)
    assert A not in throttle.given_up
    throttle.tick(901.0)
    assert A in throttle.given_up


@pytest.mark.parametrize(("ahead", "is_given_up"), [(0, True), (1, False)])
def test_b20_time_in_which_what_was_prepared_was_kept_from_its_send_does_not_count(
    *, ahead: int, is_given_up: bool
) -> None:
    throttle = throttle_of()
    send(throttle, 0.0, 503)
    for _ in range(ahead):
        throttle.scope(A, 0.0).traffic.add_ahead()
    throttle.tick(1802.0)
    assert (A in throttle.given_up) is is_given_up


def test_b20_the_last_try_is_put_off_to_the_end_of_the_patience_and_awaited() -> None:
    throttle = throttle_of(backoff_max_delay=500.0, backoff_min_delay=500.0)
    send(throttle, 0.0, 429)
    scope = throttle.scope(A, 0.0)
    scope.waits.lanes = 1
    assert scope.earliest_at(0.0) == 900.0  # not 500.0: the one after that would go at 1000.0
    assert "last try" in scope.reason(0.0).source
    throttle.tick(900.0)
    assert A not in throttle.given_up  # it is time for it, and it was not made yet
    send(throttle, 905.0, 429)
    throttle.tick(905.0)
    assert A in throttle.given_up


def test_b20_what_a_server_asks_for_is_waited_for_as_far_as_it_is_allowed() -> None:
    throttle = throttle_of(backoff_max_delay=1000.0)
    send(throttle, 0.0, 429, headers={"Retry-After": "1000"})
    throttle.tick(1899.0)
    assert A not in throttle.given_up
    throttle.tick(1900.0)  # nobody waits: there is nothing to try
    assert A in throttle.given_up


def test_b20_a_scope_that_was_given_up_still_does_what_a_header_asks() -> None:
    throttle = throttle_of(backoff_max_delay=1000.0)
    send(throttle, 0.0, 429, headers={"Retry-After": "50000000"})
    scope = throttle.scope(A, 0.0)
    scope.waits.lanes = 1
    throttle.tick(900.0)  # a wait of more than a year is a mistake, which delays giving up by nothing
    assert A in throttle.given_up
    assert (scope.earliest_at(901.0), scope.reason(901.0).limit) == (1000.0, "hint")


@pytest.mark.parametrize("asked", ["30", "300", "3000"])
def test_r10_b06_a_wish_at_the_cap_is_lengthened_too_so_that_not_all_come_back_at_once(asked: str) -> None:
    ends = set()
    for host in ("a.example", "b.example", "c.example"):
        throttle = throttle_of(backoff_jitter=0.1, backoff_max_delay=300.0)
        attempt = attempt_of(throttle, request(host=host), 0.0)
        answer(throttle, attempt, 0.0, 429, {"Retry-After": asked})
        ends.add(throttle.scope(host, 0.0).earliest_at(0.0))
    shortest = min(float(asked), 300.0)
    assert all(shortest < at <= shortest * 1.1 for at in ends)
    assert len(ends) == 3


def test_c05_after_an_outage_rampup_moves_the_scope_again_from_the_next_trigger_on() -> None:
    throttle = throttle_of(throttling_scopes={A: {"rampup": {"window": 10.0}}}, backoff_window=10.0)
    policy = throttle.scope(A, 0.0).state
    send(throttle, 0.0, 503)
    send(throttle, 1.0, 503)
    throttle.tick(20.0)
    assert policy.rampup.has_fallen_back
    assert policy.backoff is not None
    send(throttle, 30.0)
    throttle.tick(1000.0)  # all windows have been quiet
    assert policy.backoff is None
    send(throttle, 1001.0, 503)
    assert policy.backoff is None  # within the target
    assert not policy.rampup.has_fallen_back


# -- run-time changes and reasons


def test_i12_p13_limits_change_while_the_crawl_runs_and_waiters_hear_of_it() -> None:
    told: list[tuple[str, float]] = []
    throttle = throttle_of(changed=lambda scope, now: told.append((scope.id, scope.effective.concurrency)))
    send(throttle, 0.0)
    throttle.set(A, 0.5, concurrency=4, delay=0.2, delay_per_slot=0.0)
    scope = throttle.scope(A, 0.5)
    assert told == [(A, 4)]
    assert scope.earliest_at(0.5) <= 0.5
    throttle.set(A, 0.5, rate=2)
    assert (scope.effective.delay, scope.effective.concurrency) == (0.5, 4)
    throttle.set(A, 0.5, delay=7.0)
    assert scope.effective.delay == 7.0
    with pytest.raises(SettingsError, match="did you mean 'delay'"):
        throttle.set(A, 0.5, dely=1)


def test_i12_a_backoff_outlives_a_change_of_the_base() -> None:
    throttle = throttle_of()
    send(throttle, 0.0, 429)
    throttle.set(A, 0.5, delay=0.1)
    assert throttle.scope(A, 0.5).effective.delay == 2.0


def test_i12_e18_a_manager_that_is_named_while_it_runs_is_asked_from_then_on() -> None:
    Patient.made.clear()
    throttle = throttle_of()
    send(throttle, 0.0, headers={"X-Blocked": "1"})
    scope = throttle.scope(A, 0.0)
    assert scope.state.totals.triggers == 0
    throttle.set(A, 5.0, manager=Patient, delay=0.5)
    assert scope.state.manager.config["delay"] == 0.5
    send(throttle, 10.0, headers={"X-Blocked": "1"})
    assert (scope.state.totals.triggers, scope.earliest_at(10.0)) == (1, 20.0)
    kept = scope.state.manager
    throttle.set(A, 30.0, concurrency=2)
    assert scope.state.manager is kept  # what it knows stays
    assert Patient.made == [A]


def test_i12_a_strategy_that_can_not_be_made_changes_nothing() -> None:
    class Strategy:
        def __init__(self, step: float) -> None:
            self.step = step

    throttle = throttle_of(throttling_scopes={A: {"delay": 2.0}})
    scope = throttle.scope(A, 0.0)
    with pytest.raises(SettingsError, match="can't be made"):
        throttle.set(A, 0.5, delay=9.0, backoff={"cls": Strategy, "stride": 3})
    assert scope.effective.delay == 2.0
    throttle.set(A, 0.5, concurrency=2)
    assert (scope.effective.delay, scope.effective.concurrency) == (2.0, 2)
    assert throttle.scope(f"{A}:8080", 1.0).effective.delay == 2.0  # looked up in the same configuration


class Unmade:
    """A scope manager that can't be made."""

    def __init__(self, config: Any) -> None:
        raise RuntimeError("no licence")


def test_i12_e18_a_manager_that_can_not_be_made_changes_nothing() -> None:
    throttle = throttle_of(throttling_scopes={A: {"delay": 2.0}})
    scope = throttle.scope(A, 0.0)
    with pytest.raises(RuntimeError, match="no licence"):
        throttle.set(A, 0.5, delay=9.0, manager=Unmade)
    assert (scope.effective.delay, scope.state.manager) == (2.0, None)
    throttle.set(A, 0.5, concurrency=2)
    assert (scope.effective.delay, scope.effective.concurrency, scope.state.manager) == (2.0, 2, None)


def test_e17_a_manager_that_can_not_be_made_leaves_no_half_made_scope_behind() -> None:
    throttle = throttle_of(throttling_scopes={A: {"delay": 2.0, "manager": Unmade}})
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no licence"):
            throttle.scope(A, 0.0)


def test_i11_a_scope_that_may_go_says_so() -> None:
    throttle = throttle_of()
    assert throttle.scope(A, 0.0).reason(0.0).limit == ""
    send(throttle, 0.0)
    why = throttle.scope(A, 0.5).reason(0.5)
    assert (why.limit, why.until) == ("delay", 1.0)


def test_h_and_i11_the_report_tells_what_each_scope_did() -> None:
    throttle = throttle_of()
    for now in (0.0, 1.0, 2.0):
        scope = throttle.scope(A, now)
        scope.waits.lanes = 1
        send(throttle, now, latency=0.25)
    send(throttle, 3.0, 503, headers={"Retry-After": "9"}, latency=0.25)
    [row] = throttle.report(5.25)
    assert (row.scope, row.requests, row.sends, row.triggers, row.steps, row.hints) == (A, 4, 4, 1, 1, 1)
    assert row.rate == pytest.approx(1.0)
    assert row.allowed == pytest.approx(1.0)  # as fast as it went: not what the step has left in force
    assert row.last_hint == "Retry-After: 9, 503 of http://a.example/"
    assert row.limited["delay"] == pytest.approx(3.0)  # a second apart: also while the request before is on the wire
    assert row.limited["hint"] == pytest.approx(2.25)  # the next one waits since the last went


def test_i11_the_report_names_the_delay_per_slot_where_that_is_the_longer_one() -> None:
    throttle = throttle_of(download_delay=0.1, download_delay_per_slot=1.0)
    for now in (0.0, 1.0, 2.0):
        throttle.scope(A, now).waits.lanes = 1
        send(throttle, now, latency=0.25)
    assert throttle.report(3.0)[0].limited.keys() == {"delay_per_slot"}


# -- AutoThrottle through the throttle


AUTO: Any = {"autothrottle_enabled": True, "download_delay": 0.0, "download_delay_per_slot": 0.0}


@pytest.mark.parametrize(("target", "latency", "rate"), [(1.0, 0.2, 5.0), (1.0, 0.05, 20.0), (4.0, 0.2, 20.0)])
def test_h07_h12_settled_the_rate_is_the_target_over_the_latency(target: float, latency: float, rate: float) -> None:
    throttle = throttle_of(**AUTO, autothrottle_target_concurrency=target, concurrent_requests_per_domain=8)
    drive = Drive(throttle, lambda request, now: Answer(latency=latency), endless=request())
    drive.run(40.0)
    settled = [send for send in drive.sends if send.time >= 20.0]
    assert len(settled) / 20.0 == pytest.approx(rate, rel=0.03)


def test_h02_it_moves_hosts_with_the_per_domain_delay_and_no_others() -> None:
    throttle = throttle_of(**AUTO, throttling_scopes={"b.example": {"delay": 0.5}, "c.example": {"concurrency": 2}})
    assert [throttle.scope(id, 0.0).effective.delay for id in (A, "b.example", "c.example", "api")] == [
        5.0,
        0.5,
        5.0,
        0.0,
    ]


@pytest.mark.parametrize(("status", "meta"), [(404, {}), (429, {}), (200, {"autothrottle_dont_adjust_delay": True})])
def test_h05_h11_h15_r2_fast_errors_and_exempt_pages_lower_nothing(status: int, meta: dict[str, Any]) -> None:
    throttle = throttle_of(**AUTO)
    answer(throttle, attempt_of(throttle, request(**meta)), 0.01, status)
    assert throttle.scope(A, 0.01).state.auto == 5.0


async def test_h15_a_soft_block_that_the_manager_reports_lowers_nothing() -> None:
    manager = Reports()
    throttle = throttle_of(**AUTO, manager=manager)
    manager.said = A
    await hear(throttle, 0.0, 200)
    assert throttle.scope(A, 0.0).state.auto == 5.0
    assert throttle.scope(A, 0.0).effective.delay == 10.0  # H04: beside a backoff the larger holds


def test_h13_debug_tells_of_each_response(caplog: pytest.LogCaptureFixture) -> None:
    throttle = throttle_of(**AUTO, autothrottle_debug=True)
    with caplog.at_level(logging.INFO, "trawl.throttling"):
        send(throttle, 0.0, latency=0.2)
    assert caplog.records[0].message == (
        "slot: a.example | conc: 1 | latency: 200 ms, last 0 ms | target: 200 ms | "
        "delay: 5000 -> 2600 ms | size: 0 bytes"
    )
