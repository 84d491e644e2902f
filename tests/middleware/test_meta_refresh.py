"""Pages that lead on by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.middleware.web import Web
from trawl.errors import TooManyRedirects
from trawl.http import Outcome, Replace, Request, Response
from trawl.middleware import MiddlewareSettings, meta_refresh

HERE = "https://a.example/here"


def page(content: str, *, before: str = "", after: str = "") -> bytes:
    return f'<html><head>{before}<meta http-equiv="Refresh" content="{content}">{after}</head></html>'.encode()


async def follow(body: bytes, request: Request | None = None, settings: Any = None, **fields: str) -> Outcome:
    request = request or Request(HERE)
    headers = {"Content-Type": "text/html", **{name.replace("_", "-"): value for name, value in fields.items()}}
    web = Web(Response(request.url, 200, headers, body))
    return await web.through([meta_refresh(settings or MiddlewareSettings())], request)


async def test_a_refresh_takes_the_place_of_its_page_after_its_time() -> None:
    outcome = await follow(page("5; url=/there"), Request(HERE, method="POST", body="x", priority=1))
    then = outcome.then
    assert isinstance(then, Replace)
    assert (then.delay, then.reason, then.is_new_target) == (5.0, "redirect", True)
    target = then.request
    assert (target.url, target.method, target.body, target.priority) == ("https://a.example/there", "GET", b"", 3)
    assert target.meta == {"redirect_times": 1, "redirect_urls": [HERE], "redirect_reasons": ["meta refresh"]}


async def test_the_target_is_relative_to_the_pages_base() -> None:
    outcome = await follow(page("0;url=there", before='<base href="https://b.example/x/">'))
    assert isinstance(outcome.then, Replace)
    assert outcome.then.request.url == "https://b.example/x/there"


@pytest.mark.parametrize(
    "tag",
    [
        b"<META HTTP-EQUIV=REFRESH CONTENT='0;URL=/there'>",
        b"<mEtA\ncontent='0;url=/there' http-equiv=rEfReSh>",
        b"<meta/http-equiv='refresh'/content='0;url=/there'/>",
        b"""<meta name="a > b" content='0;url=/there' http-equiv="refresh">""",
        b"<meta charset=utf-8><meta name=viewport><meta http-equiv='refresh' content='0;url=/there'>",
    ],
)
async def test_a_refresh_is_found_however_it_is_written(tag: bytes) -> None:
    outcome = await follow(b"<p>" + tag)
    assert isinstance(outcome.then, Replace)
    assert outcome.then.request.url == "https://a.example/there"


@pytest.mark.parametrize(
    "body",
    [
        page("101; url=/late"),
        page("5"),
        page("x; url=/there"),
        page("5; url=javascript:alert(1)"),
        page("5; url=http://["),
        page("0; url=/here"),
        page("0; url=/here#part"),
        b"<noscript>" + page("0; url=/there") + b"</noscript>",
        b"<!-- " + page("0; url=/there") + b" -->",
        b" " * 5000 + page("0; url=/there"),
        b"a page about refreshments",
        b"<title>" + page("0; url=/there") + b"</title>",
        b"<textarea>" + page("0; url=/there") + b"</textarea>",
        b"<style>" + page("0; url=/there") + b"</style>",
    ],
)
async def test_a_page_that_does_not_lead_on_stays_a_page(body: bytes) -> None:
    outcome = await follow(body)
    assert outcome.then is None
    assert outcome.response is not None


async def test_what_is_no_html_stays_as_it_is() -> None:
    assert (await follow(page("0; url=/there"), Content_Type="text/plain")).then is None


@pytest.mark.parametrize("content_type", ["text/html", "text/plain", "application/pdf"])
async def test_the_field_refresh_is_followed_as_well(content_type: str) -> None:
    then = (await follow(b"", Content_Type=content_type, Refresh="5; url=there")).then
    assert isinstance(then, Replace)
    assert (then.request.url, then.delay) == ("https://a.example/there", 5.0)


async def test_the_field_is_read_first_and_relative_to_the_page_itself() -> None:
    body = page("0; url=/other", before='<base href="https://b.example/x/">')
    assert (await follow(body, Refresh="1;there")).then.request.url == "https://a.example/there"  # type: ignore[union-attr]
    assert (await follow(body, Refresh="x")).then.request.url == "https://b.example/other"  # type: ignore[union-attr]


async def test_the_first_refresh_that_is_valid_counts() -> None:
    body = page("x", after='<meta http-equiv=refresh content="1;there"><meta http-equiv=refresh content="2;no">')
    then = (await follow(body)).then
    assert isinstance(then, Replace)
    assert (then.request.url, then.delay) == ("https://a.example/there", 1.0)


async def test_a_refresh_without_a_url_is_of_the_page_itself() -> None:
    assert (await follow(page("5"))).then is None
    assert isinstance((await follow(page("5"), Set_Cookie="seen=1")).then, Replace)


async def test_an_element_in_which_it_does_not_count_is_the_users_to_choose() -> None:
    body = b"<noscript>" + page("0; url=/there") + b"</noscript>"
    outcome = await follow(body, settings=MiddlewareSettings(metarefresh_ignore_tags=()))
    assert isinstance(outcome.then, Replace)


async def test_a_page_that_sets_a_cookie_and_asks_for_itself_is_followed_once() -> None:
    first = await follow(page("0; url=/here"), Set_Cookie="seen=1")
    assert isinstance(first.then, Replace)
    second = await follow(page("0; url=/here"), first.then.request, Set_Cookie="seen=1")
    assert second.then is None


async def test_a_spider_may_refuse_it() -> None:
    assert (await follow(page("0; url=/there"), Request(HERE, meta={"dont_redirect": True}))).then is None
    assert (await follow(page("0; url=/there"), Request(HERE, method="HEAD"))).then is None


async def test_a_chain_has_an_end() -> None:
    outcome = await follow(page("0; url=/there"), Request(HERE, meta={"redirect_times": 20}))
    assert isinstance(outcome.error, TooManyRedirects)
    assert not outcome.error.is_retryable


async def test_only_pages_that_came_are_looked_at() -> None:
    web = Web(Response(HERE, 503, {"Content-Type": "text/html"}, page("0; url=/there")))
    assert (await web.through([meta_refresh(MiddlewareSettings())], Request(HERE))).then is None
