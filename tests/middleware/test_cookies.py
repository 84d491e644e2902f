from __future__ import annotations

from tests.middleware.web import Web, now_utc
from trawl.cookies import Jars
from trawl.errors import ConnectFailed
from trawl.http import Replace, Request, Response
from trawl.middleware import MiddlewareSettings, auth, cookies, redirect

URL = "https://a.example/"


async def test_a_cookie_goes_on_a_copy_and_the_response_answers_the_request_itself() -> None:
    layer = cookies(Jars(), now_utc)
    web = Web(Response(URL, headers=[("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]))
    await web.through([layer], Request(URL))
    request = Request(URL)
    outcome = await web.through([layer], request)
    assert web.fields[1]["Cookie"] == "a=1; b=2"
    assert "Cookie" not in request.headers
    assert outcome.response is not None
    assert outcome.response.request is request


async def test_a_response_tells_the_cookies_and_the_credentials_that_were_sent() -> None:
    layers = [auth({"a.example": "Bearer t"}), cookies(Jars(), now_utc)]
    web = Web(Response(URL, headers=[("Set-Cookie", "a=1")]))
    first = (await web.through(layers, Request(URL, headers={"X": "x"}))).response
    assert first is not None
    assert dict(first.sent_headers) == {"X": "x", "Authorization": "Bearer t"}
    second = (await web.through(layers, Request(URL))).response
    assert second is not None
    assert second.request is not None
    assert dict(second.sent_headers) == {"Authorization": "Bearer t", "Cookie": "a=1"}
    assert dict(second.replace(body=b"").sent_headers) == dict(second.sent_headers)
    assert dict(second.request.headers) == dict(second.request.replace(url="https://b.example/").headers) == {}


async def test_a_request_for_which_there_is_no_cookie_is_passed_on_as_it_is() -> None:
    web = Web(Response(URL))
    request = Request(URL)
    await web.through([cookies(Jars(), now_utc)], request)
    assert web.requests[0] is request


async def test_a_failed_request_sets_nothing() -> None:
    web = Web(ConnectFailed("why"), Response(URL))
    layer = cookies(Jars(), now_utc)
    outcome = await web.through([layer], Request(URL))
    assert outcome.response is None
    await web.through([layer], Request(URL))
    assert "Cookie" not in web.fields[1]


async def test_a_header_that_no_stored_cookie_replaces_is_taken_away_in_scrapys_way() -> None:
    web = Web(Response(URL))
    request = Request(URL, headers={"Cookie": "h=1"})
    await web.through([cookies(Jars(is_like_scrapy=True), now_utc)], request)
    assert "Cookie" not in web.fields[0]
    assert request.headers["Cookie"] == "h=1"


async def test_a_redirect_that_changes_a_cookie_which_was_brought_along_is_not_undone() -> None:
    answers = [Response(URL, 302, headers=[("Location", "/in"), ("Set-Cookie", "a=2; Path=/; Secure")]), Response(URL)]
    layers = [redirect(MiddlewareSettings(), now_utc), cookies(Jars(), now_utc)]
    web = Web(*answers)
    outcome = await web.through(layers, Request(URL, cookies={"a": "1"}))
    assert isinstance(outcome.then, Replace)
    await web.through(layers, outcome.then.request)
    assert [fields["Cookie"] for fields in web.fields] == ["a=1", "a=2"]
