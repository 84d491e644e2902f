"""Direct fetches: a throttled response in the middle of a callback."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
import trawl.throttling
from trawl.exceptions import DownloadError, IgnoreRequest, NameNotResolved, UnsupportedScheme
from trawl.http import Request, Response
from trawl.testing import SimulatedResponse, SimulatedWeb

FREE = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "ROBOTSTXT_OBEY": False}


class Asks(trawl.Spider):
    name = "asks"
    start_urls = tuple(f"http://a.example/{i}" for i in range(4))

    async def parse(self, response: Response, **kwargs: Any) -> Any:
        detail = await self.fetch(Request(response.url + "/detail"))
        return {"url": response.url, "detail": detail.url}


def web(latency: float = 0.1) -> SimulatedWeb:
    made = SimulatedWeb()
    made.add_host("a.example", latency=latency)
    return made


async def test_a_callback_may_fetch_at_concurrency_one(autojump_clock: MockClock) -> None:
    run = await web().crawl(Asks, settings={**FREE, "CONCURRENT_REQUESTS": 1, "CONCURRENT_CALLBACKS": 1})
    assert run.reason == "finished"
    assert sorted(item["detail"] for item in run.items) == [f"http://a.example/{i}/detail" for i in range(4)]


async def test_a_url_in_place_of_a_request_is_told(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    class Text(Asks):
        start_urls = ("http://a.example/",)

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            await self.fetch("http://a.example/")  # type: ignore[arg-type]

    run = await web().crawl(Text, settings=FREE, errors="collect")
    assert run.stats["spider_exceptions/TypeError"] == 1
    assert "fetch() takes a Request, not str: 'http://a.example/'" in caplog.text


async def test_a_flood_of_direct_fetches_keeps_to_the_limit(autojump_clock: MockClock) -> None:  # P2 F09
    class Floods(trawl.Spider):
        name = "floods"
        start_urls = ("http://a.example/",)
        done = 0

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            async with trio.open_nursery() as nursery:
                for i in range(8):
                    nursery.start_soon(self.one, i)
            return {"done": self.done}

        async def one(self, i: int) -> None:
            await self.fetch(Request(f"http://a.example/{i}"))
            self.done += 1

    run = await web(1.0).crawl(Floods, settings={**FREE, "CONCURRENT_REQUESTS_PER_DOMAIN": 2})
    assert run.items == [{"done": 8}]
    on_wire = [sum(other.time <= send.time < other.finished for other in run.sends) for send in run.sends]
    assert max(on_wire) == 2
    assert run.elapsed == pytest.approx(1 + 8 / 2, abs=0.1)


async def test_running_callbacks_are_bounded_and_direct_fetches_are_not_stopped_by_it(
    autojump_clock: MockClock,
) -> None:
    running, most = 0, 0

    class Slow(Asks):
        start_urls = tuple(f"http://a.example/{i}" for i in range(12))

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await trio.sleep(5)
            await self.fetch(Request(response.url + "/detail"))
            running -= 1

    run = await web(0.0).crawl(Slow, settings={**FREE, "CONCURRENT_CALLBACKS": 3, "CONCURRENT_REQUESTS_PER_DOMAIN": 1})
    assert run.stats["response_count"] == 24
    assert most <= 3 + 1  # what was in flight when the bound was reached


async def test_its_redirects_are_followed_and_its_errors_raised(autojump_clock: MockClock) -> None:
    seen: list[object] = []

    class Direct(trawl.Spider):
        name = "direct"
        start_urls = ("http://a.example/",)

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            seen.append((await self.fetch(Request("http://a.example/moved"))).url)
            seen.append((await self.fetch(Request("http://a.example/missing"))).status)
            for url in ("http://nowhere.example/", "mailto:a@a.example"):
                try:
                    await self.fetch(Request(url))
                except trawl.exceptions.DownloadError as error:
                    seen.append(type(error))

    def answer(request: Request) -> SimulatedResponse:
        if request.url.endswith("/moved"):
            return SimulatedResponse(status=301, headers={"Location": "/there"})
        return SimulatedResponse(status=404 if request.url.endswith("/missing") else 200)

    made = SimulatedWeb()
    made.add_host("a.example", handler=answer)
    run = await made.crawl(Direct, settings=FREE, errors="collect")
    assert seen == ["http://a.example/there", 404, NameNotResolved, UnsupportedScheme]
    assert run.reason == "finished"
    assert run.stats["redirect_count"] == 1


async def test_a_cancelled_fetch_gives_its_turn_back(autojump_clock: MockClock) -> None:  # R15
    class Cancels(trawl.Spider):
        name = "cancels"
        start_urls = ("http://a.example/", "http://a.example/next")

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            if response.url.endswith("/"):
                with trio.move_on_after(1):  # while it waits for its turn
                    await self.fetch(Request("http://a.example/a"))
                with trio.move_on_after(4):  # while it is on the wire
                    await self.fetch(Request("http://a.example/b"))
            return {"url": response.url}

    made = SimulatedWeb()
    made.add_host("a.example", latency=2.0)
    run = await made.crawl(Cancels, settings={**FREE, "CONCURRENT_REQUESTS_PER_DOMAIN": 1, "DOWNLOAD_DELAY": 4.0})
    assert run.reason == "finished"
    assert len(run.items) == 2
    assert not [send for send in run.sends if send.url.endswith("/a")]


async def test_what_robots_forbids_is_refused(autojump_clock: MockClock) -> None:
    class Forbidden(trawl.Spider):
        name = "forbidden"
        start_urls = ("http://a.example/",)

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            with pytest.raises(IgnoreRequest, match="robots forbidden"):
                await self.fetch(Request("http://a.example/private"))
            return {"url": response.url}

    made = SimulatedWeb()
    made.add_host("a.example", robots="User-agent: *\nDisallow: /private")
    run = await made.crawl(Forbidden)
    assert len(run.items) == 1


async def test_so_many_waiting_at_once_are_warned_about_once(  # F10
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Floods(trawl.Spider):
        name = "floods"
        start_urls = ("http://a.example/",)

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            async with trio.open_nursery() as nursery:
                for i in range(20):
                    nursery.start_soon(self.fetch, Request(f"http://a.example/{i}"))

    with caplog.at_level(logging.WARNING):
        await web().crawl(Floods, settings={**FREE, "DELAYED_REQUESTS_WARN_THRESHOLD": 10})
    warnings = [record for record in caplog.records if "DELAYED_REQUESTS_WARN_THRESHOLD" in record.getMessage()]
    assert len(warnings) == 1


async def test_more_direct_fetches_than_may_wait_are_let_in_one_by_one(autojump_clock: MockClock) -> None:
    most_waiting = 0

    class Floods(trawl.Spider):
        name = "floods"
        start_urls = ("http://a.example/",)
        done: list[str]

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            self.done = []
            async with trio.open_nursery() as nursery:
                for i in range(20):
                    nursery.start_soon(self.one, i)
                for _ in range(30):
                    await trio.sleep(0.05)
                    self.look()
            return {"done": self.done}

        async def one(self, i: int) -> None:
            await self.fetch(Request(f"http://a.example/{i}"))
            self.done.append(str(i))

        def look(self) -> None:
            nonlocal most_waiting
            waiting = self.crawl.waiting()
            most_waiting = max(most_waiting, self.crawl.in_flight + sum(group.count for group in waiting))

    run = await web().crawl(Floods, settings={**FREE, "DIRECT_FETCHES_LIMIT": 3, "CONCURRENT_REQUESTS_PER_DOMAIN": 2})
    assert sorted(run.items[0]["done"], key=int) == [str(i) for i in range(20)]  # none was refused
    assert most_waiting == 3


async def test_a_fetch_on_the_way_of_another_is_let_in_at_once(autojump_clock: MockClock) -> None:
    class Tokens(trawl.throttling.ThrottlingManager):
        """Asks for a token before it names the scopes of a page, and after each answer of one."""

        crawl: Any

        @classmethod
        def from_crawler(cls, crawl: Any) -> Any:
            manager = cls()
            manager.crawl = crawl
            return manager

        async def get_scopes(self, request: Request) -> Any:
            if request.url.endswith("/detail"):
                await self.crawl.fetch(Request("http://tokens.example/before"))
            return await super().get_scopes(request)

        async def get_response_backoff(self, response: Response) -> Any:
            if response.url.endswith("/detail"):
                await self.crawl.fetch(Request("http://tokens.example/after"))
            return await super().get_response_backoff(response)

    made = web()
    made.add_host("tokens.example", latency=0.1)
    settings = {**FREE, "DIRECT_FETCHES_LIMIT": 1, "THROTTLING_MANAGER": Tokens}
    with trio.fail_after(60):
        run = await made.crawl(Asks, settings=settings)
    assert len(run.items) == 4
    assert len([send for send in run.sends if send.host == "tokens.example"]) == 8


async def test_start_may_fetch_too(autojump_clock: MockClock) -> None:
    class Starts(trawl.Spider):
        name = "starts"

        async def start(self) -> AsyncGenerator[Any, None]:
            response = await self.fetch(Request("http://a.example/list"))
            yield {"url": response.url}

    run = await web().crawl(Starts, settings=FREE)
    assert run.items == [{"url": "http://a.example/list"}]


async def test_a_pipeline_that_fetches_before_the_crawl_has_begun_is_told_so(autojump_clock: MockClock) -> None:
    class Early:
        async def open_spider(self, spider: trawl.Spider) -> None:
            await spider.fetch(Request("http://a.example/token"))

    with pytest.raises(IgnoreRequest, match="has not begun"):
        await web().crawl(Asks, settings={**FREE, "ITEM_PIPELINES": {Early: 1}})


async def test_a_direct_fetch_that_is_redirected_while_the_crawl_ends_does_not_hold_it_up(
    autojump_clock: MockClock,
) -> None:
    class Redirected(trawl.Spider):
        name = "redirected"
        start_urls = ("http://a.example/",)

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.fetch, Request("http://a.example/moved"))
                await trio.sleep(1)
                self.crawl.shutdown()

    def answer(request: Request) -> SimulatedResponse:
        moved = request.url.endswith("/moved")
        return SimulatedResponse(status=301 if moved else 200, headers={"Location": "/there"}, latency=5)

    made = SimulatedWeb()
    made.add_host("a.example", handler=answer)
    run = await made.crawl(Redirected, settings=FREE)
    assert run.reason == "shutdown"
    assert run.elapsed == pytest.approx(10)
    assert len(run.sends) == 2


async def test_a_pipeline_that_fetches_does_not_hold_up_a_shutdown(autojump_clock: MockClock) -> None:
    class Fetches:
        async def process_item(self, item: Any, spider: trawl.Spider) -> Any:
            await spider.fetch(Request("http://a.example/detail"))

    class Gives(trawl.Spider):
        name = "gives"
        start_urls = ("http://a.example/", "http://a.example/next")

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url}

        async def stop(self) -> None:
            await trio.sleep(10)
            self.crawl.shutdown()

        async def start(self) -> AsyncGenerator[Any, None]:
            yield Request("http://a.example/")
            await self.stop()

    run = await web().crawl(
        Gives, settings={**FREE, "DOWNLOAD_DELAY": 60.0, "ITEM_PIPELINES": {Fetches: 1}}, errors="collect"
    )
    assert run.reason == "shutdown"
    assert run.elapsed == pytest.approx(10, abs=0.1)


async def test_a_manager_that_fails_on_a_redirect_harms_only_the_fetch(autojump_clock: MockClock) -> None:  # C9
    class Fails(trawl.throttling.ThrottlingManager):
        def get_scopes(self, request: Request) -> Any:
            if request.url.endswith("/there"):
                raise LookupError("no scopes")
            return super().get_scopes(request)

    class Redirected(trawl.Spider):
        name = "redirected"
        start_urls = ("http://a.example/",)

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            with pytest.raises(DownloadError, match="no throttling scopes"):
                await self.fetch(Request("http://a.example/moved"))
            return {"url": response.url}

    def answer(request: Request) -> SimulatedResponse:
        moved = request.url.endswith("/moved")
        return SimulatedResponse(status=301 if moved else 200, headers={"Location": "/there"})

    made = SimulatedWeb()
    made.add_host("a.example", handler=answer)
    run = await made.crawl(Redirected, settings={**FREE, "THROTTLING_MANAGER": Fails}, errors="collect")
    assert run.reason == "finished"
    assert len(run.items) == 1
    assert run.stats["scope_errors"] == 1


async def test_a_callback_that_fails_when_it_is_cancelled_harms_no_other(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Fails(trawl.Spider):
        name = "fails"
        start_urls = ("http://a.example/",)

        async def parse(self, response: Response, **kwargs: Any) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.does_not_clean_up_well)
                nursery.start_soon(self.fetch, Request("http://a.example/detail"))
                await trio.sleep(1)
                self.crawl.shutdown()

        async def does_not_clean_up_well(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("not tidy")

    run = await web().crawl(Fails, settings={**FREE, "DOWNLOAD_DELAY": 10}, errors="collect")
    assert run.reason == "shutdown"
    assert run.stats["spider_exceptions/ValueError"] == 1
    assert "not tidy" in caplog.text
