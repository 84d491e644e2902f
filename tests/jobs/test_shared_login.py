"""Middleware that awaits, or fetches a page, where the scope is shared: whole crawls in one run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.simulated_store import SimulatedStore
from trawl.http import Fetch, Middleware, Outcome, Request
from trawl.scheduler.shared_job import SharedJobScheduler
from trawl.testing import SimulatedResponse, SimulatedWeb

from .test_shared_scopes import Fleet, cut, store

__all__ = ["cut", "store"]

HOST = "h0.site0.example"
PAGES = 8
EARLY = 1e-9


class Locked(trawl.Spider):
    """Asks for a login page before every fourth page, under a lock that all of its middleware takes.

    Attributes:
        scopes: The scopes of its pages and of its login pages, by the number of the crawl; None: that of the host.
    """

    name = "locked"
    number: str
    fetches_in = "before"
    takes = 0.0
    scopes: tuple[str, str] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lock = trio.Lock()
        self.count = 0

    def request(self, path: str, *, is_login: bool = False) -> Request:
        if self.scopes is None:
            return Request(f"http://{HOST}/{self.number}/{path}")
        host = f"h0.site{self.number}.example"
        shared = self.scopes[(int(self.number) + is_login) % 2]
        return Request(f"http://{host}/{path}", meta={"throttling_scopes": [host, shared]})

    async def start(self) -> AsyncGenerator[Request, None]:
        for page in range(PAGES):
            yield self.request(str(page))

    async def log_in(self) -> None:
        self.count += 1
        if self.count % 4 == 1:
            await self.fetch(self.request(f"login?{self.count}", is_login=True))

    async def parse(self, response: trawl.Response) -> AsyncGenerator[Any, None]:
        if self.fetches_in == "callback":
            async with self.lock:
                await self.log_in()
        yield {"url": response.url}


class TakesLock:
    """A middleware that logs in under the lock of its spider, before the send, after it, or around it."""

    def __init__(self, spider: Any) -> None:
        self.spider = spider

    @classmethod
    def from_crawler(cls, crawl: Any) -> Middleware:
        return cls(crawl.spider)

    def __call__(self, fetch: Fetch) -> Fetch:
        spider = self.spider

        async def send(request: Request) -> Outcome:
            if "login" in request.url:
                return await fetch(request)
            await trio.sleep(spider.takes)
            async with spider.lock:
                if spider.fetches_in in {"before", "around"}:
                    await spider.log_in()
                if spider.fetches_in == "around":
                    return await fetch(request)
            outcome = await fetch(request)
            if spider.fetches_in == "after" and outcome.then is None:  # it was sent
                async with spider.lock:
                    await spider.log_in()
            return outcome

        return send


def site(**host: Any) -> SimulatedWeb:
    made = SimulatedWeb()
    for number in range(3):
        made.add_host(f"h0.site{number}.example", latency=0.2, **host)
    return made


def fleet_of(web: SimulatedWeb, limits: dict[str, Any], **attributes: Any) -> Fleet:
    return Fleet(
        web,
        limits,
        type("Pages", (Locked,), attributes),
        DOWNLOAD_DELAY=1.0,
        CONCURRENT_REQUESTS_PER_DOMAIN=1,
        DOWNLOADER_MIDDLEWARES={TakesLock: 560},
        CLOSESPIDER_TIMEOUT=1_000,
    )


def assert_nothing_is_kept(fleet: Fleet) -> None:
    """Every place and every token has been given back, and no request waits for one any more."""
    for crawl in fleet.crawls.values():
        scheduler: Any = crawl._scheduler
        assert isinstance(scheduler, SharedJobScheduler)
        assert not scheduler._tokens
        assert not scheduler.preparations.ahead
        assert len(scheduler._by_number) == len(scheduler._asks)
        assert scheduler.in_flight == scheduler.preparations.ahead == scheduler.preparations.running == 0


@pytest.mark.parametrize("crawls", [1, 2])
@pytest.mark.parametrize("fetches_in", ["before", "after", "around", "callback"])
@pytest.mark.parametrize(
    ("limits", "takes"),
    [
        ({}, 0.0),  # the defaults: one at a time, a delay of a second with jitter
        ({"delay": 0.0, "concurrency": 1}, 1.0),
        ({"delay": 0.5, "concurrency": 4, "jitter": False}, 6.0),  # a token is good for five seconds
    ],
)
async def test_a_lock_around_a_login_of_a_shared_scope_keeps_nothing_from_going(
    autojump_clock: MockClock, store: SimulatedStore, limits: dict[str, Any], takes: float, fetches_in: str, crawls: int
) -> None:
    store.latency = 0.005
    fleet = fleet_of(site(), {HOST: {"shared": True, **limits}}, fetches_in=fetches_in, takes=takes)
    await fleet.run(crawls, 2_000.0)
    assert {result.reason for result in fleet.results.values()} == {"finished"}
    assert len(fleet.sends) == crawls * (PAGES + 2)
    assert min(fleet.gaps()) >= limits.get("delay", 0.5) - EARLY
    assert fleet.most_in_flight() <= limits.get("concurrency", 1)
    assert_nothing_is_kept(fleet)


@pytest.mark.parametrize("crawls", [2, 3])
@pytest.mark.parametrize("fetches_in", ["before", "after", "around"])
async def test_crawls_whose_logins_need_what_the_pages_of_others_have_do_not_wait_for_each_other(
    autojump_clock: MockClock, store: SimulatedStore, fetches_in: str, crawls: int
) -> None:
    store.latency = 0.005
    one = {"delay": 0.0, "concurrency": 1}
    fleet = fleet_of(
        site(),
        {"proxy a": one, "proxy b": one},
        fetches_in=fetches_in,
        takes=1.0,
        scopes=("proxy a", "proxy b"),
    )
    await fleet.run(crawls, 2_000.0)
    assert {result.reason for result in fleet.results.values()} == {"finished"}
    assert len(fleet.sends) == crawls * (PAGES + 2)
    assert_nothing_is_kept(fleet)


@pytest.mark.parametrize("fetches_in", ["before", "after", "around", "callback"])
async def test_a_login_of_a_shared_scope_that_is_tried_again_keeps_nothing_from_going(
    autojump_clock: MockClock, store: SimulatedStore, fetches_in: str
) -> None:
    store.latency = 0.005
    failed: set[str] = set()

    def answer(request: Request) -> SimulatedResponse:
        is_first = "login" in request.url and request.url not in failed
        failed.add(request.url)
        return SimulatedResponse(503 if is_first else 200)

    fleet = fleet_of(site(handler=answer), {HOST: {"shared": True}}, fetches_in=fetches_in, takes=1.0)
    await fleet.run(2, 2_000.0)
    assert {result.reason for result in fleet.results.values()} == {"finished"}
    assert len(fleet.sends) == 2 * (PAGES + 4)
    assert fleet.most_in_flight() == 1
    assert_nothing_is_kept(fleet)


@pytest.mark.parametrize("seconds", [0.0, 0.3, 0.6, 2.0, 5.0])
@pytest.mark.parametrize("fetches_in", ["before", "after", "around", "callback"])
async def test_a_shutdown_gives_back_what_waits_for_a_token(
    autojump_clock: MockClock, store: SimulatedStore, fetches_in: str, seconds: float
) -> None:
    store.latency = 0.005
    fleet = fleet_of(site(), {HOST: {"shared": True}}, fetches_in=fetches_in, takes=0.2)
    await fleet.run(2, seconds)
    assert {result.reason for result in fleet.results.values()} == {"shutdown"}
    assert max(result.elapsed for result in fleet.results.values()) <= seconds + 1.0
    assert_nothing_is_kept(fleet)


class TellsBegun:
    """A middleware that notes in its spider which requests have begun."""

    def __init__(self, spider: Any) -> None:
        self.begun: list[str] = spider.begun

    @classmethod
    def from_crawler(cls, crawl: Any) -> Middleware:
        return cls(crawl.spider)

    def __call__(self, fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            self.begun.append(request.url)
            await trio.sleep(0.1)
            return await fetch(request)

        return send


async def test_no_more_begin_than_may_where_the_tokens_of_a_quota_are_spent(
    autojump_clock: MockClock, store: SimulatedStore
) -> None:
    begun: list[str] = []

    class Pages(trawl.Spider):
        name = "pages"
        number: str

        async def start(self) -> AsyncGenerator[Request, None]:
            for page in range(200):
                host = f"h0.site{page % 3}.example"
                yield Request(f"http://{host}/{page}", meta={"throttling_scopes": ["proxy"]})

        def parse(self, response: trawl.Response) -> Any:
            return None

    store.latency = 0.005
    Pages.begun = begun  # type: ignore[attr-defined]
    fleet = Fleet(
        site(),
        {"proxy": {"quota": 3, "window": 60.0}},
        Pages,
        CONCURRENT_REQUESTS=4,
        DOWNLOADER_MIDDLEWARES={TellsBegun: 560},
    )
    await fleet.run(1, 30.0)
    assert len(fleet.sends) == 3
    assert len(begun) <= 3 + 4
    assert_nothing_is_kept(fleet)
