"""Which proxy a request gets; how those of a list take turns, rest and come back."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

import trawl
from trawl.errors import ConnectFailed, DownloadError, ProxyFailed, SettingsError
from trawl.http import Outcome, Replace, Request, Response
from trawl.middleware import ProxyCooldown, ProxyPool, proxies
from trawl.middleware.proxies import make_proxy_pool
from trawl.observe import Stats
from trawl.testing import Outage, SimulatedResponse, SimulatedWeb, Simulation, simulate
from trawl.transport.proxy import EnvironmentProxies

A, B, C = (f"http://{name}.example:8080" for name in "abc")
REST = ProxyCooldown(base=10.0, cap=60.0)
NONE = EnvironmentProxies()


# The policy.


def test_proxies_take_turns() -> None:
    pool = ProxyPool([A, B, C], REST)
    assert [pool.choose(0.0) for _ in range(7)] == [A, B, C, A, B, C, A]


def test_one_that_fails_rests_twice_as_long_each_time_up_to_the_cap() -> None:
    pool, now, pauses = ProxyPool([A], REST), 0.0, []
    for _ in range(5):
        pause = pool.failed(A, now + 1, now + 2)
        assert pause is not None
        pauses.append(pause)
        now += 2 + pause
        assert pool.choose(now - 0.1) == now
        assert pool.choose(now) == A
    assert pauses == [10.0, 20.0, 40.0, 60.0, 60.0]


def test_a_success_ends_the_row_unless_it_was_begun_before_the_failure() -> None:
    pool = ProxyPool([A], REST)
    assert pool.failed(A, 1.0, 2.0) == 10.0
    pool.succeeded(A, 0.5)
    assert pool.failed(A, 12.0, 13.0) == 20.0
    pool.succeeded(A, 33.0)
    assert pool.failed(A, 34.0, 35.0) == 10.0


def test_what_fails_together_is_one_incident() -> None:
    pool = ProxyPool([A, B], REST)
    assert [pool.failed(A, began, 10.0) for began in (0.0, 1.0, 9.0, 10.0)] == [10.0, None, None, None]
    assert (pool.is_ready(A, 10.0), pool.is_ready(B, 10.0)) == (False, True)
    assert [pool.choose(11.0) for _ in range(2)] == [B, B]
    assert pool.is_ready(A, 20.0)


def test_if_all_rest_the_first_that_comes_back_is_told() -> None:
    pool = ProxyPool([A, B], REST)
    pool.failed(A, 1.0, 2.0)
    pool.failed(B, 1.0, 5.0)
    assert pool.choose(6.0) == 12.0
    assert [pool.choose(12.0), pool.choose(12.0)] == [A, A]
    assert {pool.choose(15.0), pool.choose(15.0)} == {A, B}


@given(
    st.lists(st.tuples(st.sampled_from(["failed", "succeeded", "choose"]), st.floats(0, 30), st.floats(0, 10))),
    st.integers(1, 4),
)
def test_a_proxy_is_never_lost_and_never_chosen_while_it_rests(
    steps: list[tuple[str, float, float]], many: int
) -> None:
    urls = [f"http://p{number}:1" for number in range(many)]
    pool, now = ProxyPool(urls, REST), 100.0
    for turn, (step, passed, ago) in enumerate(steps):
        now += passed
        url = urls[turn % many]
        if step == "failed":
            pause = pool.failed(url, now - ago, now)
            assert pause is None or 10.0 <= pause <= 60.0
        elif step == "succeeded":
            pool.succeeded(url, now - ago)
        chosen = pool.choose(now)
        if isinstance(chosen, float):
            assert now < chosen <= now + 60.0
            assert not any(pool.is_ready(url, now) for url in urls)
        else:
            assert pool.is_ready(chosen, now)
    now += 60.0
    assert {pool.choose(now) for _ in range(many)} == set(urls)


def test_the_growth_ends_before_a_number_does() -> None:
    assert ProxyCooldown(base=1.0, cap=float("inf")).after(10_000) == 2.0**64


def test_what_is_no_proxy_is_an_error_of_the_setting() -> None:
    assert make_proxy_pool((), REST) is None
    with pytest.raises(SettingsError, match="ROTATING_PROXY_LIST: a proxy's scheme"):
        make_proxy_pool((A, "ftp://me:secret@b.example"), REST)


# The middleware.

Answer = Callable[[Request], Response | DownloadError]


def fine(request: Request) -> Response:
    return Response(request.url, request=request)


def sending(
    pool: ProxyPool | None = None,
    environment: EnvironmentProxies = NONE,
    answer: Answer = fine,
    **options: Any,
) -> tuple[Any, list[object]]:
    """The middleware's way of sending, and the proxies that requests went through."""
    used: list[object] = []

    async def wire(request: Request) -> Outcome:
        await trio.lowlevel.checkpoint()
        used.append(request.meta_get("proxy"))
        found = answer(request)
        return Outcome(request, error=found) if isinstance(found, DownloadError) else Outcome(request, response=found)

    return proxies(pool, environment, **options)(wire), used


async def test_a_requests_own_proxy_goes_before_all_others_none_included(autojump_clock: MockClock) -> None:
    send, used = sending(ProxyPool([A], REST), EnvironmentProxies({"all": C}))
    for meta in ({"proxy": B}, {"proxy": None}, {"proxy": ""}, {}):
        await send(Request("http://x.example/", meta=meta))
    assert used == [B, None, "", A]


async def test_the_environment_counts_where_there_is_no_list(autojump_clock: MockClock) -> None:
    send, used = sending(None, EnvironmentProxies({"http": A}, ("y.example",)))
    for url in ("http://x.example/", "https://x.example/", "http://y.example/"):
        await send(Request(url))
    assert used == [A, None, None]


async def test_a_redirect_to_another_scheme_gets_the_proxy_of_that_scheme(autojump_clock: MockClock) -> None:
    send, used = sending(None, EnvironmentProxies({"http": A}))
    request = Request("http://x.example/")
    await send(request)
    await send(request.replace(url="https://x.example/"))
    mine = Request("http://x.example/", meta={"proxy": B})
    await send(mine)
    await send(mine.replace(url="https://x.example/"))
    assert used == [A, None, B, B]


async def test_a_request_that_is_sent_again_gets_another_proxy(autojump_clock: MockClock) -> None:
    send, used = sending(ProxyPool([A, B], REST))
    request = Request("http://x.example/")
    await send(request)
    await send(request.replace())
    assert used == [A, B]


async def test_a_proxy_that_fails_rests_and_people_are_told_without_its_password(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "http://me:secret@a.example:8080"

    def answer(request: Request) -> Response | DownloadError:
        if request.meta["proxy"] == secret:
            return ProxyFailed("the proxy http://a.example:8080 refuses: 407", is_of_proxy=True)
        return fine(request)

    stats = Stats()
    send, used = sending(ProxyPool([secret, B], REST), answer=answer, stats=stats)
    await trio.sleep(1)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            await send(Request("http://x.example/"))
    assert used == [secret, B, B, B]
    assert stats.get("proxy_failed_count") == 1
    assert "http://a.example:8080 is cooling down for 10 s" in caplog.text
    assert "secret" not in caplog.text
    await trio.sleep(10)
    await send(Request("http://x.example/"))
    await send(Request("http://x.example/"))
    assert secret in used[4:]


@pytest.mark.parametrize(
    ("answer", "rests"),
    [
        (lambda request: ProxyFailed("refused", is_of_proxy=True), True),
        (lambda request: ProxyFailed("the host is down", is_of_proxy=False), False),
        (lambda request: ConnectFailed("refused"), False),
        (lambda request: ProxyFailed("status 403", response=Response(request.url, 403, request=request)), True),
        (lambda request: Response(request.url, 500, request=request), False),
    ],
)
async def test_a_proxy_rests_for_what_is_its_own_fault(autojump_clock: MockClock, answer: Answer, rests: bool) -> None:
    pool = ProxyPool([A], REST)
    send, _ = sending(pool, answer=answer)
    await trio.sleep(1)
    await send(Request("http://x.example/"))
    assert pool.is_ready(A, trio.current_time()) is not rests


async def test_where_all_rest_a_request_waits_without_being_sent(autojump_clock: MockClock) -> None:
    pool = ProxyPool([A], REST)
    pool.failed(A, 1.0, 2.0)
    send, used = sending(pool)
    await trio.sleep(5)
    request = Request("http://x.example/")
    outcome = await send(request)
    assert outcome.then == Replace(request, 7.0, "proxy_wait")
    assert used == []


# In a crawl.


class Pages(trawl.Spider):
    name = "pages"
    start_urls = [f"http://x.example/{number}" for number in range(3)]

    def parse(self, response: trawl.Response) -> dict[str, object]:
        return {"proxy": response.meta.get("proxy")}


def crawled(**settings: object) -> list[object]:
    web = SimulatedWeb()
    web.add_host("x.example")
    sim = simulate(Pages, web, {"ROBOTSTXT_OBEY": False, **settings})
    assert sim.reason == "finished"
    return [item["proxy"] for item in sim.items]


def test_a_crawl_uses_the_environments_proxies_unless_it_is_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert crawled() == [None] * 3
    monkeypatch.setenv("HTTP_PROXY", A)
    assert crawled() == [A] * 3
    assert crawled(HTTPPROXY_ENABLED=False) == [None] * 3
    monkeypatch.setenv("no_proxy", "x.example")
    assert crawled() == [None] * 3


def test_a_crawl_uses_a_list_in_turn_and_scrapys_path_takes_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", C)
    assert sorted(map(str, crawled(ROTATING_PROXY_LIST=[A, B]))) == [A, A, B]
    path = "scrapy.downloadermiddlewares.httpproxy.HttpProxyMiddleware"
    assert crawled(ROTATING_PROXY_LIST=[A, B], DOWNLOADER_MIDDLEWARES={path: None}) == [None] * 3


# A page that a proxy refused.


class Shop(trawl.Spider):
    name = "shop"
    start_urls = [f"http://x.example/{number}" for number in range(8)]
    custom_settings = {"ROTATING_PROXY_BAN_CODES": [403], "DOWNLOAD_DELAY": 1.0, "RANDOMIZE_DOWNLOAD_DELAY": False}

    def parse(self, response: trawl.Response) -> dict[str, object]:
        return {"url": response.url, "proxy": response.meta["proxy"]}


def shopped(refused: dict[str, int], spider: type[trawl.Spider] = Shop, **settings: Any) -> Simulation:
    """A crawl through proxies of which some answer everything with a status of their own."""
    web = SimulatedWeb()
    web.add_host("x.example", handler=lambda request: SimulatedResponse(refused.get(request.meta["proxy"], 200)))
    return simulate(spider, web, {"ROTATING_PROXY_LIST": [A, B], "ROBOTSTXT_OBEY": False, **settings})


@pytest.mark.parametrize("status", [403, 407, 429, 503])
def test_a_page_that_a_banned_proxy_refuses_is_tried_through_another(status: int) -> None:
    sim = shopped({A: status}, ROTATING_PROXY_BAN_CODES=[status], RETRY_ENABLED=False)
    assert sorted(item["url"] for item in sim.items) == Shop.start_urls
    assert {item["proxy"] for item in sim.items} == {B}
    assert sim.stats["proxy_retry_count"] == sim.stats["proxy_failed_count"] == 1
    assert sim.times("x.example") == [float(second) for second in range(9)]  # the site's throttle heard of no refusal
    assert "backoff_count" not in sim.stats


def test_a_page_that_every_proxy_refuses_ends_with_its_answer() -> None:
    sim = shopped({A: 403, B: 403}, HTTPERROR_ALLOWED_CODES=[403], CLOSESPIDER_PAGECOUNT=1)
    assert [item["url"] for item in sim.items] == [Shop.start_urls[0]]
    assert [send.status for send in sim.sends] == [403, 403]
    assert sim.stats["proxy_retry_count"] == 1


@pytest.mark.parametrize(("most", "sends"), [(0, 1), (1, 2), (5, 3)])
def test_a_request_says_itself_through_how_many_other_proxies_it_goes(most: int, sends: int) -> None:
    class Patient(Shop):
        async def start(self) -> AsyncIterator[trawl.Request]:
            yield trawl.Request(self.start_urls[0], meta={"max_proxies_to_try": most})

    sim = shopped({A: 403, B: 403, C: 403}, spider=Patient, ROTATING_PROXY_LIST=[A, B, C])
    assert len(sim.sends) == sends


def test_other_proxies_cost_nothing_of_the_retries_and_their_budget() -> None:
    some = [f"http://{name}.example:8080" for name in "abcde"]
    sim = shopped(dict.fromkeys(some[:4], 403), ROTATING_PROXY_LIST=some, RETRY_TIMES=0, RETRY_BUDGET=0.0)
    assert len(sim.items) == 8
    assert sim.stats["proxy_retry_count"] == 4
    assert "retry_budget_spent" not in sim.stats


def test_where_all_of_them_rest_the_log_says_for_how_long_and_robots_txt_is_asked_for_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Asking(Shop):
        async def start(self) -> AsyncIterator[trawl.Request]:
            yield (request := trawl.Request(self.start_urls[0]))
            for at in (100.0, 299.95, 301.0):
                await trio.sleep(at - self.crawl.elapsed)
                reason = self.crawl.why(request)
                said.append("" if reason is None else reason.text(trio.current_time()))

    said: list[str] = []
    web = SimulatedWeb()
    web.add_host("x.example", latency=0.2, robots="", outages=[Outage(0.0, 300.5, error=ProxyFailed)])
    settings = {"ROTATING_PROXY_LIST": [A, B], "ROTATING_PROXY_BACKOFF_BASE": 300.0}
    sim = simulate(Asking, web, settings)
    assert [round(send.time, 6) for send in sim.sends if send.url.endswith("robots.txt")] == [0.0, 1.0, 300.2, 301.2]
    (through_a, through_b, robots, *_) = [record.getMessage() for record in caplog.records]
    assert "ROTATING_PROXY_LIST" not in through_a
    assert "so do all others of ROTATING_PROXY_LIST, and requests wait for 299 s: it needs proxies" in through_b
    assert "robots.txt could not be read" in robots
    assert "asking again in 299 s, when a proxy has cooled down: ROTATING_PROXY_LIST needs one that works" in robots
    cause = "it could not be read: the simulated server broke off; it is asked for again then"
    assert said[:2] == [f"http://x.example robots.txt is not read yet {left} ({cause})" for left in ("200 s", "0.25 s")]
    assert said[2] == "http://x.example robots.txt is not read yet (robots.txt)"
    assert len(sim.items) == 1


# A site that refuses what comes through one of them.


class Patiently(Shop):
    start_urls = [f"http://{host}.example/{number}" for number in range(12) for host in "xy"]
    custom_settings = {"DOWNLOAD_DELAY": 1.0, "RANDOMIZE_DOWNLOAD_DELAY": False, "BACKOFF_JITTER": 0}


Sent = tuple[float, str]
"""When a request was sent, and the letter of its proxy."""


def refusing(
    refuses: Callable[[Request], bool], status: int = 429, fields: dict[str, str] | None = None, **settings: Any
) -> tuple[Simulation, list[Sent], list[Sent]]:
    """A crawl of two sites, x.example and y.example, of which the first refuses some requests; the sends to each."""
    proxies: list[str] = []

    def answer(request: Request) -> SimulatedResponse:
        proxies.append(request.meta["proxy"][7])
        is_refused = "x.example" in request.url and refuses(request)
        return SimulatedResponse(status, headers=fields or {}) if is_refused else SimulatedResponse()

    web = SimulatedWeb()
    for host in "xy":
        web.add_host(f"{host}.example", handler=answer)
    sim = simulate(Patiently, web, {"ROTATING_PROXY_LIST": [A, B], "ROBOTSTXT_OBEY": False, **settings})
    sends = list(zip(sim.sends, proxies, strict=True))
    x, y = ([(send.time, proxy) for send, proxy in sends if send.host == f"{host}.example"] for host in "xy")
    return sim, x, y


@pytest.mark.parametrize("status", [429, 503])
def test_a_site_that_refuses_one_proxy_backs_off_through_that_one_alone(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    sim, sends, others = refusing(lambda request: request.meta["proxy"] == A, status)
    assert sorted(item["url"] for item in sim.items) == sorted(Patiently.start_urls)
    assert [at for at, _ in sends] == [float(second) for second in range(len(sends))]  # the site's own pace
    refused = [at for at, proxy in sends if proxy == "a"]
    assert all(later - at >= 2.0**step for step, (at, later) in enumerate(pairwise(refused)))
    assert 2 <= len(refused) <= 4
    assert {proxy for _, proxy in others} == {"a", "b"}
    assert len(others) == 12
    assert "x.example via http://a.example:8080: backing off, step 1: delay 1 s" in caplog.text
    assert "x.example: backing off" not in caplog.text


def test_requests_wait_for_the_first_proxy_that_the_site_may_be_asked_through() -> None:
    left = iter(range(6))
    sim, sends, others = refusing(lambda request: next(left, None) is not None)
    assert [at for at, _ in sends][:12] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 9.0, 12.0, 13.0, 16.0, 17.0]
    for name in "ab":  # three refusals each: from then on 4 s between two sends through it
        assert [later - at for at, later in pairwise(at for at, proxy in sends[6:] if proxy == name)] == [4.0] * 5
    assert len(others) == 12
    assert len(sim.items) == 24
    assert sim.stats["proxy_wait_count"] > 0


def test_a_site_that_never_answers_through_any_of_them_is_given_up() -> None:
    sim, _, _ = refusing(lambda request: True, 503)
    assert len(sim.items) == 12
    assert sim.stats["refused"] == 12
    assert 900.0 <= sim.elapsed < 1300.0


def test_what_a_header_asks_for_holds_for_that_proxy() -> None:
    left = iter(range(1))
    sim, sends, _ = refusing(lambda request: next(left, None) is not None, fields={"Retry-After": "60"})
    refused, *after = [proxy for _, proxy in sends]
    assert set(after) == {"a", "b"} - {refused}
    assert sim.elapsed < 20.0


def test_a_spiders_own_proxies_back_the_site_off_and_the_log_says_how_to_change_that(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Own(Shop):
        async def start(self) -> AsyncIterator[Request]:
            for number, proxy in enumerate((A, B)):
                yield Request(f"http://x.example/{number}", meta={"proxy": proxy})

    shopped({A: 503, B: 503}, Own, RETRY_ENABLED=False)
    assert "x.example: backing off, step 1" in caplog.text
    assert "proxies of ROTATING_PROXY_LIST back off one by one" in caplog.text
