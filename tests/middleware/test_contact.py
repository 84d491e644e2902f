"""The default ``User-Agent`` names nobody but its user, and a crawl suggests to give a contact."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from trawl.errors import SettingsError
from trawl.http import Outcome, Request
from trawl.middleware import AdvisingTransport, MiddlewareSettings
from trawl.middleware.settings import product
from trawl.robots import product_token
from trawl.settings import Layer, load


class Wire:
    async def send(self, request: Request, on_sent: Any) -> Outcome:
        return Outcome(request)

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize(
    "contact",
    [
        "https://your.site/crawler",
        "http://your.site",
        "https://[2001:db8::1]:8443/who?is=it#me",
        "me@your.site",
        "mailto:first.last+crawl@mail.your.site",
    ],
)
def test_a_contact_is_sent_in_the_default_user_agent(contact: str) -> None:
    settings = load(Layer("test", {"CONTACT": contact}))
    assert settings["USER_AGENT"] == f"{product()} (+{contact})"
    assert product_token(settings["USER_AGENT"]) == "trawl"


def test_a_user_agent_of_the_users_own_stays_as_it_is() -> None:
    assert MiddlewareSettings(user_agent="books/1", contact="me@your.site").user_agent == "books/1"


@pytest.mark.parametrize(
    "contact",
    [
        "me",
        "your.site",
        "ftp://your.site/",
        "https://",
        "https:///path",
        "https://me:secret@your.site/",
        "https://your.site/\r\nX-Other: 1",
        "https://your.site/\n",
        "https://your.site/a b",
        "https://your.site/(x)",
        "https://your.site/\\",
        "https://your.site/\x00",
        "https://your.site/\x7f",
        "https://your.site/\u202e",
        "https://m\xfcller.example/",
        "me@your",
        "me@@your.site",
        "me@your.site\x1b[1m",
        " me@your.site",
        "me@your.site, you@your.site",
        "https://your.site/" + "x" * 500,
    ],
)
def test_what_is_no_contact_is_refused_and_named(contact: str) -> None:
    with pytest.raises(SettingsError, match=r"CONTACT must be a URL .* or an e-mail address") as refused:
        load(Layer("test", {"CONTACT": contact}))
    assert str(refused.value).isprintable()


async def urls_told(caplog: pytest.LogCaptureFixture, *urls: str, user_agent: str = "") -> list[str]:
    wire = AdvisingTransport(Wire())
    with caplog.at_level(logging.INFO, "trawl"):
        for url in urls:
            await wire.send(Request(url, headers={"User-Agent": user_agent or product()}), lambda: None)
    advice = [record for record in caplog.records if "set CONTACT" in record.message]
    return [str(record.args[0]) for record in advice if isinstance(record.args, tuple)]


async def test_a_crawl_that_leaves_this_machine_is_advised_once(caplog: pytest.LogCaptureFixture) -> None:
    urls = ["http://localhost/", "http://a.example/", "http://b.example/"]
    assert await urls_told(caplog, *urls) == ["a.example"]


async def test_a_crawl_of_this_machine_is_not(caplog: pytest.LogCaptureFixture) -> None:
    urls = [
        "http://localhost:8000/",
        "http://127.0.0.1/",
        "http://127.9.9.9/",
        "http://[::1]:80/",
        "http://a.localhost/",
    ]
    assert await urls_told(caplog, *urls) == []


async def test_a_crawl_that_says_who_it_is_is_not(caplog: pytest.LogCaptureFixture) -> None:
    assert await urls_told(caplog, "http://a.example/", user_agent="books/1") == []
    assert await urls_told(caplog, "http://a.example/", user_agent=f"{product()} (+me@your.site)") == []
