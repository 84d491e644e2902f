from __future__ import annotations

from typing import Any

import pytest

from tests.middleware.web import Web, now_utc
from trawl.errors import IgnoreRequest, TooManyRedirects, UnsupportedScheme
from trawl.http import Outcome, Replace, Request, Response
from trawl.middleware import MiddlewareSettings, redirect

HERE = "https://a.example/here"


async def follow(request: Request, location: str, status: int = 302, **fields: str) -> Outcome:
    """The outcome of a request that is redirected to ``location``."""
    headers = {"Location": location, **{name.replace("_", "-"): value for name, value in fields.items()}}
    web = Web(Response(request.url, status, headers))
    return await web.through([redirect(MiddlewareSettings(), now_utc)], request)


async def target_of(request: Request, location: str, status: int = 302, **fields: str) -> Request:
    then = (await follow(request, location, status, **fields)).then
    assert isinstance(then, Replace)
    return then.request


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_takes_the_place_of_its_request(status: int) -> None:
    outcome = await follow(Request(HERE, priority=5), "/there?x=1", status)
    assert isinstance(outcome.then, Replace)
    assert outcome.then.reason == "redirect"
    assert outcome.then.is_new_target
    assert outcome.then.delay == 0.0
    target = outcome.then.request
    assert target.url == "https://a.example/there?x=1"
    assert target.priority == 7
    assert target.meta["redirect_times"] == 1
    assert target.meta["redirect_urls"] == [HERE]
    assert target.meta["redirect_reasons"] == [status]


async def test_a_chain_is_told_in_order() -> None:
    first = await target_of(Request(HERE), "/b", 301)
    second = await target_of(first, "/c", 307)
    assert second.meta["redirect_urls"] == [HERE, "https://a.example/b"]
    assert second.meta["redirect_reasons"] == [301, 307]
    assert first.meta["redirect_times"] == 1


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "ftp://a.example/", "javascript:alert(1)", "data:,x", "mailto:a@b.example"]
)
async def test_a_redirect_to_another_scheme_is_refused_c10(location: str) -> None:
    outcome = await follow(Request(HERE), location)
    assert outcome.then is None
    assert outcome.response is None
    assert isinstance(outcome.error, UnsupportedScheme)
    assert str(outcome.error).startswith(f"GET {HERE}: redirected to '{location}")


async def test_a_redirect_loop_ends_with_an_error_after_twenty() -> None:
    request = Request(HERE)
    for _ in range(20):
        request = await target_of(request, "/here")
    outcome = await follow(request, "/here")
    assert outcome.then is None
    assert type(outcome.error) is TooManyRedirects
    assert isinstance(outcome.error, IgnoreRequest)  # what errbacks written for Scrapy ask for
    assert "redirected more than 20 times" in str(outcome.error)


@pytest.mark.parametrize("location", ["http://[", "https://exa mple/", ""])
async def test_a_location_that_is_no_url_leaves_the_response_to_the_spider(location: str) -> None:
    outcome = await follow(Request(HERE), location)
    assert outcome.then is None
    assert outcome.response is not None


@pytest.mark.parametrize(
    ("status", "meta"),
    [
        (302, {"dont_redirect": True}),
        (302, {"handle_httpstatus_list": [302]}),
        (302, {"handle_httpstatus_all": True}),
        (200, {}),
        (304, {}),
        (300, {}),
    ],
)
async def test_a_spider_may_want_the_redirect_itself(status: int, meta: dict[str, Any]) -> None:
    outcome = await follow(Request(HERE, meta=meta), "/there", status)
    assert outcome.then is None
    assert outcome.response is not None


async def test_statuses_that_the_spider_handles_are_not_followed_unless_meta_says_otherwise() -> None:
    layer = redirect(MiddlewareSettings(), now_utc, frozenset({302}))
    web = Web(Response(HERE, 302, {"Location": "/there"}))
    assert (await web.through([layer], Request(HERE))).then is None
    assert (await web.through([layer], Request(HERE, meta={"handle_httpstatus_list": [404]}))).then is not None


@pytest.mark.parametrize(
    ("retry_after", "delay"),
    [("3", 3.0), ("500", 120.0), ("Wed, 01 Jan 2025 00:00:10 GMT", 10.0), ("0", 0.0), ("soon", 0.0), ("-4", 0.0)],
)
async def test_retry_after_on_a_redirect_delays_its_target_d08(retry_after: str, delay: float) -> None:
    outcome = await follow(Request(HERE), "/there", 302, Retry_After=retry_after)
    assert isinstance(outcome.then, Replace)
    assert outcome.then.delay == delay


async def test_a_redirect_max_delay_of_zero_heeds_no_retry_after_d08() -> None:
    layer = redirect(MiddlewareSettings(redirect_max_delay=0.0), now_utc)
    web = Web(Response(HERE, 302, {"Location": "/there", "Retry-After": "3"}))
    then = (await web.through([layer], Request(HERE))).then
    assert isinstance(then, Replace)
    assert then.delay == 0.0


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ("\u00e9t\u00e9".encode(), "%C3%A9t%C3%A9"),
        ("новости".encode("cp1251"), "%ED%EE%E2%EE%F1%F2%E8"),
        ("\u00e9t\u00e9".encode("latin-1"), "%E9t%E9"),
        (b"a?b=\x80#\xff", "a?b=%80#%FF"),
        (b"%E9 \xe9", "%E9%20%E9"),
    ],
)
async def test_raw_bytes_of_a_location_are_percent_encoded_unchanged(raw: bytes, path: str) -> None:
    assert (await target_of(Request(HERE), "/" + raw.decode("latin-1"))).url == f"https://a.example/{path}"


async def test_raw_bytes_of_a_locations_host_are_utf_8() -> None:
    location = "https://b\u00fccher.example/".encode().decode("latin-1")
    assert (await target_of(Request(HERE), location)).url == "https://xn--bcher-kva.example/"


async def test_a_location_that_middleware_wrote_as_text_is_read_as_utf_8() -> None:
    assert (await target_of(Request(HERE), "/\u20ac")).url == "https://a.example/%E2%82%AC"


@pytest.mark.parametrize("second", ["/there", "/elsewhere", "https://b.example/", ""])
async def test_of_several_locations_the_first_counts(second: str) -> None:
    web = Web(Response(HERE, 302, [("Location", "/there"), ("location", second)]))
    then = (await web.through([redirect(MiddlewareSettings(), now_utc)], Request(HERE))).then
    assert isinstance(then, Replace)
    assert then.request.url == "https://a.example/there"


async def test_a_fragment_is_kept_unless_the_location_has_one() -> None:
    request = Request(HERE + "#part")
    assert (await target_of(request, "/there")).url == "https://a.example/there#part"
    assert (await target_of(request, "/there#other")).url == "https://a.example/there#other"


async def test_a_referer_of_an_https_page_is_not_told_to_plain_http() -> None:
    request = Request(HERE, headers={"Referer": "https://a.example/secret"})
    assert "Referer" not in (await target_of(request, "http://b.example/")).headers
    assert (await target_of(request, "https://b.example/")).headers["Referer"] == "https://a.example/"


async def test_the_redirected_request_itself_is_not_changed() -> None:
    request = Request(HERE, method="POST", body="x", headers={"Authorization": "secret"}, meta={"delay": 3})
    await target_of(request, "https://b.example/", 303)
    assert (request.method, request.body, request.headers["Authorization"]) == ("POST", b"x", "secret")
    assert request.meta == {"delay": 3}


async def test_user_set_scopes_go_along_e03() -> None:
    request = Request(HERE, meta={"throttling_scopes": {"api"}})
    assert (await target_of(request, "https://b.example/")).meta["throttling_scopes"] == {"api"}
