"""examples/login.py against a site with a real form, over real connections."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import pytest

import trawl
from examples.login import Login
from tests.examples.form_server import PAGES, serving

AT_ONCE = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0}


async def test_each_user_sees_the_pages_as_logged_in() -> None:
    async with serving() as site:
        result = await trawl.crawl(Login, AT_ONCE, site=site.url)
    assert result.items is not None
    assert Counter(item["user"] for item in result.items) == {"anna": PAGES, "ben": PAGES}
    assert {item["source"] for item in result.items} == {"Walden"}
    assert len(site.users) == 2
    assert {user for method, path, user in site.asked if path.startswith("/page/")} == {"anna", "ben"}


async def test_who_has_the_wrong_password_is_told_and_the_other_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "login")
    async with serving() as site:
        result = await trawl.crawl(Login, AT_ONCE, site=site.url, users="anna:wrong,ben:hidden")
    assert result.items is not None
    assert {item["user"] for item in result.items} == {"ben"}
    assert "anna was not let in" in caplog.text


async def test_the_next_crawl_is_logged_in_already(tmp_path: Path) -> None:
    kept = {**AT_ONCE, "COOKIES_FILE": str(tmp_path / "cookies.json")}
    async with serving() as site:
        await trawl.crawl(Login, kept, site=site.url)
        site.asked.clear()
        result = await trawl.crawl(Login, kept, site=site.url, users="anna:,ben:")
    assert result.items is not None
    assert len(result.items) == 2 * PAGES
    assert [path for method, path, user in site.asked if path == "/login"] == []
