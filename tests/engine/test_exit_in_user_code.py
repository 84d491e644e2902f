"""`exit()` in user code, and other errors that are not an `Exception`, fail alone: logged, counted, and no end.

Each test runs twice, with `exit()` and with `GeneratorExit`.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trio

import trawl
from trawl.exporters import JsonLinesItemExporter
from trawl.http import Fetch, Outcome, Request, Response
from trawl.pipelines import FilesPipeline
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation, simulate
from trawl.throttling import ThrottlingManager
from trawl.tracebacks import UserExit, contained

FREE = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "ROBOTSTXT_OBEY": False}
PAGES = [f"http://a.example/{number}" for number in range(5)]


class Panic(BaseException):
    """As an extension in Rust raises it."""


def panics() -> None:
    raise Panic("index out of bounds")


def exits_with_zero() -> None:
    sys.exit(0)


def usage() -> None:
    argparse.ArgumentParser(prog="x").parse_args(["--wrong"])


def quits() -> None:
    raise SystemExit


def is_closed() -> None:
    raise GeneratorExit


EXITS: list[Callable[[], None]] = [panics, exits_with_zero, usage, quits, exit, is_closed]

_ENDS: list[Callable[[], Any]] = []


def ends_it() -> NoReturn:
    """Do what the test is about: ``sys.exit()``, or raise GeneratorExit."""
    _ENDS[0]()
    raise AssertionError("it did not end")


@pytest.fixture(autouse=True, params=[sys.exit, is_closed])
def _how_it_ends(request: pytest.FixtureRequest) -> Iterator[None]:
    _ENDS[:] = [request.param]
    yield
    _ENDS.clear()


async def in_a_nursery() -> None:
    async def end() -> None:
        await trio.lowlevel.checkpoint()
        ends_it()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        nursery.start_soon(trio.sleep_forever)


class Five(trawl.Spider):
    name = "five"
    start_urls = PAGES

    def parse(self, response: Response, **kwargs: Any) -> Any:
        if response.url == PAGES[2]:
            self.hit()
        yield {"url": response.url}

    def hit(self) -> None:
        """Do what fails on one page of five."""


def crawl(spider: type[trawl.Spider], settings: dict[str, Any] | None = None, **options: Any) -> Simulation:
    web = SimulatedWeb()
    web.add_host("a.example", **options)
    return simulate(spider, web, {**FREE, **(settings or {})}, errors="collect")


@pytest.mark.parametrize("ends", EXITS)
def test_exit_in_a_callback_costs_that_page_alone(ends: Callable[[], None], caplog: pytest.LogCaptureFixture) -> None:
    class Exits(Five):
        def hit(self) -> None:
            ends()

    run = crawl(Exits)
    assert len(run.items) == 4
    assert run.reason == "finished"
    assert run.stats["spider_exceptions"] == 1
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "<GET http://a.example/2>" in record.getMessage()


def test_the_statistics_have_the_name_of_what_was_raised() -> None:
    class Exits(Five):
        hit = staticmethod(exits_with_zero)

    assert crawl(Exits).stats["spider_exceptions/SystemExit"] == 1


async def _async(self: Any, response: Response) -> Any:
    await trio.lowlevel.checkpoint()
    if response.url == PAGES[2]:
        await in_a_nursery()
    return {"url": response.url}


async def _generator(self: Any, response: Response) -> Any:
    async with trio.open_nursery():
        if response.url == PAGES[2]:
            ends_it()
        yield {"url": response.url}  # noqa: ASYNC119


def _function(self: Any, response: Response) -> Any:
    if response.url == PAGES[2]:
        ends_it()
    return [{"url": response.url}]


@pytest.mark.parametrize("parse", [_async, _generator, _function])
def test_all_kinds_of_callbacks_may_exit(parse: Any) -> None:
    run = crawl(type("Exits", (Five,), {"parse": parse}))
    assert (len(run.items), run.stats["spider_exceptions"]) == (4, 1)


def test_exit_in_an_errback_costs_that_page_alone() -> None:
    class Exits(Five):
        async def start(self) -> AsyncGenerator[Any, None]:
            for url in PAGES:
                yield Request(url, errback=self.failed)

        def failed(self, error: Any) -> Any:
            if error.request.url == PAGES[2]:
                ends_it()
            yield {"url": error.request.url}

    run = crawl(Exits, status=404)
    assert (len(run.items), run.stats["spider_exceptions"]) == (4, 1)


def test_exit_in_start_ends_start_alone() -> None:
    class Exits(Five):
        async def start(self) -> AsyncGenerator[Any, None]:
            yield Request(PAGES[0])
            ends_it()

    run = crawl(Exits)
    assert (len(run.items), run.reason) == (1, "start_error")


class Pipeline:
    def __init__(self, ends: Callable[[], Any], at: str) -> None:
        self.ends, self.at = ends, at

    def process_item(self, item: Any) -> Any:
        if item["url"] == PAGES[2] and self.at == "item":
            return self.ends()
        return item

    def close_spider(self) -> None:
        if self.at == "close":
            self.ends()


@pytest.mark.parametrize("ends", [ends_it, in_a_nursery])
def test_exit_in_a_pipeline_costs_that_item_alone(ends: Callable[[], Any]) -> None:
    run = crawl(Five, {"ITEM_PIPELINES": {Pipeline(ends, "item"): 1}})
    assert (len(run.items), run.stats["item_error_count"], run.reason) == (4, 1, "finished")


def test_exit_at_the_end_of_a_pipeline_or_spider_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Exits(Five):
        def closed(self, reason: str) -> None:
            ends_it()

    run = crawl(Exits, {"ITEM_PIPELINES": {Pipeline(ends_it, "close"): 1}})
    assert (len(run.items), run.reason) == (5, "finished")
    messages = [record.getMessage() for record in caplog.records]
    assert "close_spider of the item pipeline Pipeline failed" in messages
    assert "closing the spider failed" in messages


@pytest.mark.parametrize("ends", [ends_it, in_a_nursery])
def test_exit_in_a_middleware_costs_that_page_alone(ends: Callable[[], Any]) -> None:
    def around(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            if request.url == PAGES[2] and (waiting := ends()) is not None:
                await waiting
            return await fetch(request)

        return send

    run = crawl(Five, {"DOWNLOADER_MIDDLEWARES": {around: 600}})
    assert (len(run.items), run.stats["middleware_exceptions"], run.reason) == (4, 1, "finished")


class ScrapyMiddleware:
    def process_response(self, request: Request, response: Response, spider: Any) -> Any:
        if request.url == PAGES[2]:
            ends_it()
        return response


class ScrapySpiderMiddleware:
    def process_spider_output(self, response: Response, result: Any, spider: Any) -> Any:
        for each in result:
            if response.url == PAGES[2]:
                ends_it()
            yield each


class ScrapyInput:
    def process_spider_input(self, response: Response, spider: Any) -> None:
        if response.url == PAGES[2]:
            ends_it()


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ("DOWNLOADER_MIDDLEWARES", ScrapyMiddleware),
        ("SPIDER_MIDDLEWARES", ScrapySpiderMiddleware),
        ("SPIDER_MIDDLEWARES", ScrapyInput),
    ],
)
def test_exit_in_a_middleware_as_scrapy_has_it_costs_that_page_alone(setting: str, kind: type, compat: bool) -> None:
    run = crawl(Five, {setting: {kind: 600}, "SCRAPY_COMPAT": compat})
    assert (len(run.items), run.reason) == (4, "finished")
    assert len(run.errors) == 1


def test_a_spider_middleware_sees_that_a_callback_called_exit() -> None:
    class Sees:
        def process_spider_exception(self, response: Response, exception: Exception, spider: Any) -> Any:
            return [{"url": response.url, "error": type(exception).__name__}]

    class Exits(Five):
        hit = staticmethod(ends_it)

    run = crawl(Exits, {"SPIDER_MIDDLEWARES": {Sees: 500}})
    assert [item["error"] for item in run.items if "error" in item] == ["UserExit"]


class Extension:
    @classmethod
    def from_crawler(cls, crawler: Any) -> Extension:
        made = cls()
        for signal in ("spider_opened", "item_scraped", "response_received", "spider_idle", "spider_closed"):
            crawler.signals.connect(made.hear, signal=signal)
        return made

    def hear(self) -> None:
        ends_it()


def test_exit_in_receivers_of_signals_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    run = crawl(Five, {"EXTENSIONS": {Extension: 0}})
    assert (len(run.items), run.reason) == (5, "finished")
    for signal in ("spider_opened", "item_scraped", "spider_closed"):
        assert f"a receiver of {signal} failed" in caplog.text


async def watcher(crawl: Any) -> None:
    ends_it()


def test_exit_in_a_watcher_ends_the_watcher() -> None:
    run = crawl(Five, {"WATCHERS": {watcher: 0}})
    assert (len(run.items), run.stats["watcher_exceptions"]) == (5, 1)


class Scopes(ThrottlingManager):
    async def get_scopes(self, request: Request) -> Any:
        if request.url == PAGES[2]:
            ends_it()
        return "all"


class Answers(ThrottlingManager):
    async def get_response_backoff(self, response: Response) -> Any:
        ends_it()


class Start(ThrottlingManager):
    async def get_initial_backoff(self) -> Any:
        ends_it()


@pytest.mark.parametrize(
    ("manager", "items", "count"), [(Scopes, 4, "scope_errors"), (Answers, 5, "throttling_errors")]
)
def test_exit_in_a_throttling_manager_is_an_error_of_it(manager: type, items: int, count: str) -> None:
    run = crawl(Five, {"THROTTLING_MANAGER": manager})
    assert (len(run.items), run.reason) == (items, "finished")
    assert run.stats[count]


def test_exit_at_the_start_of_a_throttling_manager_is_logged() -> None:
    assert len(crawl(Five, {"THROTTLING_MANAGER": Start}).items) == 5


class Trigger:
    def __init__(self, config: Any) -> None:
        pass

    def is_trigger(self, response: Any, exception: Any) -> bool:
        ends_it()


def test_exit_in_a_scopes_own_manager_is_an_error_of_it() -> None:
    run = crawl(Five, {"THROTTLING_SCOPES": {"a.example": {"manager": Trigger}}})
    assert len(run.items) == 5
    assert run.stats["throttling_errors"]


class Exporter(JsonLinesItemExporter):
    def export_item(self, item: Any) -> None:
        if item["url"] == PAGES[2]:
            ends_it()
        super().export_item(item)


def _filter(item: Any) -> bool:
    return not (item["url"] == PAGES[2] and ends_it())


@pytest.mark.parametrize("with_job", [False, True])
@pytest.mark.parametrize("options", [{"item_filter": _filter}, {"format": "own"}])
def test_exit_in_a_feed_costs_that_item_alone(options: dict[str, Any], with_job: bool, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    settings = {"FEEDS": {str(out): options}, "FEED_EXPORTERS": {"own": Exporter}}
    run = crawl(Five, {**settings, **({"JOB_DIR": str(tmp_path / "job")} if with_job else {})})
    assert (len(out.read_text().splitlines()), run.reason) == (4, "finished")
    assert run.stats["feed_item_errors"] == 1


class Media(FilesPipeline):
    def file_path(self, request: Request, response: Any = None, info: Any = None, *, item: Any = None) -> str:
        ends_it()


def test_exit_in_a_files_pipeline_costs_that_file(tmp_path: Path) -> None:
    class Files(Five):
        start_urls = PAGES[:1]

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"file_urls": ["http://a.example/f"]}

    run = crawl(Files, {"ITEM_PIPELINES": {Media: 1}, "FILES_STORE": str(tmp_path)})
    assert (len(run.items), run.stats["file_error_count"]) == (1, 1)


def test_exit_while_a_part_is_made_or_opened_ends_the_crawl_with_an_error() -> None:
    class Made:
        def __init__(self) -> None:
            ends_it()

    class Opened:
        def open_spider(self) -> None:
            ends_it()

    class Spider(Five):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            ends_it()

    for spider, settings in (
        (Five, {"ITEM_PIPELINES": {Made: 1}}),
        (Five, {"ITEM_PIPELINES": {Opened: 1}}),
        (Spider, {}),
    ):
        with pytest.raises(Exception, match=r"exit\(\) was called|GeneratorExit"):
            crawl(spider, settings)


def test_a_handler_of_a_simulated_web_that_exits_is_a_bug_of_the_test() -> None:
    def handler(request: Request) -> SimulatedResponse:
        ends_it()

    with pytest.raises(UserExit):
        crawl(Five, handler=handler)


def test_ctrl_c_in_user_code_stays_what_it_is() -> None:
    class Interrupted(Five):
        def hit(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crawl(Interrupted)


def test_a_group_that_contains_ctrl_c_passes_whole() -> None:
    group = BaseExceptionGroup("", [KeyboardInterrupt(), SystemExit()])
    with pytest.raises(BaseExceptionGroup) as raised, contained:
        raise group
    assert raised.value is group
