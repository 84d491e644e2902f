# ruff: noqa: E501  # a spider and what is said of it stand in one line
"""Spiders that send nothing, and spiders of whose pages nothing comes: said by ``check``, and by ``crawl``."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

import trawl
from tests.cli.simulated import QUICK, crawl_on
from trawl.cli import main
from trawl.testing import SimulatedWeb

URLS = '    start_urls = ["http://a.example/"]\n'
PARSE = "    def parse(self, response):\n        yield {}\n"


def method(line: str, head: str = "def parse(self, response):") -> str:
    return f"{URLS}    {head}\n        {line}\n    def more(self, response):\n        yield {{}}\n"


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def written(body: str, kind: str = "Spider") -> None:
    Path("idle.py").write_text(
        f"import trawl, trio, time, asyncio\n\nclass Idle(trawl.{kind}):\n    name = 'idle'\n{body}"
    )


def crawled() -> int:
    web = SimulatedWeb()
    web.add_page("http://a.example/", links=["/1"])
    return main(["crawl", "idle.py", "-q", "-s", "ROBOTSTXT_OBEY=false", *QUICK], crawl_with=crawl_on(web))


NOTHING = [
    (PARSE, "idle.py:3: Idle has neither start_urls nor start(): no request will be sent"),
    (f'    start_url = ["http://a.example/"]\n{PARSE}', "idle.py:5: unknown attribute start_url; did you mean start_urls?"),
    ("    def parse_page(self, response):\n        yield {}\n    strat_urls = []\n", "idle.py:7: unknown attribute strat_urls; did you mean start_urls?"),
]  # fmt: skip

UNSET = (
    "    async def start(self):\n        for url in self.start_urls:\n            yield trawl.Request(url)\n",
    "idle.py:5: start() reads start_urls, which is never set: no request will be sent",
)

LOST = [
    (URLS, "idle.py:3: Idle has no parse(), the callback of start_urls"),
    (URLS + PARSE.replace("parse", "prase"), "idle.py:6: Idle has no parse(), the callback of start_urls; did you mean prase()?"),
    (URLS + PARSE.replace(", response", ""), "idle.py:6: parse() must accept the response; write def parse(self, response)"),
    (method('yield response.follow_all(css="a")'), "idle.py:7: yields a whole generator instead of its outputs; write `yield from response.follow_all(...)`"),
    (method('yield response.follow_all(css="a")', "async def parse(self, response):"), "idle.py:7: yields a whole generator instead of its outputs; write `for output in response.follow_all(...): yield output`"),
    (method("yield self.more(response)"), "idle.py:7: yields a whole generator instead of its outputs; write `yield from self.more(...)`"),
    (method("self.more(response)"), "idle.py:7: the result is discarded; write `yield from self.more(...)`"),
    (method('response.follow("/1", self.more)'), "idle.py:7: the request is never sent; write `yield response.follow(...)`"),
    (method('trawl.Request("http://a.example/1", self.more)'), "idle.py:7: the request is never sent; write `yield trawl.Request(...)`"),
]  # fmt: skip

WRONG = [
    *NOTHING,
    UNSET,
    *LOST,
    (method("trio.sleep(1)", "async def parse(self, response):"), "idle.py:7: missing `await`, so nothing is done; write `await trio.sleep(...)`"),
    (method("x = self.fetch(trawl.Request('http://a.example/1')); yield {'x': x.status}", "async def parse(self, response):"), "idle.py:7: missing `await` before self.fetch(); write `await self.fetch(...)`"),
    (method("await asyncio.sleep(1)", "async def parse(self, response):"), "idle.py:7: asyncio does not work in a crawl, which runs on Trio; use trio.sleep()"),
    (method("time.sleep(1)"), "idle.py:7: time.sleep() blocks the whole crawl; use await trio.sleep() in an async callback"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "said"), WRONG)
def test_check_says_so_by_file_and_line(body: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    written(body)
    assert main(["check", "idle.py"]) == 1
    assert said in capsys.readouterr().out.splitlines()


RIGHT = [
    "    start_urls = []\n" + PARSE,
    "    def __init__(self, url='x', **more):\n        super().__init__(**more)\n        self.start_urls = [url]\n" + PARSE,
    "    start_url = 'http://a.example/'\n    async def start(self):\n        yield trawl.Request(self.start_url)\n" + PARSE,
    "    async def start(self):\n        yield trawl.Request('http://a.example/', self.other)\n    def other(self, response):\n        yield {}\n",
    "    @classmethod\n    def from_crawler(cls, crawler):\n        made = super().from_crawler(crawler)\n        crawler.signals.connect(made.fed, 'spider_idle')\n        return made\n    def fed(self):\n        pass\n" + PARSE,
    URLS + "    async def parse(self, response):\n        def work():\n            time.sleep(1)\n        await self.crawl.blocking.run(work)\n        async with trio.open_nursery() as nursery:\n            nursery.start_soon(self.fetch, response.request)\n        yield {}\n",
    method("yield from response.follow_all(css='a')"),
    method("yield from self.more(response)"),
    method("requests = response.follow_all(css='a'); yield from requests"),
    method("return response.follow_all(css='a')"),
    method("x = await self.fetch(response.request); yield {'x': x.status}", "async def parse(self, response):"),
    method("x = self.fetch(response.request); y = await x; yield {'x': y.status}", "async def parse(self, response):"),
]  # fmt: skip


@pytest.mark.parametrize("body", RIGHT)
def test_check_says_nothing_of_what_is_meant(body: str, capsys: pytest.CaptureFixture[str]) -> None:
    written(body)
    assert main(["check", "idle.py"]) == 0
    assert capsys.readouterr().out == "1 spider: nothing wrong\n"


@pytest.mark.parametrize("kind", ["CrawlSpider", "XMLFeedSpider", "FeedSpider", "CSVFeedSpider"])
def test_a_kind_of_spider_that_has_its_own_callbacks_needs_no_parse(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(URLS, kind)
    main(["check", "idle.py"])
    assert "no parse()" not in capsys.readouterr().out


@pytest.mark.parametrize(("body", "said"), NOTHING)
def test_a_crawl_with_nothing_to_begin_with_says_so_and_fails(
    body: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    written(body)
    assert crawled() == 1
    err = capfd.readouterr().err
    assert "WARNING: nothing was sent: start() gave no request\n" in err
    assert f"WARNING: {said}\n" in err


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("    start_urls = []\n", "start() gave no request"),
        ("    async def start(self):\n        for request in ():\n            yield request\n", "start() gave no request"),
        ("    async def start(self):\n        yield trawl.Request('ftp://a.example/')\n", "not http or https: 1"),
    ],
)  # fmt: skip
def test_a_crawl_that_had_nothing_to_send_says_so_and_has_ended_well(
    body: str, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    written(body + PARSE)
    assert crawled() == 0
    assert f"WARNING: nothing was sent: {why}\n" in capfd.readouterr().err


@pytest.mark.parametrize(("body", "said"), LOST)
def test_a_crawl_of_which_no_item_comes_says_what_may_be_why(
    body: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    written(body)
    crawled()
    assert f"WARNING: {said}\n" in capfd.readouterr().err


def test_a_crawl_that_gives_items_is_not_looked_at(capfd: pytest.CaptureFixture[str]) -> None:
    written(method("yield {}; self.more(response)"))
    assert crawled() == 0
    assert "WARNING" not in capfd.readouterr().err


async def test_a_program_hears_of_a_crawl_that_sends_nothing(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Idle(trawl.Spider[Any]):
        name = "idle"

    result = await trawl.crawl(Idle)
    async with trawl.open_crawl(Idle) as crawl:
        assert [item async for item in crawl] == []
    assert result.reason == "finished"
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["nothing was sent: start() gave no request"] * 2
