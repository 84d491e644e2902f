from __future__ import annotations

import random
from typing import Any

import pytest

from tests.middleware.web import Web, now_utc
from trawl.cookies import Jars
from trawl.http import Fetch, Middleware, Outcome, Replace, Request, Response
from trawl.middleware import MiddlewareContext, MiddlewareSettings, compose, layers

URL = "https://a.example/"


def stack(**settings: Any) -> list[Middleware]:
    given = MiddlewareSettings(**settings)
    context = MiddlewareContext(
        settings=given, rng=random.Random(0), now_utc=now_utc, jars=Jars(is_enabled=given.cookies_enabled)
    )
    return [layer.middleware for layer in layers(context)]


async def test_the_first_middleware_is_the_outermost() -> None:
    passed: list[str] = []

    def named(name: str) -> Middleware:
        def around(fetch: Fetch) -> Fetch:
            async def send(request: Request) -> Outcome:
                passed.append(name)
                return await fetch(request)

            return send

        return around

    await compose([named("a"), named("b")], Web(Response(URL)).fetch)(Request(URL))
    assert passed == ["a", "b"]


async def test_a_cookie_set_by_a_redirect_is_sent_to_its_target() -> None:
    layers = stack()
    web = Web(Response(URL, 302, {"Location": "/", "Set-Cookie": "seen=1"}), Response(URL))
    outcome = await web.through(layers, Request(URL))
    assert isinstance(outcome.then, Replace)
    assert "Cookie" not in outcome.then.request.headers
    await web.through(layers, outcome.then.request)
    assert web.fields[1]["Cookie"] == "seen=1"


@pytest.mark.parametrize(("setting", "status"), [("redirect_enabled", 302), ("retry_enabled", 503)])
async def test_a_middleware_can_be_turned_off(setting: str, status: int) -> None:
    web = Web(Response(URL, status, {"Location": "/there"}))
    assert isinstance((await web.through(stack(), Request(URL))).then, Replace)
    assert (await web.through(stack(**{setting: False}), Request(URL))).then is None


async def test_cookies_that_are_turned_off_are_not_kept_but_those_given_are_sent() -> None:
    layers = stack(cookies_enabled=False)
    web = Web(Response(URL, 200, {"Set-Cookie": "theirs=1"}))
    await web.through(layers, Request(URL, cookies={"mine": "2"}))
    await web.through(layers, Request(URL))
    assert web.fields[0]["Cookie"] == "mine=2"
    assert "Cookie" not in web.fields[1]
