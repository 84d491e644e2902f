"""Spider middleware as Scrapy has it: what an errback hears of it, and what it hears of errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import trawl
from trawl.errors import ConnectFailed, HttpError, IgnoreRequest, SettingsError
from trawl.http import Request, Response
from trawl.testing import SimulatedWeb, Simulation, simulate

HOST = "http://a.example"
FREE = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "RETRY_ENABLED": False}


class One(trawl.Spider):
    """One page; its errback tells what it got."""

    name = "one"
    path = "/"
    has_errback = True

    async def start(self) -> AsyncIterator[Request]:
        yield Request(f"{HOST}{self.path}", errback=self.missed if self.has_errback else None)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"page": response.url}

    def missed(self, failure: Any) -> Any:
        yield {"missed": failure.type.__name__, "says": failure.getErrorMessage(), "url": failure.request.url}


class Marking:
    """Marks each output."""

    seen: Any

    def __init__(self) -> None:
        self.seen = []

    def process_spider_input(self, response: Response) -> None:
        self.seen.append(response.status)

    def process_spider_output(self, response: Response, result: Any) -> Any:
        for item in result:
            yield {**item, "marked": True}


class Refusing(Marking):
    """Refuses each response."""

    def process_spider_input(self, response: Response) -> None:
        raise KeyError("no such field")


def crawled(*middleware: object, **attributes: object) -> Simulation:
    web = SimulatedWeb()
    web.add_page(f"{HOST}/", body="<p>")
    web.add_page(f"{HOST}/404", status=404)
    web.add_page(f"{HOST}/down", error=ConnectFailed("refused"))
    hooks = {each: number for number, each in enumerate(middleware)}
    return simulate(type("Own", (One,), attributes), web, {**FREE, "SPIDER_MIDDLEWARES": hooks}, errors="collect")


def test_what_an_errback_gives_without_a_response_passes_no_middleware() -> None:
    sim = crawled(Marking(), path="/down")
    assert [item.get("marked") for item in sim.items] == [None]
    assert sim.items[0]["missed"] == "ConnectFailed"


def test_an_error_of_process_spider_input_reaches_the_errback() -> None:
    inner = Marking()
    sim = crawled(Refusing(), inner)
    assert sim.items == [{"missed": "KeyError", "says": "'no such field'", "url": f"{HOST}/", "marked": True}]
    assert inner.seen == []
    assert "spider_exceptions" not in sim.stats


def test_without_an_errback_it_is_offered_to_process_spider_exception() -> None:
    class Answering:
        def process_spider_exception(self, response: Response, exception: Exception) -> Any:
            return [{"instead": type(exception).__name__}]

    assert crawled(Refusing(), Answering(), has_errback=False).items == [{"instead": "KeyError", "marked": True}]
    sim = crawled(Refusing(), has_errback=False)
    assert (sim.items, sim.stats["spider_exceptions/KeyError"]) == ([], 1)


def test_an_errback_may_check_and_trap_it() -> None:
    def missed(self: Any, failure: Any) -> Any:
        assert failure.check(ValueError) is None
        assert failure.trap(IgnoreRequest, KeyError) is KeyError
        yield {"value": failure.value.args[0], "last": failure.getTraceback().splitlines()[-1]}
        failure.trap(ValueError)

    sim = crawled(Refusing(), missed=missed)
    assert sim.items == [{"value": "no such field", "last": "KeyError: 'no such field'", "marked": True}]
    assert sim.stats["spider_exceptions/KeyError"] == 1


def test_a_status_that_nobody_takes_is_offered_to_process_spider_exception() -> None:
    class Answering(Marking):
        def process_spider_exception(self, response: Response, exception: Exception) -> Any:
            assert isinstance(exception, HttpError)
            return [{"status": response.status}]

    outer, answering = Marking(), Answering()
    sim = crawled(outer, answering, path="/404", has_errback=False)
    assert sim.items == [{"status": 404, "marked": True}]
    assert outer.seen == answering.seen == []
    sim = crawled(Marking(), path="/404", has_errback=False)
    assert (sim.items, sim.stats["httperror_ignored_count"]) == ([], 1)


def test_a_status_that_the_middleware_leaves_is_ignored_as_ever() -> None:
    class Leaving:
        def process_spider_exception(self, response: Response, exception: Exception) -> None:
            return None

    sim = crawled(Leaving(), path="/404", has_errback=False)
    assert sim.stats["httperror_ignored_count"] == 1
    assert "spider_exceptions" not in sim.stats


def test_the_outputs_for_an_errbacks_response_pass_the_middleware() -> None:
    sim = crawled(marking := Marking(), path="/404")
    assert [item["marked"] for item in sim.items] == [True]
    assert marking.seen == []


@pytest.mark.parametrize("kind", ["list", "generator", "async generator"])
def test_what_process_spider_exception_returns_goes_on_to_the_next(kind: str) -> None:
    def plain() -> Any:
        yield {"caught": 1}

    async def later() -> Any:
        yield {"caught": 1}

    class Catching(Marking):
        def process_spider_exception(self, response: Response, exception: Exception) -> Any:
            return {"list": [{"caught": 1}], "generator": plain(), "async generator": later()}[kind]

    def parse(self: Any, response: Response) -> Any:
        yield {"n": 1}
        raise ValueError("then this")

    assert crawled(Catching(), parse=parse).items == [{"n": 1, "marked": True}, {"caught": 1}]
    both = crawled(Marking(), Catching(), parse=parse)
    assert both.items == [{"n": 1, "marked": True}, {"caught": 1, "marked": True}]


def test_an_error_of_process_spider_output_is_not_offered_to_its_own_class() -> None:
    class Fails:
        def process_spider_output(self, response: Response, result: Any) -> Any:
            yield from result
            raise ValueError("mine")

        def process_spider_exception(self, response: Response, exception: Exception) -> Any:
            return [{"own": True}]

    class Outer:
        def process_spider_exception(self, response: Response, exception: Exception) -> Any:
            return [{"outer": str(exception)}]

    assert crawled(Outer(), Fails()).items == [{"page": f"{HOST}/"}, {"outer": "mine"}]


def test_where_one_answers_the_outputs_have_ended_for_those_nearer_to_the_spider() -> None:
    class Counting:
        async def process_spider_output(self, response: Response, result: Any) -> Any:
            count = 0
            async for output in result:
                count += 1
                yield output
            yield {"count": count}

    class Catching:
        def process_spider_exception(self, response: Response, exception: Exception) -> Any:
            return [{"caught": str(exception)}]

    def parse(self: Any, response: Response) -> Any:
        yield {"n": 1}
        raise ValueError("then this")

    assert crawled(Catching(), Counting(), parse=parse).items == [{"n": 1}, {"count": 1}, {"caught": "then this"}]
    assert crawled(Counting(), parse=parse).items == [{"n": 1}]


def test_an_error_that_all_decline_is_offered_to_each_once() -> None:
    asked: list[str] = []

    class Declining(Marking):
        def process_spider_exception(self, response: Response, exception: Exception) -> None:
            asked.append(str(exception))

    def parse(self: Any, response: Response) -> Any:
        raise ValueError("this")

    sim = crawled(Declining(), Declining(), parse=parse)
    assert (asked, sim.stats["spider_exceptions/ValueError"]) == (["this", "this"], 1)


# close(), which Scrapy has beside closed().


def ended(kind: type[trawl.Spider], **settings: object) -> None:
    web = SimulatedWeb()
    web.add_host("a.example")
    simulate(kind, web, {**FREE, **settings}, errors="collect")


def test_close_of_a_moved_spider_is_called_in_each_of_its_forms() -> None:
    heard: list[Any] = []

    class Method(trawl.Spider):
        name = "method"

        def close(self, reason: str) -> None:  # type: ignore[override]
            heard.append(("method", reason))

    class Static(trawl.Spider):
        name = "static"

        @staticmethod
        def close(spider: Any, reason: str) -> Any:
            heard.append((spider.name, reason))
            return trawl.Spider.close(spider, reason)

        async def closed(self, reason: str) -> None:
            heard.append(("closed", reason))

    ended(Method, SCRAPY_COMPAT=True)
    ended(Static, SCRAPY_COMPAT=True)
    assert heard == [("method", "finished"), ("static", "finished"), ("closed", "finished")]


def test_close_of_another_spider_is_its_own_affair() -> None:
    heard: list[str] = []

    class Own(trawl.Spider):
        name = "own"

        def close(self) -> None:  # type: ignore[override]
            heard.append("close")

        def closed(self, reason: str) -> None:
            heard.append("closed")

    ended(Own)
    assert heard == ["closed"]


@pytest.mark.parametrize("root", ["scrapy", "trawl"])
def test_to_take_out_what_marks_start_requests_is_refused(root: str) -> None:
    entries = {f"{root}.spidermiddlewares.start.StartSpiderMiddleware": None}
    with pytest.raises(SettingsError, match="StartSpiderMiddleware can't be removed: start requests always have"):
        simulate(One, SimulatedWeb(), settings={"SPIDER_MIDDLEWARES": entries})
