"""A `{name}` that a string without its `f` leaves in a URL is warned of once."""

from __future__ import annotations

from typing import Any

import pytest

import trawl
from trawl.http import Response
from trawl.testing import SimulatedWeb, simulate


def warnings(urls: list[str], caplog: pytest.LogCaptureFixture, body: str = "", found: str = "") -> list[str]:
    class Asks(trawl.Spider):
        name = "asks"
        start_urls = urls

        def parse(self, response: Response) -> Any:
            if found and response.url.endswith("/"):
                yield response.follow(found)

    web = SimulatedWeb()
    web.add_host("a.example", body=body)
    simulate(Asks, web, {"ROBOTSTXT_OBEY": False})
    return [record.getMessage() for record in caplog.records if "its URL has" in record.getMessage()]


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/{page}",
        "http://a.example/%7Bpage%7D/x",
        "http://a.example/?page={page}",
        "http://a.example/#{page}",
    ],
)
def test_a_name_in_braces_is_told(url: str, caplog: pytest.LogCaptureFixture) -> None:
    [message] = warnings([url, f"{url}/again"], caplog)
    assert message.endswith(
        'its URL has {page} in it: put an f before the string, f"...{page}...", to have the value there'
    )


def test_of_one_that_a_callback_gives_the_page_is_told(caplog: pytest.LogCaptureFixture) -> None:
    [message] = warnings(["http://a.example/"], caplog, found="/list/{self.page}")
    assert "(found on http://a.example/)" in message


def test_a_link_that_is_on_the_page_so_is_not(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings(["http://a.example/"], caplog, body="<a href='/{page}'>", found="/{page}") == []


@pytest.mark.parametrize("url", ["http://a.example/{}", "http://a.example/{1}", 'http://a.example/?q={"a":1}'])
def test_other_braces_are_not(url: str, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings([url], caplog) == []
