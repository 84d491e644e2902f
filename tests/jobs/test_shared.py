"""Several crawls of one job at once, in one Trio run on the virtual clock: the server's scripts are the real ones."""

from __future__ import annotations

import json
import os
import random
import re
import socket
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.abandoning import abandon
from tests.jobs.site import START_UTC
from tests.simulated_store import SimulatedStore
from tests.watched_crawl import crawl_with
from trawl import signals
from trawl._run import CrawlResult
from trawl.address_guard import AddressGuard
from trawl.blocking import InlineBlocking
from trawl.cli.worker import rejoining
from trawl.engine import Crawl
from trawl.errors import IgnoreRequest, JobError, UsageError
from trawl.exceptions import DontCloseSpider
from trawl.frontier.parts import PARTS, part_of
from trawl.frontier.redis.client import Address, Call, StoreConnectionError, StoreServer
from trawl.frontier.redis.job import RedisJob
from trawl.http import Outcome, Response
from trawl.scheduler import Attempt
from trawl.settings import Layer, load
from trawl.testing import SimulatedWeb
from trawl.transport import OnSent, Transport

HOSTS, PAGES = 12, 10
DELAY = 0.5
URL = "redis://store/shop"


class Shop(trawl.Spider):
    """Goes from page to page of each host, and from each to the next host."""

    name = "shop"
    start_urls: Sequence[str] = ("http://host0.example/",)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}
        yield from response.follow_all(css="a")


def web(hosts: int = HOSTS, pages: int = PAGES, latency: float = 0.1) -> SimulatedWeb:
    """Hosts of linked pages; each page links to the next two, and to the same page of another host."""
    made = SimulatedWeb()
    for host in range(hosts):
        made.add_host(f"host{host}.example", latency=latency)
        for page in range(pages):
            more = [f"/{each}" for each in (2 * page + 1, 2 * page + 2) if each < pages]
            other = f"http://host{(host + 1 + page) % hosts}.example/{page or ''}"
            made.add_page(f"http://host{host}.example/{page or ''}", links=[*more, other, "/"])
    return made


EVERYTHING = sorted(f"http://host{host}.example/{page or ''}" for host in range(HOSTS) for page in range(PAGES))


class Fleet:
    """Processes that share a job: what each sent when, and what was exported."""

    def __init__(self, folder: Path, store: SimulatedStore, **settings: object) -> None:
        self.folder = folder
        self.store = store
        self.web = web()
        self.transport: Transport | None = None
        self.spider: type[trawl.Spider] = Shop
        self.arguments: dict[str, str] = {}
        self.settings = settings
        self.sends: dict[str, list[float]] = defaultdict(list)
        self.sent: list[tuple[float, str]] = []
        self.by: dict[int, Counter[str]] = defaultdict(Counter)
        self.results: dict[int, CrawlResult] = {}

    async def work(
        self,
        number: int,
        *,
        feed: bool = False,
        watchers: Sequence[Any] = (),
        task_status: Any = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """One process; the one with the feed exports."""

        sent: list[Attempt] = []

        def record(attempt: Attempt, outcome: Outcome | None, now: float) -> None:
            if outcome is None and attempt not in sent:  # one that is cancelled is told of again
                sent.append(attempt)
                host = attempt.request.url.split("/")[2]
                self.sends[host].append(now)
                self.sent.append((now, attempt.request.url))
                self.by[number][host] += 1

        settings = {
            "JOB_DIR": URL,
            "DOWNLOAD_DELAY": DELAY,
            "DOWNLOAD_DELAY_PER_SLOT": 0,
            "ROBOTSTXT_OBEY": False,
            **({"FEEDS": {str(self.folder / "items.jsonl"): {}}} if feed else {}),
            **self.settings,
        }
        with trio.CancelScope() as scope:
            task_status.started(scope)
            self.results[number] = await crawl_with(
                self.spider,
                load(Layer("test", settings)),
                spider_args=self.arguments,
                transport=self.transport or self.web.transport(),
                open_page=self.web.open_page,
                blocking=InlineBlocking(),
                seed=number,
                now_utc=START_UTC,
                watchers=list(watchers),
                recorder=record,
            )

    @property
    def lines(self) -> list[Any]:
        """The items in the feed."""
        return [json.loads(line) for line in (self.folder / "items.jsonl").read_text().splitlines()]

    @property
    def items(self) -> list[str]:
        """Their URLs, sorted."""
        return sorted(line["url"] for line in self.lines)

    def check(self) -> None:
        """Nothing is lost, nothing twice in the feed, and no send early, whoever made it."""
        assert self.items == EVERYTHING
        for host, times in self.sends.items():
            gaps = [later - earlier for earlier, later in pairwise(sorted(times))]
            assert min(gaps, default=DELAY) >= 0.5 * DELAY - 1e-6, (host, min(gaps))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> SimulatedStore:
    made = SimulatedStore(latency=0.005)
    monkeypatch.setattr("trawl.frontier.redis.startup.connect_server", made.connect)
    return made


@pytest.mark.long
@pytest.mark.parametrize("latency", [0.0, 0.005, 0.05, 0.5])
@pytest.mark.parametrize("processes", [1, 2, 5])
async def test_processes_that_share_a_job_fetch_what_one_fetches(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, processes: int, latency: float
) -> None:
    store.latency = latency
    fleet = Fleet(tmp_path, store)
    async with trio.open_nursery() as nursery:
        for number in range(processes):
            nursery.start_soon(partial(fleet.work, number, feed=number == 0))
    fleet.check()
    assert {result.reason for result in fleet.results.values()} == {"finished"}
    assert sum(len(times) for times in fleet.sends.values()) == len(EVERYTHING)
    if processes > 1:
        assert len([number for number, hosts in fleet.by.items() if hosts]) > 1


async def test_a_process_that_joins_late_takes_its_share_and_one_that_is_stopped_gives_it_back(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    fleet = Fleet(tmp_path, store, DOWNLOAD_DELAY=2.0)

    async def stop(crawl: Crawl) -> None:
        await trio.sleep(8.0)
        crawl.shutdown()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(fleet.work, 0, feed=True))
        await trio.sleep(1.0)
        nursery.start_soon(partial(fleet.work, 1, watchers=[stop]))
        await trio.sleep(0.5)
        nursery.start_soon(partial(fleet.work, 2))
    fleet.check()
    assert [fleet.results[number].reason for number in range(3)] == ["finished", "shutdown", "finished"]
    assert all(fleet.by[number] for number in range(3)), fleet.by
    assert sum(len(times) for times in fleet.sends.values()) == len(EVERYTHING)  # nothing was fetched again


@pytest.mark.parametrize("seed", range(6))
async def test_what_killed_processes_had_is_fetched_by_others_and_nothing_is_lost(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    jobs: list[RedisJob] = []

    def noted(job: RedisJob, *given: Any, **named: Any) -> None:
        begin(job, *given, **named)
        jobs.append(job)

    begin = RedisJob.__init__
    monkeypatch.setattr(RedisJob, "__init__", noted)
    fleet = Fleet(tmp_path, store, JOB_LEASE=4.0)
    chance = random.Random(seed)
    killed = 0

    async def killable(number: int, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        with suppress(JobError), trio.CancelScope() as scope:
            task_status.started(scope)
            await fleet.work(number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(fleet.work, 0, feed=True))
        await trio.sleep(1.0)
        for number in range(1, 5):
            scope = await nursery.start(killable, number)
            await trio.sleep(chance.uniform(0.5, 6.0))
            if number < 4 and len(jobs) > number:
                killed += 1
                abandon(jobs[number])  # nothing of it is stored any more, as after SIGKILL
                scope.cancel()
    assert killed
    fleet.check()
    assert fleet.results[0].reason == "finished"


@pytest.mark.parametrize("fault", ["unsent", "unanswered"])
async def test_round_trips_that_are_lost_count_once_in_a_shared_job_too(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, fault: str
) -> None:
    fleet = Fleet(tmp_path, store)
    store.fault = lambda number: fault if number > 20 and number % 7 == 0 else None
    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(partial(fleet.work, number, feed=number == 0))
    fleet.check()
    assert sum(len(times) for times in fleet.sends.values()) == len(EVERYTHING)


async def test_a_server_that_is_away_for_a_minute_is_a_pause_for_all(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    fleet = Fleet(tmp_path, store)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(partial(fleet.work, number, feed=number == 0))
        await trio.sleep(3.0)
        store.is_away = True
        await trio.sleep(60.0)
        store.is_away = False
        back = trio.current_time()
    fleet.check()
    sends = sorted(each for times in fleet.sends.values() for each in times)
    assert not [each for each in sends if began + 3.0 + 15.0 < each < back]  # nothing once the lease may be over
    assert min(each for each in sends if each >= back) < back + 6.0


process: ContextVar[int] = ContextVar("process")


class Cuttable:
    """Connections to a server, those of single processes of which may be cut.

    Attributes:
        cut: The processes whose round trips come nowhere.
    """

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self.cut: set[int] = set()

    @asynccontextmanager
    async def connect(self, address: Address) -> AsyncGenerator[StoreServer, None]:
        """Hold a connection of the process whose crawl asks for it."""
        number = process.get()
        async with self._store.connect(address) as server:
            run = server.run

            async def run_unless_cut(calls: Sequence[Call], replicas: int = 0) -> list[Any]:
                if number in self.cut:
                    await trio.sleep(1.0)
                    raise StoreConnectionError("cut off")
                return await run(calls, replicas)

            monkeyed: Any = server
            monkeyed.run = run_unless_cut
            yield server


@pytest.mark.parametrize("is_cut_again", [False, True])
async def test_a_process_in_whose_place_others_went_on_joins_them_again(
    tmp_path: Path,
    autojump_clock: MockClock,
    store: SimulatedStore,
    monkeypatch: pytest.MonkeyPatch,
    is_cut_again: bool,
) -> None:
    cuttable = Cuttable(store)
    monkeypatch.setattr("trawl.frontier.redis.startup.connect_server", cuttable.connect)
    fleet = Fleet(tmp_path, store, JOB_LEASE=4.0, DOWNLOAD_DELAY=2.0)
    runs = Counter[int]()

    async def work(number: int) -> None:
        process.set(number)

        async def once() -> None:
            runs[number] += 1
            if is_cut_again and number == 1 and runs[number] == 2:
                cuttable.cut.add(number)
            await fleet.work(number, feed=number == 0)

        await rejoining(once)

    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(work, number)
        await trio.sleep(6.0)
        cuttable.cut.add(1)
        await trio.sleep(6.0)
        cuttable.cut.clear()
        if is_cut_again:  # it finds the server away while it joins, and waits
            while runs[1] < 4:  # noqa: ASYNC110 - what happens in `once` is no event
                await trio.sleep(0.1)
            cuttable.cut.clear()
    fleet.check()
    assert runs[0] == 1
    assert (runs[1] >= 4) if is_cut_again else (runs[1] == 2)
    assert fleet.results[1].reason == "finished"


class Asking(Shop):
    """Asks each other host for a page in the middle of a callback."""

    async def parse(self, response: Response, **kwargs: Any) -> Any:
        said: list[object] = []
        for host in range(HOSTS):
            try:
                said.append((await self.fetch(trawl.Request(f"http://host{host}.example/9"))).status)
            except IgnoreRequest as refusal:
                said.append(str(refusal))
        yield {"url": response.url, "said": said}
        for output in response.follow_all(css="a"):
            yield output


@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_fetch_from_a_host_of_another_process_is_refused_unless_its_scope_is_shared(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, is_shared: bool
) -> None:
    scopes = {f"host{host}.example": {"shared": True} for host in range(HOSTS)} if is_shared else {}
    fleet = Fleet(tmp_path, store, THROTTLING_SCOPES=scopes, CLOSESPIDER_PAGECOUNT=20)
    fleet.spider = Asking
    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(partial(fleet.work, number, feed=number == 0))
    said = [each for line in fleet.lines for each in line["said"]]
    refused = [each for each in said if each != 200]
    if is_shared:
        assert said
        assert not refused
    else:
        assert refused
        assert "another process of this job sends to its host" in refused[0]
        assert '{"shared": True} in THROTTLING_SCOPES' in refused[0]
    for host, times in fleet.sends.items():
        assert min([b - a for a, b in pairwise(sorted(times))], default=DELAY) >= 0.5 * DELAY - 1e-6, host


class Failing(Shop):
    """Fails on each page, after its links."""

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield from super().parse(response)
        raise ValueError("a callback fails")


async def together(fleet: Fleet, processes: int = 3) -> int:
    """Have so many processes work to their end; how many pages they got."""
    fleet.results.clear()
    async with trio.open_nursery() as nursery:
        for number in range(processes):
            nursery.start_soon(partial(fleet.work, number, feed=number == 0))
    return sum(result.stats.get("response_count", 0) for result in fleet.results.values())


BEGUN_MEANWHILE = HOSTS
"""Pages that may come beyond a limit: in a quarter of a second, and the time of an answer, no host is sent to twice."""


@pytest.mark.parametrize("counted", ["page", "item", "error"])
async def test_a_limit_of_a_crawl_holds_over_all_processes_of_its_job(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, counted: str
) -> None:
    limit = f"CLOSESPIDER_{counted.upper()}COUNT"
    fleet = Fleet(tmp_path, store, RANDOMIZE_DOWNLOAD_DELAY=False, **{limit: 40})
    fleet.spider = Failing if counted == "error" else Shop
    for run in (1, 2):  # each counts anew
        pages = await together(fleet)
        assert {result.reason for result in fleet.results.values()} == {f"closespider_{counted}count"}
        # Items of the first run that came after its limit are the first of the second one, without a page.
        waiting = BEGUN_MEANWHILE if counted == "item" and run == 2 else 0
        assert 40 - waiting <= pages <= 40 + BEGUN_MEANWHILE, run
        assert all(fleet.by[number] for number in range(3)), fleet.by


async def test_what_a_process_has_counted_that_is_gone_counts(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    fleet = Fleet(tmp_path, store, CLOSESPIDER_PAGECOUNT=60, JOB_LEASE=2.0, RANDOMIZE_DOWNLOAD_DELAY=False)
    sent_before = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(fleet.work, 0, feed=True))
        scope = await nursery.start(partial(fleet.work, 1))
        await trio.sleep(2.0)
        scope.cancel()
        sent_before = sum(fleet.by[1].values())
    assert sent_before > 0
    assert 60 <= sum(fleet.by[0].values()) + sent_before <= 60 + BEGUN_MEANWHILE + HOSTS


async def test_the_time_of_a_crawl_is_that_of_all_processes_of_its_job(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    fleet = Fleet(tmp_path, store, CLOSESPIDER_TIMEOUT=4.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(fleet.work, 0, feed=True))
        await trio.sleep(3.0)
        began = trio.current_time()
        nursery.start_soon(partial(fleet.work, 1))
    assert trio.current_time() - began < 2.0
    assert {result.reason for result in fleet.results.values()} == {"closespider_timeout"}


async def test_why_names_the_process_that_sends_to_a_host(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    fleet = Fleet(tmp_path, store)
    said = set()

    async def ask(crawl: Crawl) -> None:
        await trio.sleep(3.0)
        reasons = [crawl.why(f"host{host}.example") for host in range(HOSTS)]
        said.update([reason.source for reason in reasons if reason is not None and reason.limit == "store"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(fleet.work, 0, feed=True, watchers=[ask]))
        nursery.start_soon(partial(fleet.work, 1))
    name = f"{socket.gethostname()}:{os.getpid()}"
    assert said == {f"{name} sends to it: `trawl job JOB --why` says what that waits for"}


async def test_what_is_found_inside_ones_own_network_may_be_sent_by_every_process(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A simulated web is open to every address: here start requests decide, as on the real one.
    monkeypatch.setattr("trawl._run._guard", lambda *given, **named: AddressGuard())
    hosts = [f"10.0.0.{number}" for number in range(1, 9)]

    class Inside(Shop):
        start_urls = ()

        async def start(self) -> Any:
            for host in hosts:
                yield trawl.Request(f"http://{host}/")

    fleet = Fleet(tmp_path, store)
    fleet.spider = Inside
    fleet.web = SimulatedWeb()
    for host in hosts:
        fleet.web.add_page(f"http://{host}/", links=[f"/{page}" for page in range(1, 5)])
    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(partial(fleet.work, number, feed=number == 0))
    assert fleet.items == sorted(f"http://{host}/{page or ''}" for host in hosts for page in range(5))
    assert len(fleet.by) > 1


async def test_a_process_that_has_nothing_to_do_gets_hosts_of_one_that_has_many(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    fleet = Fleet(tmp_path, store, CONCURRENT_REQUESTS=1, DOWNLOAD_DELAY=0)
    names = [name for name in map("host{}.example".format, range(1000)) if not part_of(f"//{name}") % 2][:8]
    fleet.web = SimulatedWeb()
    for name in names:
        fleet.web.add_host(name, latency=0.1)
        for page in range(40):
            fleet.web.add_page(f"http://{name}/{page or ''}", links=[f"/{page + 1}"] if page < 39 else [])

    class Hosts(Shop):
        start_urls = [f"http://{name}/" for name in names]

    fleet.spider = Hosts
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(fleet.work, 0, feed=True))
        nursery.start_soon(partial(fleet.work, 1))
    assert len(fleet.items) == 8 * 40
    assert min(sum(counts.values()) for counts in fleet.by.values()) >= 0.4 * 8 * 40, fleet.by
    assert trio.current_time() < 0.6 * 8 * 40 * 0.1


ACCOUNTS = 8


def account_of(url: str) -> str:
    """The shared scope that a page needs."""
    return f"account{sum(url.encode()) % ACCOUNTS}"


class Customer(Shop):
    """Asks for each page with one of some accounts."""

    async def start(self) -> Any:
        yield self._asked(trawl.Request(self.start_urls[0]))

    def parse(self, response: Response, **kwargs: Any) -> Any:
        for each in super().parse(response):
            yield self._asked(each) if isinstance(each, trawl.Request) else each

    def _asked(self, request: trawl.Request) -> trawl.Request:
        host = request.url.split("/")[2]
        return request.replace(meta={"throttling_scopes": {host: None, account_of(request.url): None}})


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.long
async def test_shared_scopes_keep_their_limits_while_parts_change_hands(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, seed: int
) -> None:
    rng = random.Random(seed)
    accounts = {f"account{number}": {"delay": 0.4, "shared": True} for number in range(ACCOUNTS)}
    fleet = Fleet(tmp_path, store, THROTTLING_SCOPES=accounts, RANDOMIZE_DOWNLOAD_DELAY=False)
    fleet.spider = Customer

    async def stop(crawl: Crawl) -> None:
        await trio.sleep(rng.uniform(2.0, 4.0))
        crawl.shutdown()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(fleet.work, 0, feed=True))
        for number in range(1, 5):
            await trio.sleep(rng.uniform(0.5, 2.0))
            nursery.start_soon(partial(fleet.work, number, watchers=[stop]))
    fleet.check()
    by_account: dict[str, list[float]] = defaultdict(list)
    for at, url in fleet.sent:
        by_account[account_of(url)].append(at)
    assert len(by_account) == ACCOUNTS
    for account, times in by_account.items():
        assert min(later - earlier for earlier, later in pairwise(sorted(times))) >= 0.4 - 1e-6, account


class SomeSlow(Customer):
    """Asks for each fourth page, and for each third, with a shared scope."""

    def _asked(self, request: trawl.Request) -> trawl.Request:
        host, page = request.url.split("/")[2:4]
        needs = {name: None for name, every in (("fourth", 4), ("third", 3)) if int(page or 0) % every == 1}
        return request.replace(meta={"throttling_scopes": {host: None, **needs}})


@pytest.mark.parametrize("processes", [1, 3])
async def test_pages_with_shared_scopes_and_without_wait_no_longer_than_their_limits(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, processes: int
) -> None:
    hosts, pages, delay = 20, 20, 0.2
    scopes = {"fourth": {"delay": 0.04, "shared": True}, "third": {"quota": 40, "window": 1.0, "shared": True}}
    fleet = Fleet(tmp_path, store, THROTTLING_SCOPES=scopes, RANDOMIZE_DOWNLOAD_DELAY=False, DOWNLOAD_DELAY=delay)
    fleet.web = web(hosts=hosts, pages=pages)
    fleet.spider = SomeSlow
    async with trio.open_nursery() as nursery:
        for number in range(processes):
            nursery.start_soon(partial(fleet.work, number, feed=number == 0))
    assert len(fleet.items) == hosts * pages
    assert max(at for at, _ in fleet.sent) <= 2.0 * delay * pages  # the hosts' own delays take longest of all limits


async def test_why_tells_of_a_host_that_another_process_sends_to(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    fleet = Fleet(tmp_path, store)
    hosts = [f"host{number}.example" for number in range(HOSTS)]
    told: list[set[str]] = []

    async def ask(crawl: Crawl) -> None:
        await trio.sleep(4.0)
        for subjects in (hosts, [trawl.Request(f"http://{host}/9") for host in hosts]):
            reasons = zip(hosts, map(crawl.why, subjects), strict=True)
            words = {host: reason.text(0.0) for host, reason in reasons if reason is not None}
            told.append({host for host, text in words.items() if f"{host} store (" in text and "sends to it" in text})
        assert crawl.why("account") is None

    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(partial(fleet.work, number, feed=number == 0, watchers=[ask]))
    assert told[0] == told[1]
    assert told[2] == told[3]
    assert told[0] ^ told[2] == set(hosts), "each host is one process's"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[RedisJob]:
    """The jobs that are opened, in their order."""
    opened: list[RedisJob] = []

    def noted(job: RedisJob, *given: Any, **named: Any) -> None:
        begin(job, *given, **named)
        opened.append(job)

    begin = RedisJob.__init__
    monkeypatch.setattr(RedisJob, "__init__", noted)
    return opened


async def test_a_process_that_joins_has_its_share_after_a_few_round_trips(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, jobs: list[RedisJob]
) -> None:
    store.latency = 0.1
    fleet = Fleet(tmp_path, store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(fleet.work, 0, feed=True))
        await trio.sleep(2.0)
        nursery.start_soon(partial(fleet.work, 1))
        with trio.fail_after(3.0):
            while len(jobs) < 2 or len(jobs[1].session.parts.owned) < PARTS // 2:  # noqa: ASYNC110 - nothing tells
                await trio.sleep(0.1)
    fleet.check()


async def test_the_hosts_of_a_dead_process_go_on_after_a_lease_and_a_quarter(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, jobs: list[RedisJob]
) -> None:
    lease = 8.0
    fleet = Fleet(tmp_path, store, JOB_LEASE=lease, DOWNLOAD_DELAY=2.0)

    async def killable(*, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        with suppress(JobError), trio.CancelScope() as scope:
            task_status.started(scope)
            await fleet.work(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(fleet.work, 0, feed=True))
        await trio.sleep(1.0)
        scope = await nursery.start(killable)
        await trio.sleep(7.0)
        abandon(jobs[1])
        scope.cancel()
        killed = trio.current_time()
        its = set(fleet.by[1])
    assert its
    fleet.check()
    first = min(at for host in its for at in fleet.sends[host] if at > killed)
    assert lease * 0.75 <= first - killed <= 1.25 * lease + 1.5 * 2.0  # and the longest delay that may be drawn


class Arriving:
    """A transport whose requests come to the wire when they are let."""

    def __init__(self, inner: Transport) -> None:
        self.may_arrive = trio.Event()
        self.arrived: list[tuple[float, bool | float | None]] = []
        self._inner = inner

    async def send(self, request: trawl.Request, on_sent: OnSent) -> Outcome:
        """Send it; all but the first host's are on their way for a while."""
        if "host0." in request.url:
            return await self._inner.send(request, on_sent)
        await self.may_arrive.wait()
        answer = on_sent()
        self.arrived.append((trio.current_time(), answer))
        if answer:
            return Outcome(request, ended_at=trio.current_time())
        return await self._inner.send(request, lambda: None)

    async def aclose(self) -> None:
        """Close it."""
        await self._inner.aclose()


async def test_nothing_is_sent_by_a_process_that_stood_still_beyond_its_lease(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, jobs: list[RedisJob]
) -> None:
    """Trio cancels what a deadline ends at its next checkpoint: not what is about to write."""
    fleet = Fleet(tmp_path, store)
    wire = Arriving(fleet.web.transport())
    fleet.transport = wire
    until: list[float] = []

    class Blocks(Shop):
        start_urls = tuple(f"http://host{number}.example/" for number in range(HOSTS))

        def parse(self, response: Response, **kwargs: Any) -> Any:
            if response.url == "http://host0.example/1":
                until.append(jobs[0].lease.until)
                autojump_clock.jump(60.0)
                wire.may_arrive.set()
            return super().parse(response)

    fleet.spider = Blocks
    await fleet.work(0, feed=True)
    fleet.check()
    first = [answer for at, answer in wire.arrived if at < 60.0 + until[0]][: HOSTS - 1]
    assert wire.arrived[0][0] > until[0]
    assert first == [True] * (HOSTS - 1)


@pytest.mark.long
async def test_limits_are_used_with_the_store_fifty_milliseconds_away(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    store.latency = 0.05
    fleet = Fleet(tmp_path, store, RANDOMIZE_DOWNLOAD_DELAY=False, CONCURRENT_REQUESTS_PER_DOMAIN=4)
    fleet.web = web(hosts=HOSTS, pages=40)
    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(partial(fleet.work, number, feed=number == 0))
    for host, times in fleet.sends.items():
        steady = sorted(times)[10:-1]  # from when there is something to choose from
        assert DELAY * (len(steady) - 1) / (steady[-1] - steady[0]) >= 0.98, host


@pytest.mark.parametrize(
    ("settings", "arguments", "told"),
    [({"DOWNLOAD_DELAY": 1.0}, {}, "differs in DOWNLOAD_DELAY"), ({}, {"word": "x"}, "differs in -a word")],
)
async def test_a_process_with_other_settings_or_arguments_is_refused_while_others_work(
    tmp_path: Path,
    autojump_clock: MockClock,
    store: SimulatedStore,
    settings: dict[str, Any],
    arguments: dict[str, str],
    told: str,
) -> None:
    fleet = Fleet(tmp_path, store)
    other = Fleet(tmp_path, store, **settings)
    other.arguments = arguments
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(fleet.work, 0, feed=True))
        await trio.sleep(2.0)
        with pytest.raises(UsageError, match=told):
            await other.work(1)
    assert not other.sends
    fleet.check()
    again = Fleet(tmp_path, store, DOWNLOAD_DELAY=1.0)  # those who were at work have ended
    await again.work(0, feed=True)
    assert again.results[0].reason == "finished"


LED = {"JOB_DIR": f"{URL}?leads=1"}


async def test_a_leader_sends_nothing_and_writes_what_its_workers_find_in_one_run(
    tmp_path: Path, store: SimulatedStore, autojump_clock: MockClock
) -> None:
    leader, workers = Fleet(tmp_path, store, **LED), Fleet(tmp_path, store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(leader.work, 1, feed=True))
        await trio.sleep(1.0)
        for number in (2, 3):
            nursery.start_soon(partial(workers.work, number))
        await trio.sleep(5.0)
        nursery.start_soon(partial(workers.work, 4))
    assert not leader.sends
    assert leader.items == EVERYTHING
    assert {result.reason for result in (*leader.results.values(), *workers.results.values())} == {"finished"}
    assert {result.stats["job_run_count"] for result in (*leader.results.values(), *workers.results.values())} == {1}


class SlowlyClosed:
    """A pipeline that takes a while to close in the leader."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        return cls(8.0 if "leads" in crawler.settings["JOB_DIR"] else 0.0)

    def process_item(self, item: Any) -> Any:
        return item

    async def close_spider(self) -> None:
        await trio.sleep(self.seconds)


async def test_a_leader_writes_items_that_arrive_while_its_pipelines_close(
    tmp_path: Path, store: SimulatedStore, autojump_clock: MockClock
) -> None:
    leader = Fleet(tmp_path, store, **LED, SHUTDOWN_TIMEOUT=1.0, ITEM_PIPELINES={SlowlyClosed: 1})
    workers = Fleet(tmp_path, store, ITEM_PIPELINES={SlowlyClosed: 1})
    workers.web = web(latency=5.0)

    async def end(crawl: Crawl) -> None:
        await trio.sleep(12.0 - trio.current_time())
        crawl.shutdown()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(leader.work, 1, feed=True, watchers=[end]))
        await trio.sleep(1.0)
        nursery.start_soon(partial(workers.work, 2, watchers=[end]))
    assert leader.results[1].reason == "shutdown"
    assert len(leader.items) == sum(len(sends) for sends in workers.sends.values()) > 1


class Fed(Shop):
    """Gets pages from a queue elsewhere when it is idle. The queue is empty at first."""

    asked: list[list[str]]

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
        spider = super().from_crawler(crawler, *args, **kwargs)
        cls.asked = [[], ["http://host1.example/9", "http://host2.example/9"]]
        crawler.signals.connect(spider.more, signal=signals.spider_idle)
        return spider

    def more(self) -> None:
        if self.asked:
            for url in self.asked.pop(0):
                self.crawler.engine.crawl(trawl.Request(url))
            raise DontCloseSpider

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}


async def test_a_leader_adds_no_requests_when_idle_and_goes_on_until_its_workers_have_none(
    tmp_path: Path, store: SimulatedStore, autojump_clock: MockClock
) -> None:
    leader, workers = Fleet(tmp_path, store, **LED), Fleet(tmp_path, store)
    leader.spider, workers.spider = type("Fed", (Fed,), {}), type("Fed", (Fed,), {})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(leader.work, 1, feed=True))
        await trio.sleep(1.0)
        nursery.start_soon(partial(workers.work, 2))
    assert len(leader.spider.asked) == 2  # type: ignore[attr-defined]
    assert leader.items == ["http://host0.example/", "http://host1.example/9", "http://host2.example/9"]
    assert {leader.results[1].reason, workers.results[2].reason} == {"finished"}


async def test_a_leader_that_is_told_to_end_writes_what_its_workers_had_in_flight(
    tmp_path: Path, store: SimulatedStore, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trawl")
    leader, workers = Fleet(tmp_path, store, **LED), Fleet(tmp_path, store)
    workers.web = web(latency=5.0)
    crawls: list[Crawl] = []

    async def keep(crawl: Crawl) -> None:
        crawls.append(crawl)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(leader.work, 1, feed=True, watchers=[keep]))
        await trio.sleep(1.0)
        nursery.start_soon(partial(workers.work, 2, watchers=[keep]))
        await trio.sleep(32.0)
        for crawl in crawls:
            crawl.shutdown()
    assert leader.results[1].reason == "shutdown"
    assert len(leader.items) == sum(len(sends) for sends in workers.sends.values()) > 0

    async def end(crawl: Crawl) -> None:
        crawl.shutdown()
        await trio.lowlevel.checkpoint()

    caplog.clear()
    await leader.work(1, feed=True, watchers=[end])
    pending = re.search(r"run 2, (\d+) requests pending; the last run ended: shutdown", caplog.text)
    assert pending is not None, caplog.text
    assert int(pending[1]) > 0
