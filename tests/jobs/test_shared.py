"""Several crawls of one job at once, in one Trio run on the virtual clock: the server's scripts are the real ones."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.jobs.site import START_UTC
from trawl._run import CrawlResult, crawl_with
from trawl.blocking import InlineBlocking
from trawl.engine import Crawl
from trawl.errors import JobError
from trawl.frontier.redis.job import RedisJob
from trawl.http import Outcome, Response
from trawl.scheduler import Grant
from trawl.settings import Layer, load
from trawl.testing import SimulatedWeb
from trawl.testing.store import SimulatedStore

HOSTS, PAGES = 12, 10
DELAY = 0.5
URL = "redis://store/shop"


class Shop(trawl.Spider):
    """Goes from page to page of each host, and from each to the next host."""

    name = "shop"
    start_urls = ("http://host0.example/",)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}
        yield from response.follow_all(css="a")


def web(hosts: int = HOSTS, pages: int = PAGES) -> SimulatedWeb:
    """Hosts of linked pages; each page links to the next two, and to the same page of another host."""
    made = SimulatedWeb()
    for host in range(hosts):
        made.add_host(f"host{host}.example", latency=0.1)
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
        self.settings = settings
        self.sends: dict[str, list[float]] = defaultdict(list)
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

        sent: list[Grant] = []

        def record(grant: Grant, outcome: Outcome | None, now: float) -> None:
            if outcome is None and grant not in sent:  # one that is cancelled is told of again
                sent.append(grant)
                host = grant.request.url.split("/")[2]
                self.sends[host].append(now)
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
                Shop,
                load(Layer("test", settings)),
                transport=self.web.transport(),
                blocking=InlineBlocking(),
                seed=number,
                now_utc=START_UTC,
                watchers=list(watchers),
                recorder=record,
            )

    @property
    def items(self) -> list[str]:
        """The URLs of the items in the feed, sorted."""
        lines = (self.folder / "items.jsonl").read_text().splitlines()
        return sorted(json.loads(line)["url"] for line in lines)

    def check(self) -> None:
        """Nothing is lost, nothing twice in the feed, and no send early, whoever made it."""
        assert self.items == EVERYTHING
        for host, times in self.sends.items():
            gaps = [later - earlier for earlier, later in pairwise(sorted(times))]
            assert min(gaps, default=DELAY) >= 0.5 * DELAY - 1e-6, (host, min(gaps))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> SimulatedStore:
    made = SimulatedStore(latency=0.005)
    monkeypatch.setattr("trawl.frontier.redis.job.connect_server", made.connect)
    return made


@pytest.mark.parametrize("latency", [0.0, 0.005, 0.05, 0.5])
@pytest.mark.parametrize("processes", [1, 2, 5])
async def test_c15_processes_that_share_a_job_fetch_what_one_fetches(
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


async def test_c15_a_process_that_joins_late_takes_its_share_and_one_that_is_stopped_gives_it_back(
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
async def test_c15_what_killed_processes_had_is_fetched_by_others_and_nothing_is_lost(
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
                jobs[number].abandon()  # nothing of it is stored any more, as after SIGKILL
                scope.cancel()
    assert killed
    fleet.check()
    assert fleet.results[0].reason == "finished"


@pytest.mark.parametrize("fault", ["unsent", "unanswered"])
async def test_c15_round_trips_that_are_lost_count_once_in_a_shared_job_too(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, fault: str
) -> None:
    fleet = Fleet(tmp_path, store)
    store.fault = lambda number: fault if number > 20 and number % 7 == 0 else None
    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(partial(fleet.work, number, feed=number == 0))
    fleet.check()
    assert sum(len(times) for times in fleet.sends.values()) == len(EVERYTHING)


async def test_c15_a_server_that_is_away_for_a_minute_is_a_pause_for_all(
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
