"""Credentials go to where they are for, and nowhere else (C10)."""

from __future__ import annotations

from base64 import b64encode
from types import SimpleNamespace
from typing import Any

import pytest

import trawl
from tests.middleware.web import Web
from trawl.errors import SettingsError, UsageError
from trawl.http import Request, Response
from trawl.middleware.auth import auth, basic, load_credentials
from trawl.middleware.settings import AuthConfig
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

NOBODY = SimpleNamespace()


def encoded(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


async def sent(config: dict[str, AuthConfig], url: str, spider: object = NOBODY, **headers: str) -> str | None:
    web = Web(Response(url))
    request = Request(url, headers=headers)
    outcome = await web.through([auth(load_credentials(config, spider))], request)
    assert outcome.response is not None
    assert outcome.response.request is request
    assert request.headers.get("Authorization") == headers.get("Authorization")  # what is kept does not have it
    return web.fields[0].get("Authorization")


async def test_a_name_and_password_or_a_token() -> None:
    config: dict[str, AuthConfig] = {
        "https://a.example": {"user": "u", "password": "p:w"},
        "https://b.example": {"token": "abc"},
        "https://c.example": {"user": "ü"},
    }
    assert await sent(config, "https://a.example/x?y") == encoded("u:p:w")
    assert await sent(config, "https://b.example/") == "Bearer abc"
    assert await sent(config, "https://c.example/") == basic("ü", "") == encoded("ü:")


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/",
        "https://a.example:8443/",
        "https://b.a.example/",
        "https://aa.example/",
        "https://b.example/",
    ],
)
async def test_an_origin_is_that_origin_only_c10(url: str) -> None:
    assert await sent({"https://a.example": {"token": "t"}}, url) is None


async def test_a_domain_is_all_below_it_and_the_longer_one_counts() -> None:
    config: dict[str, AuthConfig] = {"a.example": {"token": "wide"}, ".in.a.example": {"token": "narrow"}}
    assert await sent(config, "http://a.example:81/") == "Bearer wide"
    assert await sent(config, "https://x.in.a.example/") == "Bearer narrow"
    assert await sent(config, "https://nota.example/") is None
    assert await sent({**config, "https://x.in.a.example": {"token": "own"}}, "https://x.in.a.example/") == "Bearer own"


async def test_a_request_that_says_who_it_is_is_left_alone() -> None:
    config: dict[str, AuthConfig] = {"a.example": {"token": "t"}}
    assert await sent(config, "https://a.example/", Authorization="mine") == "mine"
    assert await sent(config, "https://me:mine@a.example/") is None  # the transport sends those of the URL


async def test_scrapys_attributes_are_for_their_domain() -> None:
    spider = SimpleNamespace(http_user="u", http_pass="p", http_auth_domain="a.example")
    assert await sent({}, "https://www.a.example/", spider) == encoded("u:p")
    assert await sent({}, "https://b.example/", spider) is None


@pytest.mark.parametrize("domain", [None, "", "https://a.example/path", "a.example/x"])
def test_scrapys_attributes_without_a_domain_are_refused(domain: object) -> None:
    with pytest.raises(UsageError, match="http_auth_domain"):
        load_credentials({}, SimpleNamespace(http_user="u", http_auth_domain=domain))


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("https://a.example/path", {"token": "t"}, "must be an origin such as"),
        ("ftp://a.example", {"token": "t"}, "must be an origin such as"),
        ("a b", {"token": "t"}, "must be an origin such as"),
        ("a.example", {}, "either a token or a user"),
        ("a.example", {"token": "t", "user": "u"}, "either a token or a user"),
        ("a.example", {"token": "t", "password": "p"}, "either a token or a user"),
    ],
)
def test_an_entry_that_means_nothing_is_refused(key: str, value: Any, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        load_credentials({key: value}, NOBODY)


def test_a_redirect_to_another_origin_takes_no_credentials_along_c10() -> None:
    seen: dict[str, str | None] = {}

    def answer(request: Any) -> SimulatedResponse:
        seen[request.url] = request.headers.get("Authorization")
        if request.url.endswith("/away"):
            return SimulatedResponse(status=302, headers={"Location": "http://b.example/"})
        return SimulatedResponse()

    class Away(trawl.Spider):
        name = "away"
        start_urls = ("http://a.example/away",)
        http_user, http_pass, http_auth_domain = "u", "p", "a.example"

        def parse(self, response: Response, **kwargs: Any) -> Any:
            return {"url": response.url, "kept": response.request.headers.get("Authorization")}  # type: ignore[union-attr]

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    web.add_host("b.example", handler=answer)
    sim = simulate(Away, web)
    assert seen == {"http://a.example/away": encoded("u:p"), "http://b.example/": None}
    assert sim.items == [{"url": "http://b.example/", "kept": None}]


def test_credentials_that_are_not_complete_end_the_crawl_before_anything_is_sent() -> None:
    class Half(trawl.Spider):
        name = "half"
        start_urls = ("http://a.example/",)
        http_user = "u"

    web = SimulatedWeb()
    web.add_host("a.example")
    with pytest.raises(UsageError, match="http_user and http_pass need http_auth_domain"):
        simulate(Half, web)
