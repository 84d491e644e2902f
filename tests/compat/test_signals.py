"""Scrapy's signals, sent where their events are told, to whatever connects to them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import trawl
from trawl import signals
from trawl.errors import CloseSpider, DropItem, NotConfigured, SettingsError, UsageError
from trawl.events import Events
from trawl.http import Fetch, Outcome, Request, Response
from trawl.observe import Stats
from trawl.spiders import Crawler
from trawl.spiders.crawler import BEGIN_AND_END, EVENT_SIGNALS, NOT_SENT, CrawlerSignals, Failure
from trawl.testing import SimulatedWeb, Simulation, simulate

HOST = "http://a.example"
FREE = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0}


class Shop(trawl.Spider):
    name = "shop"
    start_urls: tuple[str, ...] = (f"{HOST}/1",)
    told: list[tuple[Any, ...]] = []

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield {"n": 1}
        yield {"n": 2}
        yield {"n": 3}
        yield response.request
        raise ValueError("after all")


class Picky:
    def process_item(self, item: Any) -> Any:
        if item["n"] == 2:
            raise DropItem("no twos")
        if item["n"] == 3:
            raise KeyError("price")
        return item


class Log:
    """An extension that hears all there is."""

    @classmethod
    def from_crawler(cls, crawler: Any) -> Log:
        made = cls()
        made.told = []
        crawler.spider.told = made.told
        for name in sorted((BEGIN_AND_END | EVENT_SIGNALS.keys()) - {"response_downloaded"}):
            crawler.signals.connect(getattr(made, name), signal=getattr(signals, name))
        return made

    told: list[tuple[Any, ...]]

    def engine_started(self) -> None:
        self.told.append(("engine_started",))

    def spider_opened(self, spider: Any) -> None:
        self.told.append(("spider_opened", spider.name))

    def spider_closed(self, spider: Any, reason: str) -> None:
        self.told.append(("spider_closed", reason))

    def engine_stopped(self, **given: Any) -> None:
        self.told.append(("engine_stopped", given["signal"]))

    def request_scheduled(self, request: Request, spider: Any) -> None:
        self.told.append(("request_scheduled", request.url))

    def request_dropped(self, request: Request) -> None:
        self.told.append(("request_dropped", request.url))

    def request_reached_downloader(self, request: Request) -> None:
        self.told.append(("request_reached_downloader", request.url))

    def response_received(self, response: Response, request: Request, spider: Any) -> None:
        self.told.append(("response_received", response.status, request.url, spider.name))

    def item_scraped(self, item: Any, response: Response, spider: Any) -> None:
        self.told.append(("item_scraped", item["n"], response.url))

    def item_dropped(self, item: Any, exception: Exception, spider: Any) -> None:
        self.told.append(("item_dropped", item["n"], str(exception), isinstance(exception, DropItem)))

    def item_error(self, item: Any, failure: Failure) -> None:
        self.told.append(("item_error", item["n"], failure.type.__name__))

    def spider_error(self, failure: Failure, response: Response, spider: Any) -> None:
        self.told.append(("spider_error", failure.getErrorMessage(), response.url, failure.check(KeyError, ValueError)))


def crawled(extensions: dict[Any, float | None], spider: type[trawl.Spider] = Shop, **settings: Any) -> Simulation:
    web = SimulatedWeb()
    web.add_host("a.example")
    return simulate(spider, web, {**FREE, "EXTENSIONS": extensions, **settings}, errors="collect")


def test_an_extension_hears_each_signal_where_it_happens() -> None:
    kept: list[Any] = []

    class Kept(Shop):
        def closed(self, reason: str) -> None:
            kept.append(self.told)

    crawled({Log: 500}, Kept, ITEM_PIPELINES={Picky: 1})
    assert kept == [
        [
            ("engine_started",),
            ("spider_opened", "shop"),
            ("request_scheduled", f"{HOST}/1"),
            ("request_reached_downloader", f"{HOST}/1"),
            ("response_received", 200, f"{HOST}/1", "shop"),
            ("item_scraped", 1, f"{HOST}/1"),
            ("item_dropped", 2, "no twos", True),
            ("item_error", 3, "KeyError"),
            ("spider_error", "after all", f"{HOST}/1", ValueError),
            ("request_dropped", f"{HOST}/1"),
            ("spider_closed", "finished"),
            ("engine_stopped", "engine_stopped"),
        ]
    ]


def test_a_receiver_may_end_the_crawl_and_one_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Ending(Shop):
        @classmethod
        def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Any:
            spider = super().from_crawler(crawler, *args, **kwargs)
            crawler.signals.connect(spider.enough, signal=signals.item_scraped)
            crawler.signals.connect(spider.failing, signal=signals.item_scraped)
            crawler.signals.connect(spider.never, signal=signals.item_scraped)
            crawler.signals.disconnect(spider.never, signal=signals.item_scraped)
            crawler.signals.connect(spider.never, signal=signals.spider_idle)
            crawler.signals.connect(spider.never, signal=signals.spider_opened)
            crawler.signals.disconnect_all(signals.spider_opened)
            crawler.signals.disconnect_all(signals.spider_idle)
            return spider

        def enough(self, item: Any) -> None:
            self.crawler.engine.close_spider(self, "enough")

        def failing(self) -> None:
            raise RuntimeError("not this one")

        def never(self) -> None:
            raise AssertionError

    sim = crawled({}, Ending)
    assert sim.reason == "enough"
    assert "a receiver of item_scraped failed" in caplog.text
    assert "never" not in caplog.text
    assert "AssertionError" not in caplog.text


def test_one_that_is_connected_later_hears_from_then_on() -> None:
    class Later(Shop):
        heard: list[int] = []

        def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
            yield {"n": 1}
            self.crawler.signals.connect(self.hear, signals.item_scraped)
            yield {"n": 2}
            raise CloseSpider("done")

        def hear(self, item: Any) -> None:
            self.heard.append(item["n"])

    crawled({}, Later)
    assert Later.heard == [2]


def test_an_async_receiver_of_what_nobody_waits_for_is_refused() -> None:
    async def later(item: Any) -> None:
        """Never called."""

    with pytest.raises(UsageError, match=r"item_scraped can.t be async.*crawl\.events\(ItemScraped\)"):
        Crawler({}, Stats(), Shop).signals.connect(later, signals.item_scraped)


def test_scrapys_own_extensions_are_passed_over_and_one_may_be_left_out(caplog: pytest.LogCaptureFixture) -> None:
    class Off:
        @classmethod
        def from_crawler(cls, crawler: Any) -> Off:
            raise NotConfigured("not today")

    caplog.set_level("INFO")
    names = {"scrapy.extensions.telnet.TelnetConsole": None, "scrapy.extensions.closespider.CloseSpider": 1}
    crawled({**names, Off: 2, "no.such.Thing": None})
    assert "scrapy.extensions.closespider.CloseSpider has no effect: use CLOSESPIDER_ITEMCOUNT" in caplog.text
    assert "Telnet" not in caplog.text
    assert "Off is left out: not today" in caplog.text
    with pytest.raises(SettingsError, match=r"EXTENSIONS names 'no\.such\.Thing'"):
        crawled({"no.such.Thing": 1})


def test_a_failure_is_what_twisteds_users_know() -> None:
    failure = Failure(KeyError("price"))
    assert (failure.type, failure.value.args) == (KeyError, ("price",))
    assert failure.check(ValueError) is None
    assert "KeyError: 'price'" in failure.getTraceback()


def test_a_redirect_is_scheduled_twice_and_received_once() -> None:
    seen: list[str] = []

    class Moving(Shop):
        start_urls = (f"{HOST}/old",)

        @classmethod
        def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Any:
            for name in ("request_scheduled", "response_received", "response_downloaded"):
                crawler.signals.connect(getattr(cls, name), signal=getattr(signals, name))
            return super().from_crawler(crawler, *args, **kwargs)

        @staticmethod
        def request_scheduled(request: Request) -> None:
            seen.append(f"scheduled {request.url[-3:]}")

        @staticmethod
        def response_received(response: Response) -> None:
            seen.append(f"received {response.url[-3:]}")

        @staticmethod
        def response_downloaded(response: Response) -> None:
            seen.append(f"downloaded {response.url[-3:]}")

        def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
            yield from ()

    web = SimulatedWeb()
    web.add_page(f"{HOST}/old", status=302, headers={"Location": "/new"})
    web.add_page(f"{HOST}/new", body="x")
    simulate(Moving, web, FREE)
    assert seen == ["scheduled old", "downloaded old", "scheduled new", "downloaded new", "received new"]


def cached_at_home(fetch: Fetch) -> Fetch:
    """A middleware that responds to one page itself."""

    async def send(request: Request) -> Outcome:
        if request.url.endswith("/mine"):
            return Outcome(request, Response(request.url, body=b"mine"))
        return await fetch(request)

    return send


def test_only_a_response_to_a_request_that_was_sent_is_downloaded() -> None:
    downloaded: list[str] = []
    received: list[str] = []

    class Own(Shop):
        start_urls = (f"{HOST}/mine", f"{HOST}/sent")

        @classmethod
        def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Any:
            crawler.signals.connect(cls.response_downloaded, signal=signals.response_downloaded)
            crawler.signals.connect(cls.response_received, signal=signals.response_received)
            return super().from_crawler(crawler, *args, **kwargs)

        @staticmethod
        def response_downloaded(response: Response) -> None:
            downloaded.append(response.url[-4:])

        @staticmethod
        def response_received(response: Response) -> None:
            received.append(response.url[-4:])

        def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
            yield from ()

    web = SimulatedWeb()
    web.add_page(f"{HOST}/sent", body="x")
    simulate(Own, web, FREE | {"DOWNLOADER_MIDDLEWARES": {cached_at_home: 560}})
    assert downloaded == ["sent"]
    assert sorted(received) == ["mine", "sent"]


class FakeDispatcher(ModuleType):
    """As much of ``pydispatch.dispatcher`` as a crawl uses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__("pydispatch.dispatcher")
        self.connected: list[tuple[Any, Any]] = []
        monkeypatch.setitem(sys.modules, self.__name__, self)

    def connect(self, receiver: Any, signal: Any) -> None:
        self.connected.append((receiver, signal))

    def getAllReceivers(self, sender: Any, signal: Any) -> list[Any]:
        return [receiver for receiver, wanted in self.connected if wanted == signal]

    def liveReceivers(self, receivers: Any) -> list[Any]:
        return list(receivers)


def test_receivers_of_pydispatch_are_called_too(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = FakeDispatcher(monkeypatch)
    told: list[Any] = []

    class Old(Shop):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            dispatcher.connect(self.over, signals.spider_closed)
            dispatcher.connect(lambda item: told.append(item["n"]), signals.item_scraped)
            dispatcher.connect(self.idle, signals.spider_idle)

        def over(self, spider: Any, reason: str, sender: Any) -> None:
            told.append((spider.name, reason, type(sender)))

        def idle(self) -> None:
            told.append("idle")

    web = SimulatedWeb()
    web.add_host("a.example")
    simulate(Old, web, FREE, errors="collect")
    assert told == [1, 2, 3, "idle", ("shop", "finished", Crawler)]


def test_pydispatch_is_refused_a_signal_that_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDispatcher(monkeypatch).connect(print, signals.headers_received)
    web = SimulatedWeb()
    web.add_host("a.example")
    with pytest.raises(UsageError, match="trawl does not send the signal headers_received: DOWNLOAD_MAXSIZE"):
        simulate(Shop, web, FREE)


def test_pydispatch_is_refused_the_same_signal_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hear(item: Any) -> None: ...

    dispatcher = FakeDispatcher(monkeypatch)
    for signal in (*EVENT_SIGNALS, *sorted(NOT_SENT, reverse=True)):
        dispatcher.connect(hear, signal)
    with pytest.raises(UsageError, match="trawl does not send the signal bytes_received"):
        CrawlerSignals().bind(Events(), None)


def test_pydispatch_is_refused_an_async_receiver_of_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hear(item: Any) -> None: ...

    FakeDispatcher(monkeypatch).connect(hear, signals.item_scraped)
    web = SimulatedWeb()
    web.add_host("a.example")
    with pytest.raises(UsageError, match="a receiver of item_scraped can't be async"):
        simulate(Shop, web, FREE)


def test_an_async_receiver_that_pydispatch_connects_later_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher = FakeDispatcher(monkeypatch)

    class Late(Shop):
        def parse(self, response: Any, **kwargs: Any) -> Any:
            dispatcher.connect(self.hear, signals.item_scraped)
            yield {"n": 1}

        async def hear(self, item: Any) -> None: ...

    web = SimulatedWeb()
    web.add_host("a.example")
    simulate(Late, web, FREE, errors="collect")
    assert "a receiver of item_scraped can't be async" in caplog.text
