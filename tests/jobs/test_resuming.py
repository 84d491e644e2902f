"""A crawl with a job goes on where it was stopped: requests, items, limits, statistics."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.jobs.killing import killed_after
from tests.jobs.site import Linked, Runs, all_urls, site
from trawl.blocking import InlineBlocking
from trawl.engine.job_items import MAX_ITEMS
from trawl.errors import JobError, UsageError
from trawl.feeds.storages import FileStorage
from trawl.frontier.sqlite import open_job
from trawl.http import Request, Response
from trawl.testing import SimulatedResponse, SimulatedWeb

QUICK = {"CONCURRENT_REQUESTS_PER_DOMAIN": 4, "DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0}
EXACT = {"RANDOMIZE_DOWNLOAD_DELAY": False, "BACKOFF_JITTER": 0}


async def test_c1_a_crawl_that_is_stopped_again_and_again_visits_every_page_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    runs = Runs(tmp_path, site(40), settings=QUICK)
    reasons = []
    for _ in range(20):
        result = await runs.run(stop_after=0.25)
        reasons.append(result.reason)
        if result.reason == "finished":
            break
    assert reasons == [*["shutdown"] * (len(reasons) - 1), "finished"]
    assert len(reasons) > 2
    assert runs.urls == all_urls(40)
    assert {url for url, times in runs.sent.items() if times > 1} <= {"http://a.example/robots.txt"}
    assert result.stats["item_scraped_count"] == result.stats["response_status_count/200"] == 40
    assert result.stats["job_run_count"] == len(reasons)
    assert result.stats["elapsed_seconds"] == pytest.approx(sum([0.25] * (len(reasons) - 1)) + result.elapsed, abs=0.2)


async def test_p10_r16_delays_backoffs_and_hints_hold_in_the_next_run(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    answers = iter([SimulatedResponse(429, headers={"Retry-After": "60"}, latency=0.5)])
    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: next(answers, SimulatedResponse(latency=0.5)))
    settings = {"DOWNLOAD_DELAY": 5.0, "ROBOTSTXT_OBEY": False, **EXACT}
    runs = Runs(tmp_path, web, settings=settings)
    assert (await runs.run(stop_after=3.0)).reason == "shutdown"
    assert [time for time, _ in runs.times] == [0.0]
    runs.down(20.0)
    result = await runs.run()
    assert result.reason == "finished"
    assert [time for time, _ in runs.times] == [pytest.approx(60.5 - 3.0 - 20.0)]  # P18: and the stop took no time
    assert result.stats["backoff_count"] == 1


async def test_r16_the_spacing_is_kept_across_a_stop(tmp_path: Path, autojump_clock: MockClock) -> None:
    settings = {"DOWNLOAD_DELAY": 5.0, "ROBOTSTXT_OBEY": False, **EXACT}
    runs = Runs(tmp_path, site(5), settings=settings)
    await runs.run(stop_after=7.0)
    assert [time for time, _ in runs.times] == [0.0, 5.0]
    runs.down(1.0)
    await runs.run()
    assert [time for time, _ in runs.times] == pytest.approx([2.0, 7.0, 12.0])


class Six(trawl.Spider):
    """Six pages that all are found at once."""

    name = "six"

    async def start(self) -> AsyncGenerator[Any, None]:
        for number in range(6):
            yield Request(f"http://a.example/{number}")

    def parse(self, response: Response, **kwargs: Any) -> Any:
        return {"url": response.url}


@pytest.mark.parametrize("seconds", [3.0, 9.0, 10.3, 14.5, 23.9])
@pytest.mark.parametrize("latency", [0.5, 5.0])
async def test_r16_a_kill_forgets_no_send_that_nothing_was_written_after(
    tmp_path: Path, seconds: float, latency: float, autojump_clock: MockClock
) -> None:
    # Between two pages nothing is written for many seconds, and the answer to the latest is not there yet.
    folder = tmp_path / "whole"
    folder.mkdir()
    web = SimulatedWeb()
    web.add_host("a.example", latency=latency)
    settings = {"DOWNLOAD_DELAY": 10.0, "ROBOTSTXT_OBEY": False, **EXACT}
    runs = Runs(folder, web, Six, settings=settings)
    await killed_after(runs, seconds, tmp_path / "album")
    latest = max(time for time, _ in runs.times if time < seconds)
    runs.down(0.5)
    await runs.run()
    assert latest + 10.0 <= runs.times[0][0] + seconds + 0.5 <= seconds + 0.5 + 10.0


async def test_r16_a_kill_in_the_middle_of_a_long_answer_forgets_no_send(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    folder = tmp_path / "whole"
    folder.mkdir()
    web = SimulatedWeb()
    web.add_host("a.example", latency=170.0)
    settings = {"DOWNLOAD_DELAY": 60.0, "ROBOTSTXT_OBEY": False, "DOWNLOAD_TIMEOUT": 180.0, **EXACT}
    runs = Runs(folder, web, Six, settings=settings)
    await killed_after(runs, 172.0, tmp_path / "album")
    assert [time for time, _ in runs.times if time < 172.0] == [0.0, 170.0]
    await runs.run()
    assert runs.times[0][0] + 172.0 >= 170.0 + 60.0


class Late(trawl.Spider):
    """A page that is to wait for a minute."""

    name = "late"

    async def start(self) -> AsyncGenerator[Any, None]:
        yield Request("http://a.example/late", meta={"delay": 60.0})

    def parse(self, response: Response, **kwargs: Any) -> Any:
        return {"url": response.url}


async def test_p10_a_request_with_a_time_of_its_own_is_sent_at_that_time(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    runs = Runs(tmp_path, site(1), Late, {"ROBOTSTXT_OBEY": False})
    await runs.run(stop_after=10.0)
    runs.down(20.0)
    await runs.run()
    assert [time for time, _ in runs.times] == [pytest.approx(30.0)]


async def test_robots_txt_is_not_asked_again_and_its_delay_holds(tmp_path: Path, autojump_clock: MockClock) -> None:
    web = site(9, robots="User-agent: *\nDisallow: /2\nCrawl-delay: 3")
    runs = Runs(tmp_path, web, settings=EXACT)
    await runs.run(stop_after=7.0)
    runs.down(2.0)
    await runs.run()
    assert runs.sent["http://a.example/robots.txt"] == 1
    assert "http://a.example/2" not in runs.sent
    assert [later[0] - sooner[0] for sooner, later in zip(runs.times, runs.times[1:], strict=False)] == pytest.approx(
        [3.0] * (len(runs.times) - 1)
    )
    runs.down(90_000.0)  # RFC 9309, 2.4: a day is the longest
    runs.directory.rename(tmp_path / "old")
    await runs.run()
    assert runs.sent["http://a.example/robots.txt"] == 2


async def test_cookies_are_sent_by_the_next_run(tmp_path: Path, autojump_clock: MockClock) -> None:
    seen: list[str | None] = []

    def handler(request: Any) -> SimulatedResponse:
        seen.append(request.headers.get("Cookie"))
        page = '<a href="/next">x</a>' if len(seen) == 1 else ""
        return SimulatedResponse(body=page, headers={"Set-Cookie": "session=1", "Content-Type": "text/html"})

    web = SimulatedWeb()
    web.add_host("a.example", handler=handler)
    runs = Runs(tmp_path, web, settings={"DOWNLOAD_DELAY": 5.0, "ROBOTSTXT_OBEY": False})
    await runs.run(stop_after=1.0)
    await runs.run()
    assert seen == [None, "session=1"]


async def test_a_login_outlives_a_kill_right_after_it(tmp_path: Path, autojump_clock: MockClock) -> None:
    seen: list[tuple[str, str | None]] = []

    def handler(request: Any) -> SimulatedResponse:
        path = request.url.removeprefix("http://a.example")
        seen.append((path, request.headers.get("Cookie")))
        following = {"/": "/login", "/login": "/inside"}.get(path)
        cookie = {"Set-Cookie": "session=1"} if path == "/login" else {}
        page = f'<a href="{following}">x</a>' if following else ""
        return SimulatedResponse(body=page, headers={"Content-Type": "text/html", **cookie})

    web = SimulatedWeb()
    web.add_host("a.example", handler=handler)
    (tmp_path / "whole").mkdir()
    runs = Runs(tmp_path / "whole", web, settings={"DOWNLOAD_DELAY": 1.0, "ROBOTSTXT_OBEY": False, **EXACT})
    await killed_after(runs, 1.9, tmp_path / "album")
    assert [path for path, _ in seen] == ["/", "/login"]  # what was learned is stored every two seconds
    await runs.run()
    assert seen[-1] == ("/inside", "session=1")


class Starting(Linked):
    """Notes each time that start() is read; gives an item there too."""

    name = "starting"
    read = 0
    cut_at = 99

    async def start(self) -> AsyncGenerator[Any, None]:
        type(self).read += 1
        yield {"url": "start"}
        for number in range(6):
            if number == self.cut_at:
                await trio.sleep_forever()
            yield Request(f"http://a.example/{number or ''}")


async def test_a_start_that_ended_is_not_read_again(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Starting, "read", 0)
    runs = Runs(tmp_path, site(6), Starting, {"DOWNLOAD_DELAY": 1.0, **EXACT})
    await runs.run(stop_after=4.5)
    await runs.run()
    assert Starting.read == 1
    assert sorted(runs.urls) == sorted(["start", *all_urls(6)])


async def test_a_start_that_was_cut_is_read_again_and_what_was_seen_is_dropped(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Starting, "read", 0)
    runs = Runs(tmp_path, site(6), Starting, QUICK)
    monkeypatch.setattr(Starting, "cut_at", 3)
    await runs.run(stop_after=4.5)
    assert "start" not in runs.urls  # it comes with the end of start()
    monkeypatch.setattr(Starting, "cut_at", 99)
    await runs.run()
    assert Starting.read == 2
    assert sorted(runs.urls) == sorted(["start", *all_urls(6)])
    assert set(runs.sent.values()) == {1}


@pytest.mark.parametrize("meta", [{"download_slot": "mine"}, {}])
async def test_a_scope_that_is_a_host_only_by_its_requests_is_one_in_the_next_run(
    meta: dict[str, str], tmp_path: Path, autojump_clock: MockClock
) -> None:
    class Intranet(trawl.Spider):
        name = "intranet"

        async def start(self) -> AsyncGenerator[Any, None]:
            for number in range(6):
                yield Request(f"http://intranet/{number}", meta=meta)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            return {"url": response.url}

    web = SimulatedWeb()
    web.add_host("intranet", latency=0.1)
    runs = Runs(tmp_path, web, Intranet, {"DOWNLOAD_DELAY": 1.0, "ROBOTSTXT_OBEY": False, **EXACT})
    await runs.run(stop_after=0.5)
    runs.down(60.0)
    await runs.run()
    assert [time - runs.times[0][0] for time, _ in runs.times] == [0.0, 1.0, 2.0, 3.0, 4.0]


async def test_a_proxy_of_a_list_that_is_gone_is_not_used_by_the_next_run(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    answers = iter([SimulatedResponse(500, latency=0.5)])
    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: next(answers, SimulatedResponse(latency=0.5)))
    through: list[object] = []

    class Once(trawl.Spider):
        name = "linked"

        async def start(self) -> AsyncGenerator[Request, None]:
            yield Request("http://a.example/")

        def parse(self, response: Response) -> None:
            through.append(response.meta.get("proxy"))

    settings = {"ROBOTSTXT_OBEY": False, **EXACT}
    runs = Runs(tmp_path, web, Once, settings={**settings, "ROTATING_PROXY_LIST": ["http://p.example:1"]})
    assert (await runs.run(stop_after=0.75)).reason == "shutdown"
    runs.settings = settings
    assert (await runs.run()).reason == "finished"
    assert through == [None]


class Listed(trawl.Spider):
    """Its start URLs come twice each, and its pages link to one of them; ``cut_at``: start() gets no further."""

    name = "listed"
    start_urls = tuple(f"http://a.example/{number}" for number in (1, 2, 3)) * 2
    cut_at = 99

    async def start(self) -> AsyncGenerator[Any, None]:
        for number, request in enumerate(self.start_requests()):
            if number == self.cut_at:
                await trio.sleep_forever()
            yield request

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}
        yield response.follow("/1")


@pytest.mark.parametrize("cut_at", range(7))
async def test_start_urls_that_are_not_filtered_come_as_often_as_listed_however_often_start_is_read(
    cut_at: int, tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"DOWNLOAD_DELAY": 1.0, "FILTER_START_URLS": False, "ROBOTSTXT_OBEY": False, **EXACT}
    runs = Runs(tmp_path, site(4), Listed, settings)
    monkeypatch.setattr(Listed, "cut_at", cut_at)
    await runs.run(stop_after=2.5)
    monkeypatch.setattr(Listed, "start_urls", Listed.start_urls[::-1])  # as of a set, in another order
    await runs.run(stop_after=2.5)
    monkeypatch.setattr(Listed, "cut_at", 99)
    await runs.run()
    assert runs.sent == {"http://a.example/1": 3, "http://a.example/2": 2, "http://a.example/3": 2}
    assert len(runs.urls) == 7


async def test_a_finished_job_says_so_sends_nothing_and_leaves_the_feed_alone(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    runs = Runs(tmp_path, site(3), settings=QUICK)
    await runs.run()
    before = runs.feed.read_bytes()
    with caplog.at_level(logging.INFO):
        result = await runs.run()
    assert "is finished" in caplog.text
    assert (result.reason, runs.times) == ("finished", [])
    assert result.stats["item_scraped_count"] == 3
    assert runs.feed.read_bytes() == before


async def test_a_job_of_an_earlier_release_says_that_some_pages_may_come_once_more(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    runs = Runs(tmp_path, site(8), settings=QUICK)
    await runs.run(stop_after=0.25)
    with closing(sqlite3.connect(runs.directory / "job.db")) as database, database:
        (blob,) = database.execute("SELECT blob FROM kept WHERE name = 'job'").fetchone()
        version, facts = msgspec.msgpack.decode(blob)
        del facts["marks"]  # as it was before there was one
        database.execute("UPDATE kept SET blob = ? WHERE name = 'job'", [msgspec.msgpack.encode((version, facts))])
    database.close()
    with caplog.at_level(logging.INFO):
        await runs.run()
    assert "an earlier release began it" in caplog.text
    assert runs.urls == all_urls(8)  # what was seen then counts: those URLs have one form in both
    caplog.clear()
    with caplog.at_level(logging.INFO):
        await Runs(tmp_path / "new", site(2), settings=QUICK).run()
    assert "earlier release" not in caplog.text


async def test_a_job_of_another_spider_is_refused(tmp_path: Path, autojump_clock: MockClock) -> None:
    runs = Runs(tmp_path, site(3), settings=QUICK)
    await runs.run(stop_after=0.05)
    runs.spider = Late
    with pytest.raises(UsageError, match=r"belongs to spider 'linked' \(Linked\), not to 'late'"):
        await runs.run()
    runs.spider = Linked
    assert (await runs.run()).reason == "finished"


async def test_what_cannot_be_read_of_what_was_learned_is_left_out_with_a_warning(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    runs = Runs(tmp_path, site(7), settings=QUICK)
    await runs.run(stop_after=0.15)
    job = await open_job(runs.directory, InlineBlocking())
    for name in ("throttle", "statistics", "robots", "cookies"):
        assert name in job.kept or name == "cookies"  # no page has set one
        job.keep(name, b"\x92\x01garbage")
    job.keep("throttle", b"\x92\xcd\x03\xe7\x80")  # of version 999
    await job.aclose()
    assert (await runs.run()).reason == "finished"
    assert runs.urls == all_urls(7)
    assert "'throttle' is ignored: it is of version 999" in caplog.text
    for name in ("statistics", "robots", "cookies"):
        assert f"{name!r} is ignored: it can't be read" in caplog.text


async def test_a_note_that_cannot_be_read_is_an_error(tmp_path: Path, autojump_clock: MockClock) -> None:
    runs = Runs(tmp_path, site(7), settings=QUICK)
    await runs.run(stop_after=0.15)
    job = await open_job(runs.directory, InlineBlocking())
    job.keep("job", b"garbage")
    await job.aclose()
    with pytest.raises(JobError, match="the facts about its spider and its runs can't be read"):
        await runs.run()


class Nameless(trawl.Spider):
    """Its second request has a callback that no job can store."""

    name = "nameless"
    start_urls = ("http://a.example/",)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}
        yield Request("http://a.example/1", callback=lambda response: None)
        yield Request("http://a.example/2", meta={"when": object()})


async def test_a_request_that_cannot_be_stored_is_dropped_and_told_with_a_job_only(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    runs = Runs(tmp_path, site(3), Nameless, QUICK)
    result = await runs.run()
    assert result.stats["unstorable_requests"] == 2
    assert "can't store it" in caplog.text
    assert "'when'" in caplog.text
    await runs.run(JOB_DIR="", FEEDS={})
    assert runs.sent["http://a.example/1"] == 1


class Generous(trawl.Spider):
    """One page with more items than are held in memory."""

    name = "generous"
    start_urls = ("http://a.example/",)
    fails = False

    async def parse(self, response: Response, **kwargs: Any) -> Any:
        for number in range(3 * MAX_ITEMS + 5):
            if self.fails and number == 2 * MAX_ITEMS + 1:
                await trio.sleep_forever()
            yield {"number": number}


async def test_c4_items_above_the_bound_are_spilled_and_come_with_their_page_or_not_at_all(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path, site(1), Generous, {**QUICK, "SHUTDOWN_TIMEOUT": 1.0})
    monkeypatch.setattr(Generous, "fails", True)
    result = await runs.run(stop_after=5.0)
    assert result.reason == "shutdown"
    assert runs.items == []
    assert "item_scraped_count" not in result.stats
    monkeypatch.setattr(Generous, "fails", False)
    result = await runs.run()
    assert [item["number"] for item in runs.items] == list(range(3 * MAX_ITEMS + 5))
    assert result.stats["item_scraped_count"] == 3 * MAX_ITEMS + 5


@pytest.mark.parametrize("feed", ["items.jsonl", "items.json", "items.csv", "items.xml"])
async def test_c7_every_format_is_the_same_as_without_a_job(
    tmp_path: Path, autojump_clock: MockClock, feed: str
) -> None:
    plain, stopped = tmp_path / "plain", tmp_path / "stopped"
    for folder in (plain, stopped):
        folder.mkdir()
    settings = {"CONCURRENT_REQUESTS_PER_DOMAIN": 1, **EXACT}
    one = Runs(plain, site(9), settings={**settings, "JOB_DIR": ""}, feed=feed)
    await one.run()
    several = Runs(stopped, site(9), settings=settings, feed=feed)
    while (await several.run(stop_after=0.35)).reason != "finished":
        pass
    assert several.feed.read_bytes() == one.feed.read_bytes()


async def test_a_feed_that_fails_ends_the_crawl_and_the_job_goes_on_later(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = FileStorage.write

    def full(self: FileStorage, position: int, content: memoryview) -> int:
        if position + len(content) > 300:
            raise OSError(28, "No space left on device")
        return write(self, position, content)

    runs = Runs(tmp_path, site(30), settings={**QUICK, "DOWNLOAD_DELAY": 0.2, **EXACT})
    with monkeypatch.context() as patched:
        patched.setattr(FileStorage, "write", full)
        result = await runs.run()
    assert result.reason == "feed_error"
    assert result.error is not None
    assert "No space left" in str(result.error)
    assert 0 < len(runs.items) < 30
    assert (await runs.run()).reason == "finished"
    assert runs.urls == all_urls(30)


async def test_items_are_collected_and_streamed_with_a_job_too(tmp_path: Path, autojump_clock: MockClock) -> None:
    runs = Runs(tmp_path, site(5), settings=QUICK)
    settings = {"JOB_DIR": str(runs.directory), **QUICK}
    simulation = await runs.web.crawl(Linked, settings=settings)
    assert [json.dumps(item) for item in simulation.items]
    assert len(simulation.items) == 5


class Insistent(trawl.Spider):
    """One page with many links that are not to be filtered, in a callback that is cut off at first."""

    name = "insistent"
    start_urls = ("http://a.example/",)
    is_cut = False

    async def parse(self, response: Response, **kwargs: Any) -> Any:
        if response.url != "http://a.example/":
            return
        for number in range(250):
            yield Request(f"http://a.example/{number}?", dont_filter=number % 2 == 0)
        if self.is_cut:
            await trio.sleep_forever()


async def test_what_is_not_to_be_filtered_is_stored_with_its_page_only(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path, site(1), Insistent, {**QUICK, "SHUTDOWN_TIMEOUT": 0.5})
    monkeypatch.setattr(Insistent, "is_cut", True)
    await runs.run(stop_after=0.5)
    assert not any(int(url.rsplit("/", 1)[1].rstrip("?") or 1) % 2 == 0 for url in runs.sent if url.endswith("?"))
    monkeypatch.setattr(Insistent, "is_cut", False)
    await runs.run()
    assert sorted(set(runs.sent.values())) == [1, 2]
    assert [url for url, times in runs.sent.items() if times == 2] == ["http://a.example/"]
    assert len(runs.sent) == 252  # with robots.txt and the page itself


async def test_c11_a_page_budget_counts_on(tmp_path: Path, autojump_clock: MockClock) -> None:
    runs = Runs(tmp_path, site(30), settings={**QUICK, "ROBOTSTXT_OBEY": False, "PAGES_PER_DOMAIN": 11})
    while (await runs.run(stop_after=0.15)).reason != "finished":
        pass
    assert runs.sent.total() == len(runs.urls) == 11


class Unwilling:
    """A pipeline that can't be opened."""

    def open_spider(self, spider: object) -> None:
        raise OSError("no database today")

    def process_item(self, item: object, spider: object) -> object:
        return item


async def test_a_run_that_cannot_begin_changes_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    runs = Runs(tmp_path, site(9), settings={**EXACT, "DOWNLOAD_DELAY": 1.0})
    await runs.run(stop_after=3.5)
    with pytest.raises(OSError, match="no database today"):
        await runs.run(ITEM_PIPELINES={Unwilling: 1})
    result = await runs.run()
    assert result.stats["item_scraped_count"] == 9
    assert runs.urls == all_urls(9)
    assert runs.sent["http://a.example/robots.txt"] == 1
