"""No password of a URL is printed: by the command, in a message, in a log, or in a ``repr``."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import trawl
from trawl.cli import main
from trawl.errors import ConnectFailed, SettingsError, TooManyRedirects, TrawlError, UsageError
from trawl.frontier import Record
from trawl.http import Outcome, Request, Response, join_url, normalize_url
from trawl.passwords import without_passwords
from trawl.testing import SimulatedWeb, simulate
from trawl.throttling.outcomes import describe

URL = "http://me:HUSH@a.example/"

SPIDER = """
import trawl

class Told(trawl.Spider):
    name = "told"
    start_urls = ["http://me:HUSH@127.0.0.1:1/a"]
    custom_settings = {"ROBOTSTXT_OBEY": False, "RETRY_TIMES": 1, "RETRY_DELAY": 0.01, "BACKOFF_EXCEPTIONS": []}

    def parse(self, response):
        pass
"""


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("redis://me:HUSH@h/job", "redis://me:***@h/job"),
        ("http://me:HUSH@h/x?m=a@b", "http://me:***@h/x?m=a@b"),
        ("ftp://me:HU@SH@h/", "ftp://me:***@h/"),
        ("redis://me:HU/SH@h/job", "redis://me:***@h/job"),
        ("http://me:p%40ss@[::1]:80/", "http://me:***@[::1]:80/"),
        ("http://me:123@h:80/", "http://me:***@h:80/"),
        ("http://:HUSH@h", "http://:***@h"),
        ("//me:HUSH@h/x", "//me:***@h/x"),
        ("'http://me:HUSH@h', \"http://you:HUSH@i\"", "'http://me:***@h', \"http://you:***@i\""),
        ("a http://me:HUSH@h,http://me:HUSH@i b", "a http://me:***@h,http://me:***@i b"),
        ("http://h:8080/u/@name", "http://h:8080/u/@name"),
        ("http://[::1]:80/@name", "http://[::1]:80/@name"),
        ("http://h/a:b@c", "http://h/a:b@c"),
        ("http://h: refused, says me@h", "http://h: refused, says me@h"),
        ("http://h:80, me@h", "http://h:80, me@h"),
        ("me@a.example", "me@a.example"),
        ("redis://h/job?db=1&password=HUSH&x=y", "redis://h/job?db=1&password=***&x=y"),
        ("'http://h/login?Passwd=HUSH': 404", "'http://h/login?Passwd=***': 404"),
    ],
)
def test_the_password_of_a_url_is_masked_and_nothing_else(text: str, printed: str) -> None:
    assert without_passwords(text) == printed


def failure_of(function: object, *arguments: str) -> BaseException:
    with pytest.raises(ValueError, match="URL") as caught:
        function(*arguments)  # type: ignore[operator]
    return caught.value


@pytest.mark.parametrize(
    "thing",
    [
        Request(URL),
        Response(URL),
        Record(Request(URL), (("a.example", None),), "http://a.example"),
        ConnectFailed(f"no connection to {URL}", url=URL),
        TooManyRedirects(f"then to {URL}", url=URL),
        UsageError(f"FEEDS: {URL} can't be opened"),
        SettingsError(f"FILES_STORE: {URL}", "FILES_STORE"),
        TrawlError(URL),
        describe(Outcome(Request(URL), Response(URL))),
        failure_of(normalize_url, "http://me:HUSH@["),
        failure_of(join_url, URL, "http://me:HUSH@["),
    ],
)
def test_no_text_of_an_object_holds_a_password(thing: object) -> None:
    assert "HUSH" not in f"{thing!s}"
    assert "HUSH" not in repr(thing) or isinstance(thing, BaseException)
    assert "me:***@" in str(thing)


def test_a_request_and_its_response_still_have_it() -> None:
    assert (Request(URL).url, Response(URL).url) == (URL, URL)


def test_the_log_of_a_program_of_its_own_has_no_password(caplog: pytest.LogCaptureFixture) -> None:
    class Feed(trawl.spiders.SitemapSpider):
        name = "feed"
        sitemap_urls = (URL,)

    caplog.set_level(logging.DEBUG)
    web = SimulatedWeb()
    web.add_host("a.example")
    simulate(Feed, web)
    assert "is not a sitemap" in caplog.text
    assert "HUSH" not in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        ["--log-level", "DEBUG"],
        ["-s", 'FEEDS={"ftp://me:HUSH@127.0.0.1:1/x.jsonl":{"format":"jsonl"}}'],
        ["-s", 'ITEM_PIPELINES={"trawl.pipelines.FilesPipeline":1}', "-s", "FILES_STORE=nosuch://me:HUSH@h/x"],
        ["--job", "nosuch://me:HUSH@h/x"],
        ["--job", "redis://h/x?password=HUSH"],
        ["-s", 'HTTP_AUTH={"a.example":{"user":"me","password":["HUSH"]}}'],
        ["-s", 'HTTP_AUTH={"a.example":{"user":"me","password":"HUSH"'],
    ],
)
def test_the_command_prints_no_password(
    tmp_path: Path, options: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("told_passwords.py").write_text(SPIDER)
    main(["crawl", "told_passwords.py", *options])
    out, err = capfd.readouterr()
    assert "HUSH" not in out + err
    assert len(err) > 20
