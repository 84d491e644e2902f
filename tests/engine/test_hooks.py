"""Hooks between callbacks and the crawl."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from trawl.errors import CloseSpider, NotConfigured, SettingsError
from trawl.http import Request, Response
from trawl.testing import SimulatedWeb, Simulation, simulate

HOST = "http://a.example"
FREE = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0}
Outputs = AsyncGenerator[Any, None]


class Numbers(trawl.Spider):
    """Items of one page."""

    name = "numbers"
    start_urls = (f"{HOST}/",)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        for n in range(3):
            yield {"n": n}


def crawled(hooks: dict[Any, float | None], spider: type[trawl.Spider] = Numbers, **settings: object) -> Simulation:
    web = SimulatedWeb()
    web.add_host("a.example")
    return simulate(spider, web, {**FREE, "SPIDER_MIDDLEWARES": hooks, **settings}, errors="collect")


async def passing(response: Response | None, outputs: AsyncIterator[Any]) -> Outputs:
    async for output in outputs:
        yield output


async def only_even(response: Response | None, outputs: AsyncIterator[Any]) -> Outputs:
    async for output in outputs:
        if output["n"] % 2 == 0:
            yield output


async def doubled(response: Response | None, outputs: AsyncIterator[Any]) -> Outputs:
    async for output in outputs:
        yield {"n": output["n"] * 2}


async def with_url(response: Response | None, outputs: AsyncIterator[Any]) -> Outputs:
    assert response is not None
    async for output in outputs:
        yield {**output, "url": response.url}


def test_a_hook_sees_each_output_and_gives_what_goes_on() -> None:
    assert crawled({only_even: 1}).items == [{"n": 0}, {"n": 2}]
    assert crawled({"tests.engine.test_hooks.with_url": 1}).items[0] == {"n": 0, "url": f"{HOST}/"}


def test_a_high_number_is_next_to_the_spider() -> None:
    assert crawled({only_even: 900, doubled: 100}).items == [{"n": 0}, {"n": 4}]
    assert crawled({only_even: 100, doubled: 900}).items == [{"n": 0}, {"n": 2}, {"n": 4}]
    assert crawled({only_even: None}).items == [{"n": 0}, {"n": 1}, {"n": 2}]


async def answering(self: Numbers, response: Response, **kwargs: Any) -> Any:
    return [{"n": 7}, None]


async def giving(self: Numbers, response: Response, **kwargs: Any) -> Any:
    yield {"n": 7}
    await trio.sleep(1)
    yield {"n": 8}


def returning(self: Numbers, response: Response, **kwargs: Any) -> Any:
    return {"n": 7}


def nothing(self: Numbers, response: Response, **kwargs: Any) -> Any:
    return None


@pytest.mark.parametrize(("parse", "items"), [(answering, [7]), (giving, [7, 8]), (returning, [7]), (nothing, [])])
def test_callbacks_of_all_kinds_are_seen_alike(parse: Any, items: list[int]) -> None:
    async def through(response: Response | None, outputs: AsyncIterator[Any]) -> Outputs:
        async for output in outputs:
            yield output

    sim = crawled({through: 1}, type("Kind", (Numbers,), {"parse": parse}))
    assert [item["n"] for item in sim.items] == items


def test_what_a_callback_raises_can_be_caught_and_answered() -> None:
    class Breaks(Numbers):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"n": 1}
            raise KeyError("price")

    async def mends(response: Response | None, outputs: AsyncIterator[Any]) -> Outputs:
        try:
            async for output in outputs:
                yield output
        except KeyError as error:
            yield {"broken": str(error)}

    sim = crawled({mends: 1}, Breaks)
    assert sim.items == [{"n": 1}, {"broken": "'price'"}]
    assert "spider_exceptions" not in sim.stats
    assert crawled({doubled: 1}, Breaks).stats["spider_exceptions"] == 1


def test_the_outputs_of_an_errback_pass_too_with_a_response_only_where_there_is_one() -> None:
    seen: list[int | None] = []

    async def notes(response: Response | None, outputs: AsyncIterator[Any]) -> Outputs:
        seen.append(None if response is None else response.status)
        async for output in outputs:
            yield output

    class Fails(Numbers):
        async def start(self) -> Any:
            yield Request("http://b.example/", errback=self.failed)
            yield Request("http://nowhere.example/", errback=self.failed)

        def failed(self, error: Exception) -> Any:
            return {"error": type(error).__name__}

    web = SimulatedWeb()
    web.add_host("b.example", status=404)
    sim = simulate(Fails, web, {**FREE, "SPIDER_MIDDLEWARES": {notes: 1}, "RETRY_ENABLED": False}, errors="collect")
    assert sorted(item["error"] for item in sim.items) == ["HttpError", "NameNotResolved"]
    assert sorted(seen, key=str) == [404, None]


def test_a_callback_is_run_no_faster_than_its_outputs_are_taken_and_closed_when_they_are_not() -> None:
    taken: list[str] = []

    class Endless(Numbers):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            try:
                for n in range(1000):
                    taken.append(str(n))
                    yield {"n": n}
            finally:
                taken.append("closed")

    async def first_two(response: Response | None, outputs: AsyncIterator[Any]) -> Outputs:
        yield await anext(outputs)
        yield await anext(outputs)

    assert len(crawled({first_two: 1}, Endless).items) == 2
    assert taken == ["0", "1", "closed"]


async def test_a_cancel_scope_that_is_open_across_a_yield_does_not_reach_the_engine(autojump_clock: MockClock) -> None:
    class Hurries(Numbers):
        async def parse(self, response: Response, **kwargs: Any) -> Any:
            with trio.move_on_after(1):
                yield {"n": 2}
                yield Request(f"{HOST}/next", callback=self.after)
                await trio.sleep(5)
            yield {"n": 4}

        def after(self, response: Response) -> Any:
            return {"n": 6}

    async def through(response: Response | None, outputs: AsyncIterator[Any]) -> Outputs:
        async for output in outputs:
            yield output

    class Slow:
        async def process_item(self, item: Any) -> Any:
            await trio.sleep(3)
            return item

    web = SimulatedWeb()
    web.add_host("a.example")
    values = {**FREE, "SPIDER_MIDDLEWARES": {through: 1}, "ITEM_PIPELINES": {Slow: 1}}
    sim = await web.crawl(Hurries, settings=values)
    assert sim.reason == "finished"
    assert sorted(item["n"] for item in sim.items) == [2, 4, 6]


class Scrapys:
    """As Scrapy's template has it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def process_spider_input(self, response: Response, spider: trawl.Spider) -> None:
        self.seen.append(f"input {spider.name}")

    def process_spider_output(self, response: Response, result: Iterable[Any], spider: trawl.Spider) -> Iterator[Any]:
        for item in result:
            yield {**item, "by": "scrapys"}

    def process_spider_exception(self, response: Response, exception: Exception, spider: trawl.Spider) -> Any:
        return [{"caught": type(exception).__name__}] if isinstance(exception, KeyError) else None

    async def process_start(self, start: AsyncIterator[Any]) -> Outputs:
        async for request in start:
            yield request
        yield Request(f"{HOST}/more")


def test_scrapys_classes_run_with_generators_of_both_kinds() -> None:
    class Async:
        async def process_spider_output(self, response: Response, result: AsyncIterator[Any]) -> Outputs:
            async for item in result:
                yield {**item, "by": "async"}

    made = Scrapys()
    sim = crawled({made: 1})
    assert sorted(item["n"] for item in sim.items) == [0, 0, 1, 1, 2, 2]  # and those of the page that it added
    assert {item["by"] for item in sim.items} == {"scrapys"}
    assert made.seen == ["input numbers"] * 2
    assert {item["by"] for item in crawled({Async: 1}).items} == {"async"}


@pytest.mark.parametrize("answers", [True, False])
def test_what_a_callback_gave_before_it_failed_goes_through_scrapys_plain_generators(answers: bool) -> None:
    class Passing:
        def process_spider_output(self, response: Response, result: Iterable[Any]) -> Iterator[Any]:
            yield from result

        def process_spider_exception(self, response: Response, exception: Exception) -> Any:
            return [{"caught": str(exception)}] if answers else None

    class Fails(Numbers):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"n": 1}
            yield {"n": 2}
            raise ValueError("then this")

    class Closes(Numbers):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"n": 1}
            raise CloseSpider("enough")

    sim = crawled({Passing: 1}, Fails)
    assert sim.items == [{"n": 1}, {"n": 2}, *([{"caught": "then this"}] if answers else [])]
    assert sim.stats.get("spider_exceptions/ValueError", 0) == (0 if answers else 1)
    if not answers:
        sim = crawled({Passing: 1}, Closes)
        assert (sim.items, sim.reason) == ([{"n": 1}], "enough")


def test_scrapys_classes_answer_what_callbacks_raise() -> None:
    class Breaks(Numbers):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            if response.url.endswith("/more"):
                raise ValueError("other")
            raise KeyError("price")

    sim = crawled({Scrapys: 1}, Breaks)
    assert sim.items == [{"caught": "KeyError"}]
    assert sim.stats["spider_exceptions/ValueError"] == 1


def test_one_that_is_not_configured_is_left_out() -> None:
    class Off:
        @classmethod
        def from_crawler(cls, crawl: Any) -> Any:
            raise NotConfigured

    assert len(crawled({Off: 1}).items) == 3


def test_scrapys_own_are_told_to_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    assert len(crawled({"scrapy.spidermiddlewares.depth.DepthMiddleware": 900}).items) == 3
    assert "has no effect: set DEPTH_LIMIT" in caplog.text


@pytest.mark.parametrize("entry", ["no.such.hook", 5])
def test_an_entry_that_is_no_hook_is_refused(entry: object) -> None:
    with pytest.raises(SettingsError, match="SPIDER_MIDDLEWARES"):
        crawled({entry: 1})


def plain(response: Any, outputs: Any) -> Any:
    yield from outputs


async def silent(response: Any, outputs: Any) -> None:
    return None


async def alone(response: Any) -> Any:
    yield response


class Plain:
    def __call__(self, response: Any, outputs: Any) -> Any:
        yield from outputs


@pytest.mark.parametrize("entry", [plain, silent, alone, Plain])
def test_a_function_of_another_kind_than_a_hook_is_refused_before_a_page_is_lost(entry: Any) -> None:
    with pytest.raises(SettingsError, match=f"^SPIDER_MIDDLEWARES: {entry.__name__} is not a hook: an async generator"):
        crawled({entry: 1})


# What is neither a request nor an item.


class Mixed(Numbers):
    """Gives text between two items."""

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"n": 0}
        yield "text"
        yield ["a list"]
        yield {"n": 2}


class MixedLater(Numbers):
    """The same from an async generator."""

    async def parse(self, response: Response, **kwargs: Any) -> Any:
        for output in Mixed.parse(self, response):  # type: ignore[arg-type]
            yield output


class Iterables(Numbers):
    """Gives an iterable of another type than list."""

    def parse(self, response: Response, **kwargs: Any) -> Any:
        return {0: {"n": 0}, 1: {"n": 1}}.values()


@pytest.mark.parametrize("spider", [Mixed, MixedLater])
@pytest.mark.parametrize("hooks", [{}, {passing: 1}])
def test_an_output_that_is_none_is_dropped_alone(
    spider: type[trawl.Spider], hooks: dict[Any, float | None], caplog: pytest.LogCaptureFixture
) -> None:
    sim = crawled(hooks, spider)
    assert sim.items == [{"n": 0}, {"n": 2}]
    assert sim.stats["spider_exceptions/TypeError"] == 2
    assert "not str: 'text'" in caplog.text


def test_a_callback_may_return_any_iterable_of_outputs() -> None:
    assert crawled({}, Iterables).items == [{"n": 0}, {"n": 1}]
    assert crawled({doubled: 1}, Iterables).items == [{"n": 0}, {"n": 2}]


def test_an_output_of_start_that_is_none_is_dropped_alone() -> None:
    class Starts(Numbers):
        async def start(self) -> AsyncIterator[Any]:
            yield "text"
            yield {"n": 7}

    sim = crawled({}, Starts)
    assert (sim.items, sim.reason) == ([{"n": 7}], "start_error")
