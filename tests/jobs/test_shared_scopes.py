"""Scopes that several crawls need at once: whole crawls in one run, with a store that is simulated."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import groupby, pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.simulated_store import SimulatedStore
from tests.watched_crawl import crawl_with
from trawl._run import CrawlResult
from trawl.blocking import InlineBlocking
from trawl.engine import Crawl
from trawl.errors import SettingsError
from trawl.frontier.job import SessionLease
from trawl.frontier.redis.client import Address, Call, StoreConnectionError, StoreServer
from trawl.frontier.redis.line import RedisSharedScopeClient
from trawl.http import Fetch, Outcome, Request, Response
from trawl.scheduler import Attempt
from trawl.settings import Layer, load
from trawl.testing import SimulatedWeb

from .site import START_UTC

QUICK = {
    "DOWNLOAD_DELAY": 0,
    "DOWNLOAD_DELAY_PER_SLOT": 0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
    "ROBOTSTXT_OBEY": False,
    "BACKOFF_JITTER": 0,
}


class Cut(StoreServer):
    """A connection that can be cut off, as a kill does."""

    def __init__(self, server: StoreServer, cut: set[int], number: int) -> None:
        self._server, self._cut, self._number = server, cut, number

    async def run(self, calls: Sequence[Call], replicas: int = 0) -> list[Any]:
        if self._number in self._cut:
            while self._number in self._cut:  # noqa: ASYNC110 - a set tells nobody
                await trio.sleep(1.0)
            raise StoreConnectionError("it was cut off")
        return await self._server.run(calls, replicas)

    async def read_stream(self, key: str, after: str, seconds: float) -> list[tuple[str, Mapping[bytes, bytes]]]:
        return await self._server.read_stream(key, after, seconds)

    async def facts(self) -> Mapping[str, str]:
        return await self._server.facts()


@pytest.fixture
def cut() -> set[int]:
    """The numbers of the crawls whose line is cut off."""
    return set()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, cut: set[int]) -> SimulatedStore:
    """A store whose line is one for all jobs: each crawl here has a job of its own."""
    made = SimulatedStore()
    for name in ("client.connect", "startup.connect_server"):
        monkeypatch.setattr(f"trawl.frontier.redis.{name}", made.connect)

    def line(
        address: Address, session: str, *, life: float, lease: SessionLease, connect: Any
    ) -> RedisSharedScopeClient:
        @asynccontextmanager
        async def through(here: Address) -> AsyncGenerator[StoreServer, None]:
            async with connect(here) as server:
                yield Cut(server, cut, int(address.job))

        return RedisSharedScopeClient(
            Address.parse("redis://store/all"), session, life=life, lease=lease, connect=through
        )

    monkeypatch.setattr("trawl.frontier.redis.startup.RedisSharedScopeClient", line)
    return made


class Fleet:
    """Crawls of one spider that share scopes.

    Attributes:
        sends: Of each send when, by which crawl, which URL, and when it ended.
    """

    def __init__(self, web: SimulatedWeb, scopes: Mapping[str, Any], spider: type[trawl.Spider], **more: Any) -> None:
        self.web = web
        self.spider = spider
        self.settings = {**QUICK, "THROTTLING_SCOPES": scopes, **more}
        self.sends: list[tuple[float, int, str]] = []
        self.ends: list[float] = []
        self.crawls: dict[int, Crawl] = {}
        self.results: dict[int, CrawlResult] = {}

    async def run(self, count: int, seconds: float) -> None:
        """Run ``count`` crawls at once, and stop those after some time that have not ended."""
        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(self._crawl, number, seconds)

    async def _crawl(self, number: int, seconds: float) -> None:
        on_the_wire: set[Attempt] = set()

        def record(attempt: Attempt, outcome: Outcome | None, now: float) -> None:
            if attempt in on_the_wire:  # one that is cancelled has no outcome
                on_the_wire.remove(attempt)
                self.ends.append(now)
            else:
                on_the_wire.add(attempt)
                self.sends.append((now, number, attempt.request.url))

        async def stop(crawl: Crawl) -> None:
            self.crawls[number] = crawl
            await trio.sleep(seconds)
            crawl.shutdown()

        self.results[number] = await crawl_with(
            self.spider,
            load(Layer("test", {**self.settings, "JOB_DIR": f"redis://store/{number}"})),
            transport=self.web.transport(),
            blocking=InlineBlocking(),
            seed=number,
            now_utc=START_UTC,
            watchers=[stop],
            recorder=record,
            spider_args={"number": str(number)},
        )

    @property
    def by_crawl(self) -> list[int]:
        """How many sends each crawl had."""
        return sorted(Counter([number for _, number, _ in self.sends]).values())

    def gaps(self) -> list[float]:
        """The times between sends, of all crawls."""
        times = sorted([at for at, _, _ in self.sends])
        return [after - before for before, after in pairwise(times)]

    def most_in_flight(self) -> int:
        """The maximum number of requests on the wire at once."""
        changes = sorted([(at, 1) for at, _, _ in self.sends] + [(at, -1) for at in self.ends])
        now = most = 0
        for _, change in changes:
            now += change
            most = max(most, now)
        return most


class Many(trawl.Spider):
    """Asks for many pages of a few hosts, all through one proxy."""

    name = "many"
    number: str

    async def start(self) -> Any:
        for page in range(40):
            for host in range(5):
                yield Request(
                    f"http://h{host}.site{self.number}.example/{page}",
                    meta={"throttling_scopes": [f"h{host}.site{self.number}.example", "proxy a"]},
                )

    def parse(self, response: Any, **kwargs: Any) -> Any:
        return None


def web(latency: float = 0.2, **host: Any) -> SimulatedWeb:
    made = SimulatedWeb()
    for number in range(4):
        for each in range(5):
            made.add_host(f"h{each}.site{number}.example", latency=latency, **host)
    return made


@pytest.mark.long
@pytest.mark.parametrize("latency", [0.005, 0.05])
@pytest.mark.parametrize("crawls", [4, 2])
async def test_a_delay_holds_over_all_crawls_and_is_used(
    autojump_clock: MockClock, store: SimulatedStore, latency: float, crawls: int
) -> None:
    store.latency = latency
    fleet = Fleet(web(), {"proxy a": {"delay": 1.0, "jitter": False}}, Many)
    await fleet.run(crawls, 60.0)
    gaps = fleet.gaps()
    assert min(gaps) >= 1.0 - 1e-9
    assert len(gaps) / sum(gaps) >= 0.98
    # Crawls take turns. In a turn, a crawl sends its requests that are older than those of the others (at most one for
    # each of its five hosts, and one at the start), and then eight more.
    turns = [(crawl, len([*sends])) for crawl, sends in groupby([number for _, number, _ in sorted(fleet.sends)])]
    order = [crawl for crawl, _ in turns]
    assert set(order[:crawls]) == {*range(crawls)}
    assert order[crawls:] == order[:-crawls]
    assert all(9 <= sends <= 13 for _, sends in turns[:-1])


@pytest.mark.parametrize(("rate", "seconds"), [(0.25, 200.0), (5.0, 20.0)])
@pytest.mark.long
async def test_a21_a_rate_is_a_ceiling_over_all_crawls_and_is_used(
    autojump_clock: MockClock, store: SimulatedStore, rate: float, seconds: float
) -> None:
    fleet = Fleet(web(), {"proxy a": {"rate": rate}}, Many)
    await fleet.run(3, seconds)
    times = sorted([at for at, _, _ in fleet.sends])
    for first, start in enumerate(times):
        assert all(last - first + 1 <= (times[last] - start) * rate + 2.0 + 1e-6 for last in range(first, len(times)))
    assert (len(times) - 1) / (times[-1] - times[0]) >= 0.97 * rate
    gaps = [rate * gap for gap in fleet.gaps()]
    assert min(gaps) < 0.85  # drawn
    assert max(gaps) > 1.15


class Both(Many):
    """Asks without end for pages of either of two scopes, and ten seconds later for one page of both."""

    scopes: Sequence[str] = ("proxy a", "proxy b")

    async def start(self) -> Any:
        for scope in self.scopes:
            for page in range(8):
                yield self.page(str(page), [scope])
        yield self.page("both", self.scopes, delay=10.0)

    def page(self, name: str, scopes: Sequence[str], **meta: Any) -> Request:
        host = f"h0.site{self.number}.example"
        names = [host if scope == "host" else scope for scope in scopes]
        url = f"http://{host}/{name}.{'' if len(scopes) > 1 else scopes[0].replace(' ', '')}"
        return Request(url, dont_filter=True, meta={"throttling_scopes": names, "again": scopes, **meta})

    def parse(self, response: Any, **kwargs: Any) -> Any:
        if "both" not in response.url:
            yield self.page("next", response.meta["again"])


@pytest.mark.long
@pytest.mark.parametrize("scopes", [("proxy a", "proxy b"), ("proxy a", "host")])
async def test_p4_a_page_of_two_scopes_is_not_always_passed_by_pages_of_one_of_them(
    scopes: Sequence[str], autojump_clock: MockClock, store: SimulatedStore
) -> None:
    store.latency = 0.005
    delays = {"proxy a": 1.0, "proxy b": 1.3} | {f"h0.site{number}.example": 1.0 for number in range(2)}
    limits = {scope: {"delay": delay, "jitter": False} for scope, delay in delays.items()}
    fleet = Fleet(web(), limits, type("TheirBoth", (Both,), {"scopes": scopes}))
    await fleet.run(2, 45.0)
    for crawl in range(2):
        own = [(at, url) for at, number, url in fleet.sends if number == crawl]
        (reached,) = [at for at, url in own if "both" in url]
        assert len([at for at, _ in own if own[0][0] + 10.0 <= at < reached]) <= 32


@pytest.mark.parametrize(("crawls", "seconds", "share"), [(1, 3.0, 0.98), (2, 3.0, 0.98), (2, 0.5, 0.98)])
@pytest.mark.long
async def test_a_delay_is_used_though_a_middleware_awaits_before_the_wire(
    autojump_clock: MockClock, store: SimulatedStore, crawls: int, seconds: float, share: float
) -> None:
    def slow(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            await trio.sleep(seconds)
            return await fetch(request)

        return send

    scopes = {"proxy a": {"delay": 0.5, "jitter": False}}
    fleet = Fleet(web(), scopes, Many, DOWNLOADER_MIDDLEWARES={slow: 560})
    await fleet.run(crawls, 50.0)
    gaps = fleet.gaps()[5:]  # until then nobody knows how long the way to the wire takes
    assert min(gaps) >= 0.5 - 1e-9
    assert len(gaps) / sum(gaps) >= share * 2.0


class TokenFirst:
    """Fetches a page before others are sent: once, under a lock, or one for each of them.

    Attributes:
        scopes: What the fetched page needs.
        is_once: It is fetched once.
    """

    scopes: Sequence[str] = ("proxy a",)
    is_once = True

    def __init__(self, crawl: Any) -> None:
        self.crawl = crawl
        self.lock = trio.Lock()
        self.token = ""

    @classmethod
    def from_crawler(cls, crawl: Any) -> TokenFirst:
        return cls(crawl)

    async def fetched(self, request: Request) -> str:
        url = f"http://h0.site{self.crawl.spider.number}.example/token"
        meta = {"throttling_scopes": [*self.scopes], "is_token": True}
        return (await self.crawl.fetch(Request(url, meta=meta))).text or "token"

    def __call__(self, fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            if request.meta.get("is_token"):
                return await fetch(request)
            if not self.is_once:
                await self.fetched(request)
            else:
                async with self.lock:
                    self.token = self.token or await self.fetched(request)
            return await fetch(request)

        return send


class TokenEach(TokenFirst):
    is_once = False


class Few(Many):
    """Asks for six pages."""

    async def start(self) -> Any:
        for page in range(6):
            host = f"h{page % 5}.site{self.number}.example"
            yield Request(f"http://{host}/{page}", meta={"throttling_scopes": [host, "proxy a"]})

    def parse(self, response: Any, **kwargs: Any) -> Any:
        yield {"url": response.url}


@pytest.mark.parametrize("crawls", [1, 2])
@pytest.mark.parametrize(
    ("middleware", "limits", "sends"),
    [
        (TokenFirst, {"concurrency": 1}, 7),
        (TokenFirst, {"concurrency": 1, "delay": 1.0}, 7),
        (TokenFirst, {"concurrency": 3}, 7),
        (TokenEach, {"concurrency": 1}, 12),
        (TokenEach, {"concurrency": 2, "delay": 0.5}, 12),
        (TokenEach, {"concurrency": 1, "quota": 4, "window": 5.0}, 12),
    ],
)
async def test_a_page_holds_no_token_while_its_middleware_fetches_another(
    middleware: type[TokenFirst],
    limits: Mapping[str, float],
    sends: int,
    crawls: int,
    autojump_clock: MockClock,
    store: SimulatedStore,
) -> None:
    store.latency = 0.005
    fleet = Fleet(web(), {"proxy a": limits}, Few, DOWNLOADER_MIDDLEWARES={middleware: 560})
    await fleet.run(crawls, 300.0)
    assert [result.reason for result in fleet.results.values()] == ["finished"] * crawls
    assert [result.stats["item_scraped_count"] for result in fleet.results.values()] == [6] * crawls
    assert fleet.by_crawl == [sends] * crawls
    assert fleet.most_in_flight() <= limits["concurrency"]
    if "delay" in limits:
        assert min(fleet.gaps()) >= limits["delay"] * 0.5 - 1e-9


class Crossed(TokenFirst):
    """Fetches through the one proxy for a page of the other."""

    is_once = False

    async def fetched(self, request: Request) -> str:
        self.scopes = ["proxy b"] if self.crawl.spider.number == "0" else ["proxy a"]
        return await super().fetched(request)


class OneProxyEach(Few):
    """Asks for six pages, through another proxy in each crawl."""

    async def start(self) -> Any:
        for page in range(6):
            host = f"h{page % 5}.site{self.number}.example"
            proxy = "proxy a" if self.number == "0" else "proxy b"
            yield Request(f"http://{host}/{page}", meta={"throttling_scopes": [host, proxy]})


async def test_two_crawls_do_not_wait_for_each_others_tokens(autojump_clock: MockClock, store: SimulatedStore) -> None:
    store.latency = 0.005
    scopes = {"proxy a": {"concurrency": 1}, "proxy b": {"concurrency": 1}}
    fleet = Fleet(web(), scopes, OneProxyEach, DOWNLOADER_MIDDLEWARES={Crossed: 560})
    await fleet.run(2, 300.0)
    assert [result.reason for result in fleet.results.values()] == ["finished"] * 2
    assert fleet.by_crawl == [12, 12]


@pytest.mark.parametrize("seconds", [4.0, 8.0, 20.0])
async def test_a_token_that_is_over_when_a_middleware_is_done_is_asked_for_anew(
    seconds: float, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    calls = 0

    def slow(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            nonlocal calls
            calls += 1
            await trio.sleep(seconds)
            return await fetch(request)

        return send

    fleet = Fleet(web(), {"proxy a": {"concurrency": 1}}, Few, DOWNLOADER_MIDDLEWARES={slow: 560})
    await fleet.run(1, 500.0)
    assert fleet.results[0].reason == "finished"
    assert (len(fleet.sends), calls) == (6, 6)


async def test_places_are_shared_by_all_crawls_and_all_are_used(
    autojump_clock: MockClock, store: SimulatedStore
) -> None:
    store.latency = 0.005
    fleet = Fleet(web(latency=0.5), {"proxy a": {"concurrency": 6}}, Many)
    await fleet.run(3, 20.0)
    assert fleet.most_in_flight() == 6
    assert len(fleet.sends) >= 0.95 * 6 * 20.0 / 0.5
    assert fleet.by_crawl[0] >= 0.8 * len(fleet.sends) / 3


async def test_a_quota_is_one_for_all_crawls(autojump_clock: MockClock, store: SimulatedStore) -> None:
    store.latency = 0.005
    fleet = Fleet(web(), {"proxy a": {"quota": 10, "window": 5.0}}, Many)
    await fleet.run(3, 22.0)
    assert len(fleet.sends) == 50
    for start, _, _ in fleet.sends[::10]:
        assert len([at for at, _, _ in fleet.sends if start <= at < start + 4.98]) == 10


async def test_a_refusal_that_one_crawl_hears_slows_all_of_them(
    autojump_clock: MockClock, store: SimulatedStore
) -> None:
    store.latency = 0.005
    sites = SimulatedWeb()
    for number in range(2):
        for each in range(5):
            status = 503 if number == 0 and each == 0 else 200
            sites.add_host(f"h{each}.site{number}.example", latency=0.1, status=status)
    scopes = {"proxy a": {"delay": 0.5, "jitter": False, "backoff": {"min_delay": 8.0, "window": 1000.0}}}
    fleet = Fleet(sites, scopes, Many, RETRY_TIMES=0)
    await fleet.run(2, 60.0)
    first = min([at for at, number, url in fleet.sends if "h0.site0" in url])
    later = [at for at, _, _ in fleet.sends if at > first + 0.2]
    assert later
    assert min([after - before for before, after in pairwise(later)]) >= 8.0 - 1e-9


async def test_why_tells_what_stands_in_the_way_and_the_place_in_line(
    autojump_clock: MockClock, store: SimulatedStore
) -> None:
    store.latency = 0.005
    fleet = Fleet(web(), {"proxy a": {"delay": 3.0, "jitter": False}}, Many)
    told: list[str] = []

    async def ask() -> None:
        await trio.sleep(20.5)
        for crawl in fleet.crawls.values():
            told.extend([waiting.reason.text(trio.current_time()) for waiting in crawl.waiting()])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await fleet.run(2, 21.0)
    assert any(text.startswith("proxy a delay") and "before it in line" in text for text in told), told


async def test_a_crawl_that_is_killed_with_tokens_shuts_the_scope_for_one_lease_at_most(
    autojump_clock: MockClock, store: SimulatedStore, cut: set[int]
) -> None:
    store.latency = 0.005
    fleet = Fleet(web(), {"proxy a": {"delay": 0.5, "jitter": False, "concurrency": 2}}, Many)
    killed_at = 0.0

    async def kill() -> None:
        nonlocal killed_at
        await trio.sleep(10.0)
        killed_at = trio.current_time()
        cut.add(0)
        fleet.crawls[0].cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill)
        await fleet.run(3, 60.0)
    assert min(fleet.gaps()) >= 0.5 - 1e-9
    late = sorted([at for at, _, _ in fleet.sends if at > killed_at])
    assert max([after - before for before, after in pairwise([killed_at, *late])]) <= 16.0
    assert len([at for at in late if at > killed_at + 16.0]) >= 60


async def test_what_is_on_the_wire_of_a_crawl_whose_line_alone_is_cut_ends_before_its_places_go_to_others(
    autojump_clock: MockClock, store: SimulatedStore, cut: set[int]
) -> None:
    store.latency = 0.005
    fleet = Fleet(web(latency=40.0), {"proxy a": {"concurrency": 2}}, Many)

    async def cut_off() -> None:
        await trio.sleep(10.0)
        cut.add(0)  # the line of this crawl; what it has to do with its job goes on
        await trio.sleep(60.0)
        cut.clear()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut_off)
        await fleet.run(2, 400.0)
    assert {number for at, number, _ in fleet.sends if at < 5.0} == {0, 1}
    assert {number for at, number, _ in fleet.sends if 20.0 < at < 70.0} == {1}
    assert {number for at, number, _ in fleet.sends if at > 100.0} == {0, 1}
    assert fleet.most_in_flight() == 2


@pytest.mark.parametrize(
    ("name", "scope", "words"),
    [
        ("proxy a", {"rampup": True}, "'rampup'"),
        ("proxy a", {"delay_per_slot": 2.0}, "'delay_per_slot'"),
        ("proxy a", {"quota": 5, "sliding": True}, "'sliding'"),
        ("proxy a", {"pages": 5}, "'pages'"),
        ("h0.site0.example", {"shared": True}, "AUTOTHROTTLE_ENABLED"),
    ],
)
async def test_what_one_process_alone_can_know_is_refused_at_the_start(
    autojump_clock: MockClock, store: SimulatedStore, name: str, scope: Any, words: str
) -> None:
    fleet = Fleet(web(), {name: scope}, Many, AUTOTHROTTLE_ENABLED=True)
    with pytest.raises(ExceptionGroup) as caught:
        await fleet.run(1, 1.0)
    error = caught.value.exceptions[0]
    assert isinstance(error, SettingsError)
    assert f"can't have {words}" in str(error)
    assert name in str(error)


async def test_a_host_that_is_declared_as_shared_is_granted_in_the_store(
    autojump_clock: MockClock, store: SimulatedStore
) -> None:
    class Cdn(Many):
        async def start(self) -> Any:
            for page in range(30):
                yield Request(f"http://h0.site0.example/{self.number}/{page}")

    store.latency = 0.005
    fleet = Fleet(web(), {"h0.site0.example": {"shared": True, "delay": 1.0, "jitter": False}}, Cdn)
    await fleet.run(2, 30.0)
    assert min(fleet.gaps()) >= 1.0 - 1e-9
    assert len(fleet.sends) >= 29


async def test_a_crawl_without_shared_scopes_asks_for_nothing(autojump_clock: MockClock, store: SimulatedStore) -> None:
    class Plain(Many):
        async def start(self) -> Any:
            yield Request("http://h0.site0.example/")

    asked, run = [], store.run

    def listen(name: str, *rest: Any) -> Any:
        asked.append(name)
        return run(name, *rest)

    store.run = listen  # type: ignore[assignment,method-assign]
    fleet = Fleet(web(), {}, Plain)
    await fleet.run(1, 5.0)
    assert len(fleet.sends) == 1
    assert "line" not in asked


async def test_responses_of_middleware_release_the_places_that_they_waited_for(
    autojump_clock: MockClock, store: SimulatedStore
) -> None:
    def answers(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            return Outcome(request, Response(request.url, status=200, request=request))

        return send

    class Few(Many):
        async def start(self) -> Any:
            for page in range(4):
                url = f"http://h0.site{self.number}.example/{page}"
                yield Request(url, meta={"throttling_scopes": ["host", "proxy a"]})

    scopes = {"proxy a": {"concurrency": 1}, "host": {"concurrency": 1}}
    fleet = Fleet(web(), scopes, Few, DOWNLOADER_MIDDLEWARES={answers: 560})
    await fleet.run(1, 60.0)
    assert fleet.results[0].reason == "finished"
    assert fleet.results[0].stats["response_count"] == 4
