"""Several spiders in one command: side by side, under one throttle."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from rich.console import Console

from tests.cli.simulated import QUICK, WITHOUT_DELAY, crawl_on
from trawl.cli import main
from trawl.cli.crawl import crawl_command
from trawl.cli.crawl_entry import CrawlOptions, worst
from trawl.testing import SimulatedResponse, SimulatedWeb

SPIDER = """
import trawl


class {kind}(trawl.Spider):
    name = "{name}"
    start_urls = ["http://a.example/{name}/0"]
    {settings}

    def parse(self, response):
        self.logger.info("read %s", response.url)
        yield {{"url": response.url}}
        {then}
"""


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def written(name: str, *, settings: str = "", then: str = "") -> None:
    text = SPIDER.format(kind=name.capitalize(), name=name, settings=settings, then=then)
    Path(f"{name}_spider.py").write_text(text)


def a_web(**options: Any) -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host("a.example", **options)
    return web


def crawled(*arguments: str, web: SimulatedWeb | None = None) -> int:
    return main(["crawl", *arguments, *QUICK], crawl_with=crawl_on(web or a_web()))


@pytest.mark.parametrize("spiders", [("books", "prices"), ("--all",), ("books_spider.py", "prices_spider:Prices")])
def test_each_has_its_own_feed_and_statistics_and_the_log_tells_them_apart(
    spiders: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    written("books")
    written("prices")
    assert crawled(*spiders, "-O", "%(name)s.jsonl", "--stats", "stats.json") == 0
    for name in ("books", "prices"):
        assert json.loads(Path(f"{name}.jsonl").read_text()) == {"url": f"http://a.example/{name}/0"}
    stats = json.loads(Path("stats.json").read_text())
    assert {name: (each["item_scraped_count"], each["finish_reason"]) for name, each in stats.items()} == {
        "books": (1, "finished"),
        "prices": (1, "finished"),
    }
    _, told = capfd.readouterr()
    assert "[books] INFO: books: read http://a.example/books/0" in told
    assert "INFO: prices: ended: finished" in told
    assert [line.split() for line in told.splitlines() if line.strip().startswith("spider")] == [
        ["spider", "books"],
        ["spider", "prices"],
    ]
    (scope,) = [line for line in told.splitlines() if line.strip().startswith("a.example ")]
    assert scope.split()[1] == "4"  # both their pages, and robots.txt for each


def test_one_that_fails_leaves_the_others_alone_and_the_status_is_the_worst(
    capfd: pytest.CaptureFixture[str],
) -> None:
    written("books", then="yield response.follow('1') if response.url.endswith('0') else None")
    written("broken", settings='custom_settings = {"FEEDS": {"nowhere/x.foo": {}}}')
    assert crawled("broken", "books", "--stats", "stats.json") == 2
    stats = json.loads(Path("stats.json").read_text())
    assert stats["books"]["item_scraped_count"] == 2
    assert stats["broken"] == {"finish_reason": "failed"}
    assert "trawl: broken: feed nowhere/x.foo: unknown format 'foo'" in capfd.readouterr().err
    assert crawled("books", "--fail-on", "no-items") == 0


def test_a_bug_in_a_pipeline_of_one_is_told_with_its_name(capfd: pytest.CaptureFixture[str]) -> None:
    Path("bad.py").write_text("class Bad:\n    def open_spider(self, spider):\n        raise KeyError('x')\n")
    written("books")
    written("broken", settings='custom_settings = {"ITEM_PIPELINES": {"bad.Bad": 1}}')
    assert crawled("broken", "books") == 1
    told = capfd.readouterr().err
    assert "CRITICAL: broken: the crawl failed" in told
    assert "INFO: books: ended: finished" in told


def test_what_one_of_them_came_to_is_a_line_with_its_name(capfd: pytest.CaptureFixture[str]) -> None:
    written("books")
    written("prices", then="1 / 0")
    assert crawled("books", "prices", "--fail-on", "errors") == 3
    assert "prices: the crawl fails on errors: errors in callbacks: 1" in capfd.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no spider is named: write its name or FILE.py, or --all (`trawl list` shows all spiders)"),
        (("books", "--job", ""), "--job takes a directory or an address, not ''"),
        (("--all", "books"), "--all crawls with every spider below this folder: do not name spiders too"),
        (("books", "books"), "the spiders Books and Books have the name 'books': use different names"),
        (
            ("books", "prices", "-o", "x.csv"),
            "Books and Prices would write to the same feed, 'x.csv': put %(name)s into its name",
        ),
        (
            ("books", "prices", "-o", "x-%(time)s.csv"),
            "Books and Prices would write to the same feed, 'x-%(time)s.csv': put %(name)s into its name",
        ),
        (
            ("books", "prices", "--job", "jobs"),
            "Books and Prices would have the same JOB_DIR, 'jobs': write --job with %(name)s for the spider's name,"
            " as in --job jobs/%(name)s",
        ),
        (
            ("books", "prices", "--job", "redis://me:secret@store.example/all"),
            "Books and Prices would have the same JOB_DIR, 'redis://me:***@store.example/all': write --job with"
            " %(name)s for the spider's name, as in --job jobs/%(name)s",
        ),
        (
            ("books", "prices", "-s", "WARC_FILE=x.warc.gz"),
            "Books and Prices would have the same WARC_FILE, 'x.warc.gz': set different ones in `custom_settings`",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_sent(
    arguments: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    written("books")
    written("prices")
    assert crawled(*arguments) == 2
    assert capfd.readouterr().err == f"trawl: {said}\n"


def test_the_password_of_a_job_is_in_no_log(capfd: pytest.CaptureFixture[str]) -> None:
    written("books")
    assert crawled("books", "--job", "redis://me:secret@127.0.0.1:1/books", "--log-level", "DEBUG") == 1
    told = capfd.readouterr().err
    assert "job redis://127.0.0.1:1/books: its server can't be reached" in told
    assert "secret" not in told


def test_all_of_an_empty_folder_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert crawled("--all") == 2
    said = "--all: there is no spider below this folder; `trawl new spider NAME DOMAIN` writes one"
    assert capfd.readouterr().err == f"trawl: {said}\n"


def test_all_leaves_out_no_file_that_can_not_be_parsed(capfd: pytest.CaptureFixture[str]) -> None:
    written("books")
    Path("prices_spider.py").write_text("import trawl\nclass Prices(trawl.Spider)\n    name = 'prices'\n")
    assert crawled("--all") == 1  # nothing else is said: no crawl has begun
    assert capfd.readouterr().err == "trawl: prices_spider.py, line 2: SyntaxError: expected ':'\n"


def test_each_has_a_job_of_its_own() -> None:
    written("books")
    written("prices")
    for _ in range(2):
        assert crawled("books", "prices", "--job", "jobs/%(name)s", "-O", "%(name)s.jsonl") == 0
    assert sorted(path.name for path in Path("jobs").iterdir()) == ["books", "prices"]
    assert len(Path("books.jsonl").read_text().splitlines()) == 1  # the second run found nothing left to do


def test_ctrl_c_ends_all_of_them_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    sent: list[str] = []

    async def answer(request: Any) -> SimulatedResponse:
        sent.append(request.url)
        if len(sent) == 2:  # both are in flight
            os.kill(os.getpid(), signal.SIGINT)
        await trio.sleep(0.05)
        return SimulatedResponse()

    for name in ("books", "prices"):
        written(name, then="yield response.follow(str(int(response.url[-1]) + 1))")
    web = a_web(handler=answer)
    status = crawled("books", "prices", "-s", "ROBOTSTXT_OBEY=false", "-s", "CONCURRENT_REQUESTS_PER_DOMAIN=2", web=web)
    assert (status, len(sent)) == (130, 2)
    told = capfd.readouterr().err
    assert "SIGINT: sending nothing new, waiting for 2 in flight" in told
    assert "books: ended: shutdown" in told
    assert "prices: ended: shutdown" in told


def test_on_a_terminal_the_panels_give_way_to_the_summaries() -> None:
    for name in ("books", "prices"):
        written(name)
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=99, _environ={"TERM": "xterm"})
    options = CrawlOptions(targets=("books", "prices"), settings=(*WITHOUT_DELAY[1::2], "ROBOTSTXT_OBEY=false"))
    assert crawl_command(options, crawl_on(a_web()), console) == 0
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("finished") == 4  # as each ends, and in its summary


def test_the_worst_status_is_that_of_usage_then_failure_then_an_interruption() -> None:
    assert [worst(each) for each in ([0, 0], [0, 3], [3, 130], [130, 1, 0], [1, 2])] == [0, 3, 130, 1, 2]
