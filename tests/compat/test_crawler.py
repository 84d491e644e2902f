"""The crawl under Scrapy's name for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import pytest

import trawl
from trawl import signals
from trawl.errors import UsageError
from trawl.http import Request, Response
from trawl.observe import Stats
from trawl.settings import load, of_spider
from trawl.spiders import Crawler, CustomSettings
from trawl.spiders.crawler import BEGIN_AND_END, EVENT_SIGNALS, IDLE
from trawl.testing import SimulatedWeb, simulate

WEB = SimulatedWeb()
WEB.add_page("http://a.example/", links=["/1", "/2"])


class Plain(trawl.Spider):
    name = "plain"
    start_urls = ["http://a.example/"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


def test_a_spider_is_made_for_a_crawl_and_may_look_at_its_settings_first() -> None:
    class Made(Plain):
        delay: float = 0.0

        @classmethod
        def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
            spider = super().from_crawler(crawler, *args, **kwargs)
            spider.delay = crawler.settings["DOWNLOAD_DELAY"]
            assert crawler.spider is spider
            assert crawler.spidercls is cls
            assert spider.settings is crawler.settings
            crawler.stats.set_value("made", True)
            return spider

        def parse(self, response: Response) -> Iterator[Any]:
            self.crawler.stats.inc_value("custom/pages", count=2)
            yield {"delay": self.delay, "arg": self.arg}  # type: ignore[attr-defined]

    sim = simulate(Made, WEB, {"DOWNLOAD_DELAY": 0.25}, arg="x")
    assert sim.items == [{"delay": 0.25, "arg": "x"}]
    assert (sim.stats["custom/pages"], sim.stats["made"]) == (2, True)


def test_its_engine_ends_the_crawl_and_fetches() -> None:
    class Ending(Plain):
        async def parse(self, response: Response) -> Any:  # type: ignore[override]
            first = await self.crawler.engine.download(Request("http://a.example/1"))
            second = await self.crawler.engine.download_async(Request("http://a.example/2"))
            self.crawler.engine.close_spider(self, "enough")
            return {"got": [first.status, second.status]}

    sim = simulate(Ending, WEB)
    assert (sim.items, sim.reason) == ([{"got": [200, 200]}], "enough")


def test_before_the_crawl_runs_there_is_no_engine() -> None:
    crawler = Crawler({}, Stats(), Plain)
    with pytest.raises(RuntimeError, match="not running yet"):
        crawler.engine.close_spider(None)


@pytest.mark.parametrize("signal", [object(), None])
def test_a_signal_that_is_not_sent_is_refused_with_what_takes_its_place(signal: object) -> None:
    with pytest.raises(UsageError, match=r"a watcher \(WATCHERS\) that reads crawl\.events"):
        Crawler({}, Stats(), Plain).signals.connect(print, signal=signal)


class Connected:
    """As the template of Scrapy's projects has it, with an end."""

    def __init__(self, told: list[Any]) -> None:
        self.told = told

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        made = cls(crawler.spider.told)
        assert crawler.engine is crawler.spider.crawler.engine
        crawler.signals.connect(made.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(made.spider_closed, signal=signals.spider_closed)
        crawler.signals.connect(made.failing, signals.spider_opened)
        return made

    def spider_opened(self, spider: Any) -> None:
        self.told.append(("opened", spider.name))

    async def spider_closed(self, reason: str, **others: Any) -> None:
        self.told.append(("closed", reason, sorted(others)))

    def failing(self) -> None:
        raise ValueError("not this one")

    def process_request(self, request: Request) -> None:
        self.told.append(request.url)

    def process_item(self, item: Any) -> Any:
        return item


@pytest.mark.parametrize("setting", ["DOWNLOADER_MIDDLEWARES", "ITEM_PIPELINES"])
def test_middleware_and_pipelines_hear_that_the_spider_is_opened_and_closed(
    setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Telling(Plain):
        told: list[Any] = []
        custom_settings = {setting: {Connected: 543}}

        @classmethod
        def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Any:
            spider = super().from_crawler(crawler, *args, **kwargs)
            crawler.signals.connect(spider.heard, signal=signals.spider_closed)
            return spider

        def heard(self, spider: Any) -> None:
            self.told.append(spider is self)

        def closed(self, reason: str) -> None:
            self.told.append("end")

    assert simulate(Telling, WEB, errors="collect").reason == "finished"
    told = Telling.told
    assert told[0] == ("opened", Telling.name)
    assert told[-3:] == [True, ("closed", "finished", ["sender", "signal", "spider"]), "end"]
    assert "a receiver of spider_opened failed" in caplog.text


def test_a_spider_writes_its_settings_itself() -> None:
    class Writing(Plain):
        custom_settings = {"DOWNLOAD_DELAY": 2.0}

        @classmethod
        def update_settings(cls, settings: CustomSettings) -> None:
            super().update_settings(settings)
            settings.set("USER_AGENT", "me/1", priority="spider")
            settings.setdict({"RETRY_TIMES": 5})
            settings["COOKIES_ENABLED"] = False
            assert (settings.getdict("NONE"), settings.getlist("NONE")) == ({}, [])

    settings = load(of_spider(Writing))
    assert settings["DOWNLOAD_DELAY"] == 2.0
    assert (settings["USER_AGENT"], settings["RETRY_TIMES"], settings["COOKIES_ENABLED"]) == ("me/1", 5, False)
    assert settings.source("RETRY_TIMES") == "custom_settings"
    assert simulate(Writing, WEB).reason == "finished"


@pytest.mark.parametrize("name", ["stop", "stop_async"])
def test_the_crawler_itself_ends_the_crawl_too(name: str) -> None:
    class Stopping(Plain):
        async def parse(self, response: Response) -> Any:  # type: ignore[override]
            result = getattr(self.crawler, name)()
            if result is not None:
                await result
            return response.follow("/1")

    sim = simulate(Stopping, WEB)
    assert sim.reason == "shutdown"
    assert "http://a.example/1" not in [send.url for send in sim.sends]


def test_a_signal_that_is_not_sent_says_what_to_write() -> None:
    heard = Crawler({}, Stats(), Plain).signals
    for name in sorted(signals.SCRAPYS - BEGIN_AND_END - EVENT_SIGNALS.keys() - {IDLE}):
        with pytest.raises(UsageError, match=f"^trawl does not send the signal {name}: "):
            heard.connect(print, getattr(signals, name))


def test_a_middleware_is_made_with_the_same_crawler_as_the_spider() -> None:
    found: list[Any] = []

    class Asking:
        @classmethod
        def from_crawler(cls, crawler: Any) -> Self:
            found.append((crawler.spidercls, crawler.request_fingerprinter, crawler.stop))
            with pytest.raises(AttributeError, match="get_item_pipeline"):
                crawler.get_item_pipeline  # noqa: B018 - asking is what is tested
            return cls()

        def process_request(self, request: Request, spider: object) -> None:
            """Let it pass."""

    sim = simulate(Plain, WEB, {"DOWNLOADER_MIDDLEWARES": {Asking: 500}})
    assert sim.reason == "finished"
    assert [cls for cls, _, _ in found] == [Plain]
