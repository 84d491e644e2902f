"""What becomes of requests: callbacks, errbacks, statuses, redirects, failures that stay with their request."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.watched_crawl import crawl_with
from trawl.exceptions import ConnectFailed, HttpError, IgnoreRequest, NameNotResolved
from trawl.http import Fetch, Outcome, Request, Response
from trawl.settings import Layer, load
from trawl.testing import SimulatedResponse, SimulatedWeb

FREE = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}


def pages(n: int) -> SimulatedWeb:
    """A start page that links to ``n`` pages, each of which links back."""
    web = SimulatedWeb()
    web.add_page("http://a.example/", links=[f"/{i}" for i in range(n)])
    for i in range(n):
        web.add_page(f"http://a.example/{i}", links=["/"])
    return web


class Follows(trawl.Spider):
    name = "follows"
    start_urls = ("http://a.example/",)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url, "depth": response.meta["depth"]}
        yield from response.follow_all(css="a")


async def test_a_response_has_no_fragment_and_neither_have_links_to_its_own_page(autojump_clock: MockClock) -> None:
    class Fragments(trawl.Spider):
        name = "fragments"
        start_urls = ("http://a.example/#start",)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            assert response.request is not None
            links = [response.follow(link).url for link in ("", "?page=2", "#x")]
            yield {"url": response.url, "request": response.request.url, "links": links}

    items = (await pages(1).crawl(Fragments, settings=FREE)).items
    links = ["http://a.example/", "http://a.example/?page=2", "http://a.example/#x"]
    assert items == [{"url": "http://a.example/", "request": "http://a.example/#start", "links": links}]


async def test_depth_and_latency_are_in_the_meta_of_a_copy_that_a_middleware_sends(autojump_clock: MockClock) -> None:
    def signed(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            copy = request.replace()
            copy.headers["Authorization"] = "token"
            return await fetch(copy)

        return send

    class Latencies(Follows):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            assert response.meta["download_latency"] == response.latency
            yield from super().parse(response)

    run = await pages(2).crawl(Latencies, settings={**FREE, "DOWNLOADER_MIDDLEWARES": {signed: 560}})
    assert sorted([item["depth"] for item in run.items]) == [0, 1, 1]


async def test_a_page_that_a_middleware_drops_is_named_and_counted(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def some(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            if request.url.endswith("/1"):
                raise IgnoreRequest("not wanted")
            return await fetch(request)

        return send

    run = await pages(3).crawl(Follows, settings={**FREE, "DOWNLOADER_MIDDLEWARES": {some: 543}})
    assert "<GET http://a.example/1> is dropped: not wanted" in caplog.messages
    assert run.stats["ignored_count"] == 1
    assert run.stats["item_scraped_count"] == 3


async def test_c6_every_page_is_fetched_once_and_the_crawl_ends_by_itself(autojump_clock: MockClock) -> None:
    run = await pages(20).crawl(Follows, settings=FREE)
    assert run.reason == "finished"
    urls = [item["url"] for item in run.items]
    assert len(urls) == len(set(urls)) == 21
    assert run.stats["item_scraped_count"] == 21
    assert run.stats["dupefilter_filtered"] == 20
    assert {item["depth"] for item in run.items} == {0, 1}
    assert run.stats["request_count"] == run.stats["response_count"] == 22  # robots.txt is one of them
    assert run.stats["finish_reason"] == "finished"


async def test_all_four_kinds_of_callback_get_their_arguments(autojump_clock: MockClock) -> None:
    class Kinds(trawl.Spider):
        name = "kinds"

        async def start(self) -> AsyncGenerator[Any, None]:
            for i, callback in enumerate((self.plain, self.generator, self.asynchronous, self.async_generator)):
                yield Request(f"http://a.example/{i}", callback, cb_kwargs={"n": i})

        def plain(self, response: Response, n: int) -> Any:
            return {"n": n}

        def generator(self, response: Response, n: int) -> Iterator[Any]:
            yield {"n": n}

        async def asynchronous(self, response: Response, n: int) -> Any:
            await trio.sleep(1)
            return [{"n": n}]

        async def async_generator(self, response: Response, n: int) -> AsyncGenerator[Any, None]:
            await trio.sleep(1)
            yield {"n": n}

    web = SimulatedWeb()
    web.add_host("a.example")
    run = await web.crawl(Kinds, settings=FREE)
    assert sorted(item["n"] for item in run.items) == [0, 1, 2, 3]


async def test_a_failing_callback_harms_nobody_else(  # C9
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Fails(Follows):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield from super().parse(response)
            if response.url.endswith("/3"):
                raise KeyError("gone")

    run = await pages(6).crawl(Fails, settings=FREE, errors="collect")
    assert run.reason == "finished"
    assert len(run.items) == 7  # what the callback gave before it failed stays
    assert run.stats["spider_exceptions"] == 1
    assert run.stats["spider_exceptions/KeyError"] == 1
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "http://a.example/3" in record.getMessage()


async def test_a_nursery_open_across_a_yield_fails_alone(autojump_clock: MockClock) -> None:  # C9
    class Nursery(Follows):
        async def parse(self, response: Response, **kwargs: Any) -> Any:
            async with trio.open_nursery():
                yield {"url": response.url}
                raise ValueError("inside")

    web = SimulatedWeb()
    web.add_host("a.example")
    run = await web.crawl(Nursery, settings=FREE, errors="collect")
    assert run.reason == "finished"
    assert len(run.items) == 1
    assert run.stats["spider_exceptions/ValueError"] == 1


async def test_a_deadline_around_a_yield_does_not_end_the_crawl(autojump_clock: MockClock) -> None:
    class Impatient(Follows):
        async def parse(self, response: Response, **kwargs: Any) -> Any:
            with trio.move_on_after(0.01):
                for link in response.follow_all(css="a"):
                    yield link
                await trio.sleep(60)
            with trio.move_on_after(0.01):
                yield {"url": response.url}
                await trio.sleep(60)

    run = await pages(5).crawl(Impatient, settings=FREE)
    assert run.reason == "finished"
    assert len(run.items) == 6


async def test_close_spider_ends_the_crawl_with_its_reason(autojump_clock: MockClock) -> None:
    class Closes(Follows):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield from super().parse(response)
            if response.url.endswith("/2"):
                raise trawl.CloseSpider("enough")

    run = await pages(50).crawl(Closes, settings={"CONCURRENT_REQUESTS_PER_DOMAIN": 1})
    assert run.reason == "enough"
    assert [item["url"] for item in run.items] == [f"http://a.example/{i}" for i in ("", 0, 1, 2)]


async def test_close_spider_raised_in_a_nursery_ends_the_crawl_too(autojump_clock: MockClock) -> None:
    class Closes(Follows):
        async def parse(self, response: Response, **kwargs: Any) -> Any:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.give_up)

            yield {}  # pragma: no cover  # never reached

        async def give_up(self) -> None:
            raise trawl.CloseSpider("enough")

    run = await pages(3).crawl(Closes, settings=FREE)
    assert run.reason == "enough"


async def test_statuses_outside_2xx_go_to_the_errback_unless_they_are_handled(autojump_clock: MockClock) -> None:
    heard: list[tuple[str, int]] = []

    class Statuses(trawl.Spider):
        name = "statuses"
        handle_httpstatus_list = (404,)

        async def start(self) -> AsyncGenerator[Any, None]:
            yield Request("http://a.example/404", errback=self.failed)
            yield Request("http://a.example/410", errback=self.failed)
            yield Request("http://a.example/418", errback=self.failed, meta={"handle_httpstatus_list": [418]})
            yield Request("http://a.example/403", errback=self.failed, meta={"handle_httpstatus_all": True})
            yield Request("http://a.example/451")

        def parse(self, response: Response, **kwargs: Any) -> Any:
            heard.append(("callback", response.status))

        def failed(self, error: HttpError) -> Any:
            heard.append(("errback", error.response.status))
            yield {"url": error.request.url}

    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: SimulatedResponse(status=int(request.url.rsplit("/", 1)[1])))
    run = await web.crawl(Statuses, settings={**FREE, "ROBOTSTXT_OBEY": False})
    assert sorted(heard) == [("callback", 403), ("callback", 404), ("callback", 418), ("errback", 410)]
    assert [item["url"] for item in run.items] == ["http://a.example/410"]
    assert run.stats["response_status_count/451"] == 1


async def test_a_download_error_goes_to_the_errback_after_its_retries(autojump_clock: MockClock) -> None:
    heard: list[Exception] = []

    class Unknown(trawl.Spider):
        name = "unknown"

        async def start(self) -> AsyncGenerator[Any, None]:
            yield Request("http://nowhere.example/", errback=heard.append)

    run = await SimulatedWeb().crawl(Unknown, settings={"ROBOTSTXT_OBEY": False}, errors="collect")
    [error] = heard
    assert isinstance(error, NameNotResolved)
    assert "nowhere.example" in str(error)
    assert run.stats["retry_count"] == 2
    assert run.reason == "finished"


async def test_a_host_that_cannot_be_reached_for_robots_ends_its_requests_with_an_error(
    autojump_clock: MockClock,
) -> None:
    heard: list[Exception] = []

    class Unknown(trawl.Spider):
        name = "unknown"

        async def start(self) -> AsyncGenerator[Any, None]:
            yield Request("http://nowhere.example/", errback=heard.append)

    run = await SimulatedWeb().crawl(Unknown, errors="collect")
    assert isinstance(heard[0], ConnectFailed)
    assert run.reason == "finished"
    assert run.elapsed < 10


async def test_a_page_whose_callback_failed_is_freed_at_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Fails(trawl.Spider):
        name = "fails"
        start_urls = tuple(f"http://a.example/{i}" for i in range(4))

        def parse(self, response: Response, **kwargs: Any) -> Any:
            held.append(sum(page() is not None for page in seen))
            seen.append(weakref.ref(response))
            raise ValueError("wrong")

    held, seen = list[int](), list[weakref.ref[Response]]()
    caplog.set_level(logging.CRITICAL + 1, "trawl")  # a record would keep its error
    gc.disable()
    try:
        settings = load(Layer("test", {**FREE, "CONCURRENT_REQUESTS": 1}))
        run = await crawl_with(Fails, settings, transport=pages(4).transport())
    finally:
        gc.enable()
    assert run.stats["spider_exceptions"] == 4
    assert held == [0, 0, 0, 0]


async def test_an_output_that_is_none_is_the_callbacks_error(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(Follows):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url}
            yield 42

    run = await pages(1).crawl(Wrong, settings=FREE, errors="collect")
    assert len(run.items) == 1
    assert run.stats["spider_exceptions/TypeError"] == 1
    assert "not int" in caplog.text


async def test_filtered_requests_are_counted_under_their_reason(autojump_clock: MockClock) -> None:
    class Filtered(Follows):
        allowed_domains = ("a.example",)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield response.follow("mailto:someone@a.example")
            yield response.follow("http://b.example/")
            yield response.follow("/" + "x" * 3000)
            yield response.follow("/")
            yield response.follow("/deeper")

    web = SimulatedWeb()
    web.add_host("a.example")
    run = await web.crawl(Filtered, settings={**FREE, "DEPTH_LIMIT": 1})
    assert run.stats["scheme_filtered"] == 2  # from both pages
    assert run.stats["urllength_filtered"] == 2
    assert run.stats["offsite_filtered"] == 1
    assert run.stats["dupefilter_filtered"] == 1
    assert run.stats["depth_filtered"] == 3  # what the second page gives is too deep before it is anything else
    assert [send.url for send in run.sends if "robots" not in send.url] == [
        "http://a.example/",
        "http://a.example/deeper",
    ]


async def test_domains_that_can_be_read_only_once_are_still_allowed_domains(autojump_clock: MockClock) -> None:
    class Once(Follows):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.allowed_domains = (name for name in ["a.example"])

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield response.follow("http://b.example/")

    class Property(Once):
        allowed_domains = property(lambda self: iter(["a.example"]))

        def __init__(self, **kwargs: Any) -> None:
            trawl.Spider.__init__(self, **kwargs)

    web = SimulatedWeb()
    web.add_host("a.example")
    for spider in (Once, Property):
        run = await web.crawl(spider, settings={**FREE, "ROBOTSTXT_OBEY": False})
        assert run.stats["offsite_filtered"] == 1
        assert [send.url for send in run.sends] == ["http://a.example/"]


async def test_a_start_url_may_lie_offsite_and_redirect_there(autojump_clock: MockClock) -> None:
    class Starts(Follows):
        allowed_domains = ("b.example",)

    web = SimulatedWeb()
    web.add_host(
        "a.example", handler=lambda request: SimulatedResponse(status=301, headers={"Location": "http://c.example/"})
    )
    web.add_host("c.example")
    run = await web.crawl(Starts, settings={"ROBOTSTXT_OBEY": False})
    assert [item["url"] for item in run.items] == ["http://c.example/"]


async def test_a_redirect_target_that_was_seen_ends_as_a_duplicate(autojump_clock: MockClock) -> None:
    class Redirected(trawl.Spider):
        name = "redirected"
        start_urls = ("http://a.example/target", "http://a.example/moved")

        def parse(self, response: Response, **kwargs: Any) -> Any:
            return {"url": response.url}

    web = SimulatedWeb()
    web.add_host(
        "a.example",
        handler=lambda request: (
            SimulatedResponse(status=302, headers={"Location": "/target"})
            if request.url.endswith("moved")
            else SimulatedResponse()
        ),
    )
    run = await web.crawl(Redirected)
    assert len(run.items) == 1
    assert run.stats["dupefilter_filtered"] == 1
    assert run.reason == "finished"


async def test_a_page_that_sets_a_cookie_and_redirects_to_itself_is_fetched_again(autojump_clock: MockClock) -> None:
    def gate(request: Request) -> SimulatedResponse:
        if "Cookie" in request.headers:
            return SimulatedResponse(body="in")
        return SimulatedResponse(status=302, headers={"Location": "/", "Set-Cookie": "seen=1"})

    class Once(trawl.Spider):
        name = "once"
        start_urls = ("http://a.example/",)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            return {"body": response.text}

    web = SimulatedWeb()
    web.add_host("a.example", handler=gate)
    run = await web.crawl(Once, settings={"ROBOTSTXT_OBEY": False})
    assert run.items == [{"body": "in"}]


async def test_redirects_for_ever_end_with_an_error(autojump_clock: MockClock) -> None:
    heard: list[Exception] = []

    class Loop(trawl.Spider):
        name = "loop"

        async def start(self) -> AsyncGenerator[Any, None]:
            yield Request("http://a.example/0", errback=heard.append)

    web = SimulatedWeb()
    web.add_host(
        "a.example",
        handler=lambda request: SimulatedResponse(
            status=302, headers={"Location": f"/{int(request.url.rsplit('/', 1)[1]) + 1}"}
        ),
    )
    run = await web.crawl(Loop, settings={**FREE, "ROBOTSTXT_OBEY": False})
    assert len(heard) == 1
    assert run.stats["request_count"] == 21  # REDIRECT_MAX_TIMES is 20


async def test_a_server_error_is_tried_again_and_its_callback_called_once(autojump_clock: MockClock) -> None:
    answers = iter([500, 500, 200])
    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: SimulatedResponse(status=next(answers)))
    run = await web.crawl(Follows, settings={"ROBOTSTXT_OBEY": False})
    assert len(run.items) == 1
    assert run.stats["retry_count"] == 2
    assert run.stats["request_count"] == 3


@pytest.mark.parametrize(
    "meta", [{"handle_httpstatus_list": 404}, {"handle_httpstatus_list": None}, {"delay": "soon"}, {"delay": object()}]
)
async def test_meta_of_a_wrong_kind_harms_no_other(meta: dict[str, Any], autojump_clock: MockClock) -> None:  # C9
    class Wrong(trawl.Spider):
        name = "wrong"

        async def start(self) -> AsyncGenerator[Any, None]:
            yield Request("http://a.example/wrong", meta=meta)
            yield Request("http://a.example/right")

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"status": response.status}

    web = SimulatedWeb()
    web.add_host(
        "a.example", handler=lambda request: SimulatedResponse(status=404 if request.url.endswith("/wrong") else 200)
    )
    run = await web.crawl(Wrong, settings=FREE, errors="collect")
    assert run.reason == "finished"
    one_status = meta.get("handle_httpstatus_list") == 404
    assert [item["status"] for item in run.items] == ([404, 200] if one_status else [200])


class Tasks(trio.abc.Instrument):
    """The most tasks that there were at once."""

    def __init__(self) -> None:
        self.living = self.most = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.living += 1
        self.most = max(self.most, self.living)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.living -= 1


async def test_a_multitude_of_forbidden_links_is_not_a_multitude_of_tasks(autojump_clock: MockClock) -> None:  # C4
    web = SimulatedWeb()
    web.add_host("a.example", robots="User-agent: *\nDisallow: /private")
    web.add_page("http://a.example/", links=[f"/private/{i}" for i in range(1000)])
    tasks = Tasks()
    trio.lowlevel.add_instrument(tasks)
    try:
        run = await web.crawl(Follows, settings=FREE)
    finally:
        trio.lowlevel.remove_instrument(tasks)
    assert run.stats["robots_forbidden"] == 1000
    assert tasks.most < 200
