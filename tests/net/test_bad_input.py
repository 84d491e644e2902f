"""The table of bad input that only a wire shows: the real command against servers that misbehave.

Each ends with one clear line on standard error, without a traceback, and the crawl comes to its own end: a page that
can't be had is no failure of the crawl.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from tests.net.badserver import BEHAVIOURS, serving
from trawl.cli import main

SPIDER = """
import trawl

class Bad(trawl.Spider):
    name = "bad"

    async def start(self):
        yield trawl.Request(self.url)

    def parse(self, response):
        yield {"url": response.url}
"""

NO_WAIT = (
    "DOWNLOAD_DELAY=0",
    "DOWNLOAD_DELAY_PER_SLOT=0",
    "ROBOTSTXT_OBEY=false",
    "RETRY_TIMES=0",
    "BACKOFF_MIN_DELAY=0.02",
    "BACKOFF_GIVE_UP_AFTER=0.01",  # an outage ends nobody before that
)
SETTINGS = [part for setting in NO_WAIT for part in ("-s", setting)]


def written(folder: Path) -> Path:
    """``folder``, with the spider in it."""
    (folder / "spider.py").write_text(SPIDER)
    return folder


def is_empty(feed: Path) -> bool:
    """Whether a feed is there, and has no record."""
    return feed.read_text() == ""


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("closes_without_an_answer", "closed"),
        ("closes_in_the_headers", "closed"),
        ("closes_in_the_body", "closed"),
        ("says_a_length_too_short", "Content-Length"),
        ("sends_headers_for_ever", "header"),
        ("sends_one_header_for_ever", "header"),
        ("redirects_in_a_loop", "redirect"),
        ("redirects_to_a_file", "file:"),
        ("is_not_http", "not HTTP"),
        ("resets", "reset"),
    ],
)
async def test_a_server_that_misbehaves_is_told_in_one_line(
    behaviour: str, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(written(tmp_path))
    async with serving(BEHAVIOURS[behaviour]) as server:
        arguments = ["crawl", "spider.py", "-a", f"url={server.url}", *SETTINGS, "-O", "out.jsonl"]
        # The command starts Trio itself: here in a thread, beside the server's.
        status = await trio.to_thread.run_sync(partial(main, arguments))
    err = capfd.readouterr().err
    lines = err.partition("no good response")[0].splitlines()  # requests that end with their host come later
    told = [line for line in lines if server.url in line and words.lower() in line.lower()]
    loud = [line for line in told if " WARNING: " in line or " ERROR: " in line]
    assert status == 0
    assert len(loud) == 1, err
    assert " ERROR: " in loud[0], "the page is lost: that its host is asked more slowly now is said quietly"
    assert "Traceback" not in err
    assert is_empty(tmp_path / "out.jsonl")


@pytest.mark.parametrize(
    ("url", "status", "words"),
    [
        ("http://127.0.0.1:1/", 0, "127.0.0.1:1"),  # nobody listens there
        ("http://does-not-exist.invalid/", 0, "does-not-exist.invalid"),  # RFC 6761, 6.4: never resolves
        ("https://127.0.0.1:1/", 0, "127.0.0.1:1"),
        ("ftp://a.example/", 0, "scheme filtered"),
        ("a.example", 1, "not an absolute URL"),
    ],
)
def test_a_place_that_cannot_be_reached_is_told_in_one_line(
    url: str,
    status: int,
    words: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(written(tmp_path))
    assert main(["crawl", "spider.py", "-a", f"url={url}", *SETTINGS]) == status
    err = capfd.readouterr().err
    told = [line for line in err.splitlines() if " ERROR: " in line]
    assert len(told) == 1, err
    assert words in told[0]
    assert "Traceback" not in err
