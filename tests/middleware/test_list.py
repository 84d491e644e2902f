"""The list of middleware, and how users extend it."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable
from typing import Any

import httpx
import pytest

import trawl
from tests.middleware.web import Web, now_utc
from trawl.cookies import Jars
from trawl.errors import IgnoreRequest, NotConfigured, SettingsError
from trawl.http import Drop, Fetch, Outcome, Replace, Request, Response
from trawl.middleware import BUILT_IN, MiddlewareContext, MiddlewareSettings, layers
from trawl.middleware.factory import make_middleware
from trawl.testing import SimulatedWeb, simulate

URL = "http://a.example/"


def mark(fetch: Fetch) -> Fetch:
    """Leaves a field on each request."""

    def send(request: Request) -> Awaitable[Outcome]:
        request.headers["X-Mark"] = "here"
        return fetch(request)

    return send


class Named:
    """A middleware with a name, made by from_crawler."""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def from_crawler(cls, crawl: Any) -> Named:
        return cls(crawl.spider.name)

    def __call__(self, fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            request.headers["X-Mark"] = self.name
            return await fetch(request)

        return send


def context(wanted: dict[Any, float | None] | None = None, **settings: Any) -> MiddlewareContext:
    values = MiddlewareSettings(downloader_middlewares=wanted or {}, **settings)
    return MiddlewareContext(settings=values, rng=random.Random(0), now_utc=now_utc, jars=Jars())


def names(wanted: dict[Any, float | None] | None = None, **settings: Any) -> list[str]:
    return [layer.name for layer in layers(context(wanted, **settings))]


def test_the_list_is_in_scrapys_order() -> None:
    assert [each.name for each in BUILT_IN] == sorted((each.name for each in BUILT_IN), key=_order)
    assert names() == ["default_headers", "user_agent", "retry", "meta_refresh", "redirect", "cookies"]
    assert names(http_auth={"a.example": {"token": "t"}})[-2:] == ["auth", "cookies"]


def _order(name: str) -> float:
    return next(each.order for each in BUILT_IN if each.name == name)


def test_a_users_function_stands_where_its_number_says_and_outside_its_equals() -> None:
    assert names({mark: 590})[3:6] == ["meta_refresh", "mark", "redirect"]
    assert names({mark: 550})[:3] == ["default_headers", "user_agent", "mark"]
    assert names({mark: None}) == names()
    assert names({"tests.middleware.test_list.mark": 1000})[-1] == "tests.middleware.test_list.mark"


@pytest.mark.parametrize(
    "name", ["retry", "trawl.middleware.retry", "scrapy.downloadermiddlewares.retry.RetryMiddleware"]
)
def test_a_built_in_one_is_taken_out_or_moved_by_any_of_its_names(name: str) -> None:
    assert names({name: None}) == ["default_headers", "user_agent", "meta_refresh", "redirect", "cookies"]
    assert names({name: 950})[-1] == "retry"


async def sent(wanted: dict[Any, float | None]) -> dict[str, str]:
    web = Web(Response(URL))
    await web.through([layer.middleware for layer in layers(context(wanted, user_agent="me"))], Request(URL))
    return web.fields[0]


async def test_the_user_agent_and_the_default_headers_are_taken_out_apart() -> None:
    assert set(await sent({})) == {"Accept", "Accept-Language", "User-Agent"}
    assert set(await sent({"user_agent": None})) == {"Accept", "Accept-Language"}
    assert set(await sent({"default_headers": None})) == {"User-Agent"}
    assert set(await sent({"default_headers": None, "user_agent": None})) == set()


@pytest.mark.parametrize("entry", ["retri", "scrapy.downloadermiddlewares.retry.Nothing", "nothing"])
def test_a_name_that_there_is_not_is_refused(entry: str) -> None:
    with pytest.raises(SettingsError, match="is not built in; use one of auth, browser, cache, cookies"):
        names({entry: None})


def test_what_scrapy_does_by_middleware_and_trawl_does_elsewhere_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert names({"scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": 100}) == names()
    assert "has no effect: set ROBOTSTXT_OBEY, or meta `dont_obey_robotstxt`" in caplog.text


@pytest.mark.parametrize("entry", ["no.such.module", "trawl.no_such_name", 5])
def test_an_entry_that_leads_to_no_middleware_is_refused(entry: object) -> None:
    with pytest.raises(SettingsError, match="DOWNLOADER_MIDDLEWARES"):
        names({entry: 1})


def test_a_class_that_cant_be_made_is_refused() -> None:
    class Needs:
        def __init__(self, something: object) -> None: ...

    with pytest.raises(SettingsError, match="Needs can't be made"):
        names({Needs: 1})


def test_one_that_is_not_configured_is_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    class Off:
        @classmethod
        def from_crawler(cls, crawl: object) -> object:
            raise NotConfigured("no key")

    caplog.set_level(logging.INFO)
    assert len(names({Off: 1})) == len(names()) + 1
    assert "Off is left out: no key" in caplog.text


def test_a_middleware_that_gives_nothing_is_told_at_once() -> None:
    def forgets(fetch: Fetch) -> Any:
        return None

    class Async:
        async def __call__(self, fetch: Fetch) -> Fetch:  # noqa: RUF029 - the mistake
            return fetch

    for middleware in (forgets, Async):
        words = rf"^DOWNLOADER_MIDDLEWARES: .*{middleware.__name__} must return an async function of a"
        with pytest.raises(SettingsError, match=words):
            make_middleware(middleware, None, None)(Web(Response(URL)).fetch)


def wrong(returned: Any) -> Any:
    """A middleware whose function returns this."""

    def confused(fetch: Fetch) -> Any:
        async def send(request: Request) -> Any:  # noqa: RUF029 - a Fetch
            return returned(request, fetch) if callable(returned) else returned

        return send

    return confused


OUTCOME = r"return await fetch\(request\), or an Outcome"
PARTS = "returned Outcome.*: an Outcome needs the Request, and a Response as response"


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, f"returned None: {OUTCOME}"),
        ("text", f"returned 'text': {OUTCOME}"),
        ({}, f"returned {{}}: {OUTCOME}"),
        (httpx.Response(200), rf"returned <Response \[200 OK\]>: {OUTCOME}"),
        (Response(URL), r"returned <200 .*>: return Outcome\(request, response=it\)"),
        (Request(URL), r"returned <GET .*>: to send it now, return await fetch\(it\); to send it later"),
        (lambda request, fetch: fetch(request), r"returned <coroutine .*>: await it"),
        (lambda request, fetch: fetch(None), r"called fetch\(\) with None: it takes a Request"),
        (Outcome(Request(URL)), PARTS + ".*, not none of these$"),
        (Outcome(Response(URL)), PARTS),  # type: ignore[arg-type]
        (Outcome(Request(URL), "text"), PARTS),  # type: ignore[arg-type]
        (Outcome(Request(URL), error="text"), PARTS),  # type: ignore[arg-type]
        (Outcome(Request(URL), then=Request(URL)), PARTS),  # type: ignore[arg-type]
        (Outcome(Request(URL), then=Replace(URL)), PARTS),  # type: ignore[arg-type]
        (Outcome(Request(URL), then=Replace(Request(URL), delay=None)), PARTS),  # type: ignore[arg-type]
        (Outcome(Request(URL), then=Replace(Request(URL), reason=None)), PARTS),  # type: ignore[arg-type]
        (Outcome(Request(URL), then=Drop(None)), PARTS + r".*, not then=Drop\(reason=None"),  # type: ignore[arg-type]
        (Outcome(Request(URL), then=Drop("dropped", failure=5)), PARTS),  # type: ignore[arg-type]
    ],
)
async def test_a_middleware_that_returns_no_outcome_is_named_with_what_it_must_return(
    returned: Any, words: str
) -> None:
    send = make_middleware(wrong(returned), None, None)(Web(Response(URL)).fetch)
    with pytest.raises(TypeError, match=rf"(?s)^DOWNLOADER_MIDDLEWARES: .*confused {words}"):
        await send(Request(URL))


@pytest.mark.parametrize("order", [1, 560])
@pytest.mark.parametrize(
    "returned",
    [None, Response(URL), Outcome(Request(URL)), Outcome(Request(URL), then=Drop(None))],  # type: ignore[arg-type]
)
def test_only_the_request_fails_whose_middleware_returns_no_outcome(returned: Any, order: int) -> None:
    failed: list[Exception] = []

    class One(trawl.Spider):
        name = "one"

        async def start(self) -> Any:
            yield Request(URL, errback=failed.append)

    web = SimulatedWeb()
    web.add_host("a.example")
    settings = {"ROBOTSTXT_OBEY": False, "DOWNLOADER_MIDDLEWARES": {wrong(returned): order}}
    sim = simulate(One, web, settings=settings)
    assert sim.reason == "finished"
    assert "confused returned" in str(getattr(failed[0], "value", failed[0]))


async def test_a_middleware_whose_function_is_not_async_is_named() -> None:
    def plain(fetch: Fetch) -> Any:
        return Response

    def yielding(fetch: Fetch) -> Any:
        async def send(request: Request) -> Any:
            yield await fetch(request)

        return send

    for middleware in (plain, yielding):
        send = make_middleware(middleware, None, None)(Web(Response(URL)).fetch)
        with pytest.raises(TypeError, match=rf"{middleware.__name__} returns must be async, without yield"):
            await send(Request(URL))


async def test_outcomes_of_every_kind_pass() -> None:
    request = Request(URL)
    for outcome in (
        Outcome(request, Response(URL)),
        Outcome(request, error=IgnoreRequest("no")),
        Outcome(request, then=Replace(request)),
        Outcome(request, then=Drop("dropped")),
    ):
        assert await make_middleware(wrong(outcome), None, None)(Web(Response(URL)).fetch)(request) is outcome


async def at_once(request: Any) -> Any:
    return None


def of_two(fetch: Any, more: Any) -> Any:
    return fetch


@pytest.mark.parametrize("entry", [at_once, of_two])
def test_a_function_of_another_kind_is_refused(entry: Any) -> None:
    with pytest.raises(SettingsError, match=f"^DOWNLOADER_MIDDLEWARES: {entry.__name__} is not middleware: a function"):
        names({entry: 1})


def test_a_crawl_passes_them() -> None:
    class Page(trawl.Spider):
        name = "page"
        start_urls = (URL,)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            assert response.request is not None
            return {"mark": response.request.headers["X-Mark"]}

    web = SimulatedWeb()
    web.add_host("a.example")
    for entry, told in ((mark, "here"), (Named, "page"), (Named("made"), "made")):
        assert simulate(Page, web, {"DOWNLOADER_MIDDLEWARES": {entry: 100}}).items == [{"mark": told}]


def test_chance_and_time_come_from_the_crawl_so_that_a_simulation_is_the_same_again() -> None:
    drawn: list[tuple[float, str]] = []

    class Draws:
        @classmethod
        def from_crawler(cls, crawl: Any) -> Any:
            drawn.append((crawl.random("mine").random(), crawl.now_utc().isoformat()))
            return mark

    class Page(trawl.Spider):
        name = "page"
        start_urls = (URL,)

        def parse(self, response: Response, **kwargs: Any) -> Any: ...

    web = SimulatedWeb()
    web.add_host("a.example")
    for _ in range(2):
        simulate(Page, web, {"DOWNLOADER_MIDDLEWARES": {Draws: 100}}, seed=3)
    assert drawn[0] == drawn[1]
    assert drawn[0][1] == "2025-01-01T00:00:00+00:00"
