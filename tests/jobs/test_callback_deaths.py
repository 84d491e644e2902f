"""A page whose callback ends the process does not stop a job: it fails after three deaths, and the rest is crawled.

Length: the tests share the runs that end as dead processes do, and each kind of user code has its own test.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.conftest import IS_COMPILED
from tests.jobs.killing import put_back
from tests.jobs.site import Linked, Runs, all_urls, site
from trawl._run import CrawlResult
from trawl.engine.fetcher import Fetcher
from trawl.errors import IgnoreRequest
from trawl.frontier.inspect import failures, inspect_job, requeue_failed
from trawl.http import Drop, Fetch, Outcome, Replace, Request, Response
from trawl.scheduler import Scheduler
from trawl.testing import SimulatedWeb

FAST = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 16}
REASON = "its callback ended the process 3 times"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the job and its feed."""
    made = tmp_path / "whole"
    made.mkdir()
    return made


class Killer:
    """Ends a run as a death of the process does: it copies the files of the job, and the run ends without a word."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.album = folder.parent / "album"
        self.scope = trio.CancelScope()

    def die(self) -> None:
        """End the run. A second call does nothing."""
        if not self.album.exists():
            shutil.copytree(self._folder, self.album)
        self.scope.cancel()


class Deadly(Linked):
    """A spider whose callback ends the process on some pages."""

    poison: ClassVar[Sequence[str]] = ("http://a.example/3",)
    killer: ClassVar[Killer]

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield from super().parse(response)
        if response.url in self.poison:
            self.killer.die()


async def run_or_die(runs: Runs, spider: type[Deadly]) -> CrawlResult | None:
    """Run once. Returns None if the process died: only its files are left then, as they were at that time."""
    folder = runs.directory.parent
    killer = Deadly.killer = Killer(folder)
    runs.spider = spider
    result = None
    with killer.scope:
        result = await runs.run()
    if not killer.album.exists():
        return result
    put_back(killer.album, folder)
    shutil.rmtree(killer.album)
    return None


async def runs_to_the_end(runs: Runs, spider: type[Deadly], most: int = 20) -> tuple[int, CrawlResult]:
    """Run until the process survives. Returns the number of deaths and the result of the last run."""
    for deaths in range(most):
        if (result := await run_or_die(runs, spider)) is not None:
            return deaths, result
    raise AssertionError(f"{most} deaths")


def failed(runs: Runs) -> Mapping[str, str]:
    return {each.url: each.reason for each in failures(runs.directory, 100)}


async def test_a_page_fails_after_three_deaths_and_all_else_is_crawled(
    folder: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    runs = Runs(folder, site(15), settings=FAST)
    deaths, result = await runs_to_the_end(runs, Deadly)
    assert deaths == 3
    assert result.reason == "finished"
    assert failed(runs) == {"http://a.example/3": REASON}
    # Its own links come only from its callback.
    assert runs.urls == [url for url in all_urls(15) if url.rpartition("/")[2] not in ("3", "7", "8")]
    assert runs.sent["http://a.example/3"] == 3
    said = [record.getMessage() for record in caplog.records if "died" in record.getMessage()]
    assert [line.partition(" died ")[2] for line in said] == [
        f"in the callback of http://a.example/3 (death {n} of 3)" for n in (1, 2, 3)
    ]
    assert result.stats["process_death_count"] == 3
    assert result.stats["fatal_callback_count"] == 1
    assert sorted(path.name for path in runs.directory.iterdir()) == ["job.db", "lock"]


class Fragile:
    """A pipeline that ends the process on the items of some pages."""

    def process_item(self, item: Any) -> Any:
        if item["url"] == "http://a.example/3":
            Deadly.killer.die()
        return item


class Buried(Deadly):
    poison = ()


async def test_a_page_whose_items_end_the_process_in_a_pipeline_fails_after_three_deaths(
    folder: Path, autojump_clock: MockClock
) -> None:
    runs = Runs(folder, site(15), settings={**FAST, "ITEM_PIPELINES": {Fragile: 1}})
    deaths, result = await runs_to_the_end(runs, Buried)
    assert (deaths, result.reason) == (3, "finished")
    assert failed(runs) == {"http://a.example/3": REASON}


class Passing:
    """A middleware that waits before and after each send, and ends the process on some pages."""

    def __init__(self, fetch: Fetch, before: Sequence[str], after: Sequence[str]) -> None:
        self.fetch, self.before, self.after = fetch, before, after

    async def __call__(self, request: Request) -> Outcome:
        await trio.sleep(0.2)
        if request.url in self.before:
            Deadly.killer.die()
        outcome = await self.fetch(request)
        await trio.sleep(0.2)
        if request.url in self.after:
            Deadly.killer.die()
        return outcome


async def test_pages_whose_middleware_ends_the_process_fail_and_pages_beside_them_do_not(
    folder: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = ["http://a.example/3"], ["http://a.example/5", "http://a.example/9"]

    def middleware(fetch: Fetch) -> Fetch:
        return Passing(fetch, before, after)

    runs = Runs(folder, site(31), settings={**FAST, "DOWNLOADER_MIDDLEWARES": {middleware: 560}})
    deaths, result = await runs_to_the_end(runs, Buried, 40)
    assert result.reason == "finished"
    assert deaths <= 11  # the first death of each may be shared
    words = "its middleware ended the process 3 times"
    assert failed(runs) == dict.fromkeys([*before, *after], words)
    lost = {3, 7, 8, 15, 16, 17, 18, 5, 11, 12, 23, 24, 25, 26, 9, 19, 20}
    assert runs.urls == [url for url in all_urls(31) if int(url.rpartition("/")[2] or 0) not in lost]
    assert "a process died in the middleware of http://a.example/3 (death 2 of 3)\n" in caplog.text


class Listed(Buried):
    """A spider of pages without links."""

    start_urls = tuple(f"http://a.example/{n}" for n in range(1, 9))

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}


def listed(latency: float = 0.1) -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host("a.example", latency=latency)
    for url in Listed.start_urls:
        web.add_page(url)
    return web


def deaths_left(runs: Runs) -> list[str]:
    return [name for name in inspect_job(runs.directory).kept if name.startswith("deaths.")]


async def test_pages_in_middleware_need_no_place_among_the_running_callbacks(
    folder: Path, autojump_clock: MockClock
) -> None:
    class Fifth(Listed):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            if response.url.endswith("/5"):
                Deadly.killer.die()
            yield {"url": response.url}

    def waiting(fetch: Fetch) -> Fetch:
        async def fetched(request: Request) -> Outcome:
            await trio.sleep(0.1 if request.url.endswith("/5") else 0.5)
            return await fetch(request)

        return fetched

    settings = {**FAST, "CONCURRENT_CALLBACKS": 1, "DOWNLOADER_MIDDLEWARES": {waiting: 560}}
    runs = Runs(folder, listed(), settings=settings)
    deaths, result = await runs_to_the_end(runs, Fifth)
    assert (deaths, result.reason) == (3, "finished")
    assert failed(runs) == {"http://a.example/5": REASON}
    assert deaths_left(runs) == []


async def test_middleware_that_continues_after_its_own_timeout_is_recorded(
    folder: Path, autojump_clock: MockClock
) -> None:
    def impatient(fetch: Fetch) -> Fetch:
        async def fetched(request: Request) -> Outcome:
            with trio.move_on_after(0.05 if request.url.endswith("/2") else 5.0):
                return await fetch(request)
            Deadly.killer.die()
            await trio.sleep_forever()
            raise AssertionError

        return fetched

    runs = Runs(folder, listed(), settings={**FAST, "DOWNLOADER_MIDDLEWARES": {impatient: 560}})
    deaths, result = await runs_to_the_end(runs, Listed)
    assert (deaths, result.reason) == (3, "finished")
    assert failed(runs) == {"http://a.example/2": "its middleware ended the process 3 times"}


@pytest.mark.parametrize("dies_in", ["callback", "middleware"])
async def test_no_page_waits_for_a_suspect_in_the_timeout_of_its_middleware(
    folder: Path, autojump_clock: MockClock, dies_in: str
) -> None:
    class Slow(Listed):
        dies: ClassVar[bool] = True

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            if response.url.endswith("/1"):
                if self.dies:
                    Deadly.killer.die()
                await trio.sleep(5.0)
            yield {"url": response.url}

    late = []

    def impatient(fetch: Fetch) -> Fetch:
        async def fetched(request: Request) -> Outcome:
            if Slow.dies and dies_in == "middleware":  # so each page is a suspect
                await trio.sleep(0.1)
                Deadly.killer.die()
            with trio.move_on_after(2.0):
                return await fetch(request)
            late.append(request.url)
            raise IgnoreRequest("late")

        return fetched

    web = listed(latency=1.0)
    web.add_page("http://a.example/1", latency=0.1)
    runs = Runs(folder, web, settings={**FAST, "DOWNLOADER_MIDDLEWARES": {impatient: 560}})
    assert await run_or_die(runs, Slow) is None
    Slow.dies = False
    assert await run_or_die(runs, Slow) is not None
    assert late == []
    assert runs.urls == list(Listed.start_urls)


async def test_suspects_do_not_wait_again_and_again_for_a_start_that_only_waits(
    folder: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Queued(Listed):
        dies: ClassVar[bool] = True

        async def start(self) -> Any:
            for url in self.start_urls:
                yield trawl.Request(url)
            await trio.sleep(100.0)  # for the next entry of a queue

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            await trio.sleep(0.1)
            if self.dies:
                Deadly.killer.die()
            ended_at.append(trio.current_time())
            yield {"url": response.url}

    def passing(fetch: Fetch) -> Fetch:
        return fetch

    ended_at: list[float] = []
    runs = Runs(folder, listed(), settings={**FAST, "DOWNLOADER_MIDDLEWARES": {passing: 560}})
    assert await run_or_die(runs, Queued) is None
    Queued.dies = False
    began_at = trio.current_time()
    assert await run_or_die(runs, Queued) is not None
    assert max(ended_at) - began_at < 15.0
    assert "died in the callback of" in caplog.text
    assert runs.urls == list(Listed.start_urls)


async def test_the_deaths_of_pages_that_are_dropped_by_hand_are_forgotten(
    folder: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Dropped(Listed):
        dies: ClassVar[bool] = True

        def parse(self, response: Response, **kwargs: Any) -> Any:
            if self.dies and response.url.endswith("/5"):
                Deadly.killer.die()
            yield {"url": response.url}

    async def drop(crawl: Any) -> None:
        await crawl.drop("a.example")

    runs = Runs(folder, listed(), Dropped, settings=FAST)
    assert await run_or_die(runs, Dropped) is None
    Dropped.dies = False
    await runs.run([drop], DOWNLOAD_DELAY=10.0, CONCURRENT_REQUESTS_PER_DOMAIN=1)
    assert "died in the callback of http://a.example/5" in caplog.text
    assert "http://a.example/5" not in runs.urls
    assert deaths_left(runs) == []


async def test_middleware_that_answers_and_ends_the_process_fails_its_page(
    folder: Path, autojump_clock: MockClock
) -> None:
    def answering(fetch: Fetch) -> Fetch:
        async def fetched(request: Request) -> Outcome:
            await trio.sleep(0.2)
            if request.url.endswith("/4"):
                Deadly.killer.die()
            return Outcome(request, response=Response(request.url, request=request))

        return fetched

    runs = Runs(folder, listed(), settings={**FAST, "DOWNLOADER_MIDDLEWARES": {answering: 560}})
    _, result = await runs_to_the_end(runs, Listed)
    assert result.reason == "finished"
    assert failed(runs) == {"http://a.example/4": "its middleware ended the process 3 times"}
    assert runs.urls == [url for url in Listed.start_urls if not url.endswith("/4")]
    assert runs.sent == {}
    assert deaths_left(runs) == []


@pytest.mark.skipif(IS_COMPILED, reason="methods of compiled classes can not be replaced")
async def test_a_response_of_middleware_that_waits_for_a_token_is_not_blamed(
    folder: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def answering(fetch: Fetch) -> Fetch:
        async def fetched(request: Request) -> Outcome:
            return Outcome(request, response=Response(request.url, request=request))

        return fetched

    async def places(*_: object) -> bool:
        Deadly.killer.die()
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(Scheduler, "needs_token", lambda *_: True)
    monkeypatch.setattr(Fetcher, "_places", places)
    runs = Runs(folder, listed(), settings={**FAST, "DOWNLOADER_MIDDLEWARES": {answering: 560}})
    assert await run_or_die(runs, Listed) is None
    monkeypatch.undo()
    assert await run_or_die(runs, Listed) is not None
    assert "died" not in caplog.text
    assert runs.urls == list(Listed.start_urls)


@pytest.mark.parametrize("end", ["ignored", "dropped", "missing", "redirected"])
async def test_the_deaths_of_a_page_that_ends_without_a_callback_are_forgotten(
    folder: Path, autojump_clock: MockClock, end: str
) -> None:
    ends_process = [True]

    def ending(fetch: Fetch) -> Fetch:
        async def fetched(request: Request) -> Outcome:
            if not request.url.endswith("/2"):
                return await fetch(request)
            if ends_process:
                ends_process.clear()
                Deadly.killer.die()
            if end == "ignored":
                raise IgnoreRequest("not wanted")
            if end == "dropped":
                return Outcome(request, then=Drop("unwanted"))
            return await fetch(request)

        return fetched

    web = listed()
    if end == "missing":
        web.add_page("http://a.example/2", status=404)
    elif end == "redirected":
        web.add_page("http://a.example/2", status=302, headers={"Location": "/other"})
        web.add_page("http://a.example/other")
    runs = Runs(folder, web, settings={**FAST, "DOWNLOADER_MIDDLEWARES": {ending: 560}})
    deaths, result = await runs_to_the_end(runs, Listed)
    assert (deaths, result.reason) == (1, "finished")
    assert deaths_left(runs) == []


async def test_a_page_that_ends_the_process_after_a_retry_fails(folder: Path, autojump_clock: MockClock) -> None:
    def retrying(fetch: Fetch) -> Fetch:
        async def fetched(request: Request) -> Outcome:
            if request.url.endswith("/2"):
                if "again" in request.meta:
                    Deadly.killer.die()
                return Outcome(request, then=Replace(request.replace(meta={"again": True}), reason="again"))
            return await fetch(request)

        return fetched

    runs = Runs(folder, listed(), settings={**FAST, "DOWNLOADER_MIDDLEWARES": {retrying: 560}})
    deaths, result = await runs_to_the_end(runs, Listed)
    assert (deaths, result.reason) == (3, "finished")
    assert failed(runs) == {"http://a.example/2": "its middleware ended the process 3 times"}


async def test_a_start_that_ends_the_process_beside_middleware_that_waits_loses_no_page(
    folder: Path, autojump_clock: MockClock
) -> None:
    class Started(Listed):
        async def start(self) -> Any:
            for number, url in enumerate(self.start_urls):
                if number == 3:
                    await trio.sleep(4.0)
                    Deadly.killer.die()
                yield trawl.Request(url)

    def waiting(fetch: Fetch) -> Fetch:
        async def fetched(request: Request) -> Outcome:
            await trio.sleep(5.0)
            return await fetch(request)

        return fetched

    runs = Runs(folder, listed(), settings={**FAST, "DOWNLOADER_MIDDLEWARES": {waiting: 560}})
    deaths, result = await runs_to_the_end(runs, Started)
    assert result.reason == "start_error"
    assert deaths <= 5
    assert failed(runs) == {}
    assert runs.urls == list(Listed.start_urls[:3])
    assert deaths_left(runs) == []


@pytest.mark.parametrize("end", ["returns", "raises"])
async def test_the_deaths_of_a_start_that_ends_are_forgotten(folder: Path, autojump_clock: MockClock, end: str) -> None:
    class Started(Listed):
        dies: ClassVar[bool] = True

        async def start(self) -> Any:
            yield trawl.Request(self.start_urls[0])
            if self.dies:
                Deadly.killer.die()
            elif end == "raises":
                raise ValueError("no more")

    runs = Runs(folder, listed(), settings=FAST)
    assert await run_or_die(runs, Started) is None
    Started.dies = False
    assert await run_or_die(runs, Started) is not None
    assert deaths_left(runs) == []


async def test_a_start_that_ends_the_process_fails_after_three_deaths_and_its_requests_are_crawled(
    folder: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Started(Deadly):
        poison = ()
        dies: ClassVar[bool] = True

        async def start(self) -> Any:
            for number in (1, 2):
                yield trawl.Request(f"http://a.example/{number}")
            if self.dies:
                self.killer.die()
            yield trawl.Request("http://a.example/6")

    runs = Runs(folder, site(7), settings=FAST)
    deaths, result = await runs_to_the_end(runs, Started)
    assert (deaths, result.reason) == (3, "start_error")
    assert "died in start() at output 3 (death 1 of 3)" in caplog.text
    assert "start() ended the process 3 times, at output 3" in caplog.text
    assert failed(runs) == {}
    assert runs.urls == all_urls(7)

    Started.dies = False
    deaths, result = await runs_to_the_end(runs, Started)
    assert (deaths, result.reason) == (0, "finished")


async def test_a_death_in_a_callback_does_not_count_for_a_start_that_waits(
    folder: Path, autojump_clock: MockClock
) -> None:
    class Waiting(Deadly):
        async def start(self) -> Any:
            yield trawl.Request("http://a.example/")
            await trio.sleep(100.0)
            yield trawl.Request("http://a.example/6")

    runs = Runs(folder, site(7), settings=FAST)
    deaths, result = await runs_to_the_end(runs, Waiting)
    assert (deaths, result.reason) == (3, "finished")
    assert failed(runs) == {"http://a.example/3": REASON}


async def test_a_requeued_page_is_sent_again_and_may_kill_three_times_more(
    folder: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(folder, site(15), settings=FAST)
    await runs_to_the_end(runs, Deadly)
    assert requeue_failed(runs.directory, datetime.now(UTC)) == 1
    assert (await runs_to_the_end(runs, Deadly))[0] == 3
    assert failed(runs) == {"http://a.example/3": REASON}
    requeue_failed(runs.directory, datetime.now(UTC))

    monkeypatch.setattr(Deadly, "poison", ())
    assert (await runs_to_the_end(runs, Deadly))[0] == 0
    assert failed(runs) == {}
    assert runs.urls == all_urls(15)


async def test_the_first_page_may_be_the_one_that_kills(folder: Path, autojump_clock: MockClock) -> None:
    class First(Deadly):
        poison = ("http://a.example/",)

    runs = Runs(folder, site(3), settings=FAST)
    assert (await runs_to_the_end(runs, First))[0] == 3
    assert failed(runs) == {"http://a.example/": REASON}


async def test_callbacks_that_wait_beside_the_cause_are_not_blamed(folder: Path, autojump_clock: MockClock) -> None:
    class Waits(Deadly):
        poison = ("http://a.example/3", "http://a.example/9", "http://a.example/12")

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            for output in Linked.parse(self, response):
                yield output
            number = int(response.url.rpartition("/")[2] or 0)
            await trio.sleep(0.3 * (number % 7))
            if response.url in self.poison:
                self.killer.die()

    runs = Runs(folder, site(31), settings=FAST)
    _, result = await runs_to_the_end(runs, Waits, 40)
    assert failed(runs) == dict.fromkeys(Waits.poison, REASON)
    assert result.reason == "finished"
    lost = {3, 7, 8, 15, 16, 17, 18, 9, 19, 20, 12, 25, 26}
    assert runs.urls == [url for url in all_urls(31) if int(url.rpartition("/")[2] or 0) not in lost]


async def test_callbacks_that_wait_for_one_another_do_so_also_after_a_death(
    folder: Path, autojump_clock: MockClock
) -> None:
    met: list[str] = []

    class Meeting(Deadly):
        """Two pages whose callbacks wait for each other; a third one kills once."""

        start_urls = ("http://a.example/1", "http://a.example/2")
        events: ClassVar[list[trio.Event]] = []

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            here = int(response.url[-1]) - 1
            self.events[here].set()
            await self.events[1 - here].wait()
            met.append(response.url)
            if len(met) == 1:
                self.killer.die()
            yield {"url": response.url}

    runs = Runs(folder, site(3), settings=FAST)
    for _ in range(2):
        Meeting.events = [trio.Event(), trio.Event()]
        result = await run_or_die(runs, Meeting)
    assert result is not None
    assert result.reason == "finished"
    assert runs.urls == ["http://a.example/1", "http://a.example/2"]


async def test_an_errback_that_kills_counts_as_well(folder: Path, autojump_clock: MockClock) -> None:
    class Errback(Deadly):
        async def start(self) -> Any:
            yield trawl.Request("http://a.example/missing", errback=self.failed)
            yield trawl.Request("http://a.example/1")

        def failed(self, failure: Any) -> None:
            self.killer.die()

    web = site(2)
    web.add_page("http://a.example/missing", status=404)
    runs = Runs(folder, web, Errback, settings=FAST)
    assert (await runs_to_the_end(runs, Errback))[0] == 3
    assert failed(runs) == {"http://a.example/missing": REASON}


async def test_pages_that_are_wanted_twice_are_told_apart(folder: Path, autojump_clock: MockClock) -> None:
    class Twice(Deadly):
        async def start(self) -> Any:
            for number in range(2):
                yield trawl.Request("http://a.example/1", dont_filter=True, cb_kwargs={"number": number})

        def parse(self, response: Response, number: int = 0, **kwargs: Any) -> Any:
            if number:
                self.killer.die()
            yield {"url": response.url}

    runs = Runs(folder, site(2), Twice, settings=FAST)
    assert (await runs_to_the_end(runs, Twice))[0] == 3
    assert len(failed(runs)) == 1
    assert runs.urls == ["http://a.example/1"]


async def test_deaths_outside_of_callbacks_count_for_no_page(folder: Path, autojump_clock: MockClock) -> None:
    class Slow(Deadly):
        poison = ()

    web = site(7, latency=1.0)
    runs = Runs(folder, web, settings={**FAST, "CONCURRENT_REQUESTS_PER_DOMAIN": 1})
    for _ in range(5):
        album = folder.parent / "between"
        with trio.CancelScope() as scope:

            async def kill(crawl: Any, scope: trio.CancelScope = scope, album: Path = album) -> None:
                await trio.sleep(1.5)
                shutil.copytree(folder, album)
                scope.cancel()

            runs.spider = Slow
            await runs.run([kill])
        put_back(album, folder)
        shutil.rmtree(album)
    assert (await runs_to_the_end(runs, Slow))[1].reason == "finished"
    assert failed(runs) == {}


async def test_a_shutdown_or_a_cancel_in_a_callback_is_no_death(folder: Path, autojump_clock: MockClock) -> None:
    class Long(Deadly):
        async def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url}
            await trio.sleep(1000)

    async def cancel(crawl: Any) -> None:
        await trio.sleep(5)
        crawl.cancel()

    runs = Runs(folder, site(1), Long, settings=FAST)
    for _ in range(4):
        await runs.run([cancel])
    assert failed(runs) == {}
    assert inspect_job(runs.directory).pending == 1
    assert not [name for name in inspect_job(runs.directory).kept if name.startswith("deaths.")]


async def test_a_crawl_goes_on_if_the_file_can_not_be_written(
    folder: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    monkeypatch.setattr("trawl.frontier.lock.JobLock._take", lambda *_: None)
    runs = Runs(folder, site(3), settings=FAST)
    result = await runs.run()
    assert result.reason == "finished"
    assert "will not be found" in caplog.text


PROGRAM = """
import ctypes, sys, trio, trawl
from trawl._run import crawl_with
from trawl.settings import Layer, load
from trawl.testing import SimulatedWeb

class Deadly(trawl.Spider):
    name = "deadly"
    start_urls = ["http://a.example/1", "http://b.example/2", "http://c.example/3"]

    def parse(self, response):
        yield {"url": response.url}
        if response.url == "http://b.example/2":
            ctypes.string_at(0)

async def main():
    web = SimulatedWeb()
    for url in Deadly.start_urls:
        web.add_page(url)
    settings = {"JOB_DIR": sys.argv[1], "ROBOTSTXT_OBEY": False}
    print((await crawl_with(Deadly, load(Layer("test", settings)), transport=web.transport())).reason)

trio.run(main)
"""


def test_a_segmentation_fault_in_a_callback_does_not_stop_a_job(tmp_path: Path) -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "job")], timeout=300, check=False, capture_output=True
        )
        for _ in range(4)
    ]
    assert [run.returncode for run in runs] == [-signal.SIGSEGV] * 3 + [0]
    assert runs[-1].stdout == b"finished\n"
    assert {each.url: each.reason for each in failures(tmp_path / "job", 10)} == {"http://b.example/2": REASON}
