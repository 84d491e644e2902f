"""The public entry over a real wire: run, crawl and open_crawl against a server on loopback."""

from __future__ import annotations

import fcntl
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import trawl
from trawl.errors import FeedError, SettingsError, UsageError
from trawl.http import Fetch, Response

PAGES = 12


class Site(BaseHTTPRequestHandler):
    """A start page with links to the others."""

    def do_GET(self) -> None:
        links = "".join(f'<a href="/{i}">{i}</a>' for i in range(1, PAGES)) if self.path == "/" else ""
        body = f"<title>page {self.path}</title>{links}".encode()
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class Titles(trawl.Spider):
    name = "titles"
    custom_settings = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}
    url = ""

    async def start(self) -> Any:
        yield trawl.Request(self.url)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"title": response.css("title::text").get()}
        yield from response.follow_all(css="a")


TITLES = {f"page /{i or ''}" for i in range(PAGES)}


def test_run_crawls_and_collects(site: str) -> None:
    result = trawl.run(Titles, url=site)
    assert result.reason == "finished"
    assert {item["title"] for item in result.items or ()} == TITLES
    assert result.stats["item_scraped_count"] == PAGES
    assert result.elapsed > 0


def test_run_with_a_feed_keeps_no_items_and_says_so(
    site: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "out.json"
    with caplog.at_level("INFO", "trawl"):
        result = trawl.run(Titles, {"FEEDS": {str(path): {"format": "json"}}}, url=site)
    assert (result.reason, result.items) == ("finished", None)
    assert {item["title"] for item in json.loads(path.read_text())} == TITLES
    assert "the feeds have the items: the result keeps none of them" in caplog.text


def test_run_works_outside_the_main_thread_where_there_are_no_signals(site: str) -> None:
    results: list[trawl.CrawlResult] = []
    thread = threading.Thread(target=lambda: results.append(trawl.run(Titles, url=site)))
    thread.start()
    thread.join()
    assert results[0].reason == "finished"


async def test_crawls_run_side_by_side_inside_a_trio_program(site: str) -> None:  # C2
    results: list[trawl.CrawlResult] = []

    async def one() -> None:
        results.append(await trawl.crawl(Titles, url=site))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(one)
    assert [len(result.items or ()) for result in results] == [PAGES] * 3


async def test_items_are_read_while_the_crawl_runs(site: str) -> None:
    titles = set()
    async with trawl.open_crawl(Titles, url=site) as crawl:
        async for item in crawl:
            assert crawl.running.spider.name == "titles"
            titles.add(item["title"])
    assert titles == TITLES
    assert crawl.result is not None
    assert crawl.result.reason == "finished"


class Waiting(Titles):
    """It has nothing to start with."""

    name = "waiting"

    async def start(self) -> Any:
        return
        yield


async def test_an_open_crawl_takes_requests_and_ends_when_it_need_not_stay_open(site: str) -> None:
    async with trawl.open_crawl(Waiting, url=site) as crawl:
        with crawl.stay_open():
            await crawl.add(trawl.Request(site))
            titles = {(await anext(crawl))["title"] for _ in range(PAGES)}
            await crawl.running.until_idle()
            await crawl.add(trawl.Request(f"{site}?again"))
            assert (await anext(crawl))["title"].startswith("page")
        assert [item async for item in crawl] == []
    assert titles == TITLES
    assert crawl.result is not None
    assert crawl.result.reason == "finished"


async def test_an_open_crawl_without_a_request_ends_by_itself_but_not_before_its_block_begins(site: str) -> None:
    for _ in range(20):  # tasks run in any order
        async with trawl.open_crawl(Waiting, url=site) as crawl:
            with crawl.stay_open():
                await trio.lowlevel.checkpoint()
            assert [item async for item in crawl] == []
        assert crawl.result is not None
        assert crawl.result.reason == "finished"


async def test_leaving_an_open_crawl_ends_it_and_its_result_says_how_far_it_came(site: str) -> None:
    async with trawl.open_crawl(Titles, url=site) as crawl:
        await anext(crawl)
    assert crawl.result is not None
    assert crawl.result.reason == crawl.result.stats["finish_reason"] == "cancelled"
    assert crawl.result.stats["item_scraped_count"] >= 1
    assert crawl.result.elapsed > 0


async def test_an_open_crawl_that_is_left_by_an_error_or_a_cancel_has_a_result_too(site: str) -> None:
    with suppress(ZeroDivisionError):
        async with trawl.open_crawl(Titles, url=site) as failed:
            await anext(failed)
            raise ZeroDivisionError
    with trio.CancelScope() as scope:
        async with trawl.open_crawl(Titles, url=site) as cancelled:
            await anext(cancelled)
            scope.cancel()
            await trio.sleep_forever()
    async with trawl.open_crawl(Titles, url=site) as unread:
        pass
    for crawl in (failed, cancelled, unread):
        assert crawl.result is not None
        assert crawl.result.reason == "cancelled"


async def test_an_open_crawl_that_can_not_begin_says_why() -> None:
    with pytest.raises(UsageError, match="start_urls"):
        await first_item()


async def first_item() -> Any:
    """The first item of a spider that can't start."""
    async with trawl.open_crawl(WrongStart) as crawl:
        return await anext(crawl)


class WrongStart(trawl.Spider):
    name = "wrong"
    start_urls = ("a.example",)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"DOWNLOAD_DELY": 1}, SettingsError),
        ({"DOWNLOAD_DELAY": "fast"}, SettingsError),
        ({"FEEDS": {"/proc/none/out.jsonl": {}}}, FeedError),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(settings: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        trawl.run(Titles, settings, url="http://127.0.0.1:1/")


def test_a_part_that_cannot_be_made_leaves_no_feed_open(tmp_path: Path) -> None:
    def failing(fetch: Fetch) -> Fetch:
        raise SettingsError("no middleware")

    feed = tmp_path / "out.jsonl"
    settings = {"FEEDS": {str(feed): {}}, "DOWNLOADER_MIDDLEWARES": {failing: 1_000}}
    with pytest.raises(SettingsError, match="no middleware") as refused:
        trawl.run(Titles, settings, url="http://127.0.0.1:1/")
    assert refused.traceback  # which holds on to every frame, so nothing is closed by being forgotten
    with feed.open("a") as again:  # a feed that is open is locked
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_run_says_what_to_use_inside_trio() -> None:
    with pytest.raises(RuntimeError, match=r"await trawl\.crawl\(Titles, \.\.\.\)"):
        trawl.run(Titles, url="http://127.0.0.1:1/")


async def test_limits_can_be_changed_and_waits_explained_while_it_runs(site: str) -> None:  # I11 I12
    seen: list[Any] = []
    slow = {"DOWNLOAD_DELAY": 30.0}

    class Slow(Titles):
        custom_settings = slow

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield from super().parse(response)
            if response.url == self.url:
                host = self.url.removeprefix("http://").strip("/")
                seen.append(self.crawl.why(host))
                self.crawl.throttling.set(host, delay=0.0, delay_per_slot=0.0)

    with trio.fail_after(60):
        result = await trawl.crawl(partial_of(Slow, site), {"ROBOTSTXT_OBEY": False})
    assert len(result.items or ()) == PAGES
    assert seen[0].limit == "delay"


def partial_of(spider: type[Titles], site: str) -> type[Titles]:
    """``spider`` with its URL as a class attribute."""
    return type(spider.__name__, (spider,), {"url": site})


def test_a_result_is_a_value() -> None:
    result = trawl.CrawlResult("finished", {}, 1.0)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        result.reason = "other"  # type: ignore[misc]
    assert partial(trawl.CrawlResult, "finished", {}, 1.0)() == result
