"""How crawls are run: examples/dead_links.py, fed.py, lines.py, metrics.py, program.py, replay.py and test_pace.py."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trio

import trawl
from examples.dead_links import DeadLink, DeadLinks
from examples.fed import TABLE, Fed
from examples.lines import main as run_lines
from examples.metrics import Watched
from examples.program import Books, Quotes, main
from examples.replay import Books as Replayed
from examples.replay import replay
from tests.examples.sandboxes import add_books, next_link, page
from trawl.engine import Crawl
from trawl.testing import Outage, SimulatedResponse, SimulatedWeb, simulate

QUICK = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "ROBOTSTXT_OBEY": False}


class Handler(BaseHTTPRequestHandler):
    """Every page is a quote and a book, and says its path; ``/gone`` is not there."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        body = page(
            f'<title>{self.path}</title><div class="quote"><span class="text">{self.path}</span></div>'
            f'<article class="product_pod"><h3><a title="{self.path}"></a></h3></article>'
        ).encode()
        self.send_response(404 if self.path == "/gone" else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@asynccontextmanager
async def serving() -> AsyncGenerator[str, None]:
    """A site on loopback; its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as site:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, site.serve_forever, 0.01)
            try:
                yield f"http://127.0.0.1:{site.server_address[1]}"
            finally:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(site.shutdown)


# Which links are dead?


def a_web_of_links() -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host("a.example")
    web.add_page("http://a.example/gone", status=404)
    web.add_redirect("http://a.example/moved", "http://a.example/here")
    web.add_host("down.example", status=503)
    web.add_host("closed.example", robots="User-agent: *\nDisallow: /\n")

    def no_heads(request: trawl.Request) -> SimulatedResponse:
        return SimulatedResponse(405 if request.method == "HEAD" else 200)

    web.add_host("old.example", handler=no_heads)
    return web


LINKS = """
http://a.example/here
http://a.example/gone

http://a.example/moved
no link
http://down.example/
http://old.example/
http://nowhere.example/
http://closed.example/
"""


def test_dead_links_are_told_with_what_is_wrong_with_each(tmp_path: Path) -> None:
    (tmp_path / "urls.txt").write_text(LINKS, encoding="utf-8")
    sim = simulate(DeadLinks, a_web_of_links(), file=str(tmp_path / "urls.txt"), errors="collect")
    dead = {item.url: item for item in sim.items}
    assert len(sim.items) == len(dead)
    assert dead.keys() == {"http://a.example/gone", "no link", "http://nowhere.example/", "http://down.example/"}
    assert dead["http://down.example/"].status == 503
    assert "given up" in dead["http://down.example/"].why
    assert dead["http://a.example/gone"] == DeadLink("http://a.example/gone", 404, "answered 404")
    assert "nowhere.example" in dead["http://nowhere.example/"].why
    assert [send.method for send in sim.of("old.example")] == ["GET", "HEAD", "GET"]  # robots.txt first
    assert (sim.stats["refused"], sim.stats["robots_forbidden"]) == (1, 1)  # down for long; not to be asked


def test_a_job_of_dead_links_that_was_stopped_goes_on_and_tells_each_once(tmp_path: Path) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", status=404)
    urls = [f"http://a.example/{number}" for number in range(12)]
    (tmp_path / "urls.txt").write_text("\n".join(urls), encoding="utf-8")
    settings = {"JOB_DIR": str(tmp_path / "job"), "FEEDS": {str(tmp_path / "dead.jsonl"): {}}, "ROBOTSTXT_OBEY": False}
    run = partial(simulate, DeadLinks, web, file=str(tmp_path / "urls.txt"))
    first = run(settings={**settings, "CLOSESPIDER_TIMEOUT": 4.5})
    second = run(settings=settings)
    assert (first.reason, second.reason) == ("closespider_timeout", "finished")
    assert 0 < len(first.sends) < 12
    assert [send.url for send in (*first.sends, *second.sends)] == urls
    dead = [json.loads(line)["url"] for line in (tmp_path / "dead.jsonl").read_text("utf-8").splitlines()]
    assert dead == urls


# A queue.

ROWS = "SELECT status, title, error FROM queue ORDER BY number"


def ask(path: Path, question: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(question).fetchall()


def test_fed_answers_what_is_put_into_its_queue_before_and_while_it_runs(tmp_path: Path) -> None:
    queue, seen = tmp_path / "queue.sqlite", []

    async def watch(crawl: Crawl) -> None:
        await trio.sleep(60.0)  # nothing has been left in the queue for a long time
        seen.append(ask(queue, ROWS))
        ask(queue, f"INSERT INTO queue (url) VALUES ('{url}/gone'), ('{url}/one')")
        await trio.sleep(60.0)
        crawl.shutdown()

    url, web = "http://a.example", SimulatedWeb()
    web.add_host("a.example", status=404)
    for name in ("/one", "/taken"):
        web.add_page(f"{url}{name}", title=name)
    ask(queue, TABLE)
    given = f"('{url}/one', 0), ('no url', 0), ('{url}/taken', 1)"  # the last by a crawl that was killed
    ask(queue, f"INSERT INTO queue (url, taken) VALUES {given}")
    sim = simulate(Fed, web, settings={"QUEUE": str(queue), "WATCHERS": {watch: 0}})
    assert sim.reason == "shutdown"
    [first], rest = seen, ask(queue, ROWS)
    assert [row[:2] for row in first] == [(200, "/one"), (None, None), (200, "/taken")]
    assert "no url" in first[1][2]
    assert [row[:2] for row in rest[3:]] == [(404, None), (200, "/one")]
    assert "answered 404" in rest[3][2]


# Figures for Prometheus.


def test_metrics_are_written_while_the_crawl_runs_and_at_its_end(tmp_path: Path) -> None:
    web = SimulatedWeb()
    path = tmp_path / "trawl.prom"
    seen: list[str] = []

    def site(request: trawl.Request) -> SimulatedResponse:
        if path.exists():
            seen.append(path.read_text("utf-8"))
        number = int(request.url.rstrip("/").rpartition("/")[2]) if "page" in request.url else 1
        more = next_link(f"/page/{number + 1}/") if number < 20 else ""
        return SimulatedResponse(body=page(f'<div class="quote"></div>{more}'))

    web.add_host("127.0.0.1:8765", handler=site, outages=[Outage(5.0, 6.0, status=503)])
    limits = {"127.0.0.1:8765": {"concurrency": 1, "delay": 1.0}}
    sim = simulate(Watched, web, {"METRICS_FILE": str(path), "METRICS_SECONDS": 5.0, "THROTTLING_SCOPES": limits})
    assert len(sim.items) == 20
    assert "trawl_items_total 0\n" in seen[0]
    assert len(set(seen)) >= 4
    last = path.read_text("utf-8").splitlines()
    assert "trawl_queued 0" in last
    assert "trawl_items_total 20" in last
    assert 'trawl_responses_total{status="200"} 20' in last
    assert 'trawl_backoffs_total{scope="127.0.0.1:8765"} 1' in last
    assert [found.name for found in tmp_path.iterdir()] == ["trawl.prom"]


# Pages that another program asks for.


class Printed(io.StringIO):
    """What is printed, and who waits for a part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = trio.Event()

    def write(self, text: str) -> int:
        self.changed.set()
        self.changed = trio.Event()
        return super().write(text)

    async def has(self, text: str) -> None:
        """Return when it is there."""
        while text not in self.getvalue():
            await self.changed.wait()


async def test_lines_are_crawled_as_they_come_until_there_are_no_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = Printed()
    monkeypatch.setattr(sys, "stdout", printed)
    outbox, inbox = trio.open_memory_channel[str](0)
    async with serving() as site, trio.open_nursery() as nursery:
        nursery.start_soon(partial(run_lines, inbox, **QUICK))
        async with outbox:
            await outbox.send(f"{site}/1\n")
            with trio.fail_after(60):
                await printed.has("/1")  # its title is there before the next line comes
            for line in ("no link\n", f"{site}/2\n", f"{site}/3\n"):
                await outbox.send(line)
    titles = [json.loads(line)["title"] for line in printed.getvalue().splitlines()]
    assert sorted(titles) == ["/1", "/2", "/3"]
    assert "no link" in capsys.readouterr().err


# Several spiders in a program.


async def test_program_prints_the_items_of_both_crawls(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as url:
        monkeypatch.setattr(Quotes, "start_urls", [f"{url}/a", f"{url}/b"])
        monkeypatch.setattr(Books, "start_urls", [f"{url}/c"])
        await main(Quotes, Books, **QUICK)
    printed = capsys.readouterr()
    items = [json.loads(line) for line in printed.out.splitlines()]
    assert sorted((item["spider"], item.get("title") or item["text"]) for item in items) == [
        ("love", "/a"),
        ("love", "/b"),
        ("poetry", "/c"),
    ]
    assert sorted(line.partition(" in ")[0] for line in printed.err.splitlines()) == [
        "love: finished, 2 pages",
        "poetry: finished, 1 pages",
    ]


async def test_program_tells_of_a_crawl_that_got_no_page(capsys: pytest.CaptureFixture[str]) -> None:
    class Nobody(Quotes):
        start_urls = ["http://127.0.0.1:1/"]

    await main(Nobody, **QUICK, RETRY_ENABLED=False)
    assert capsys.readouterr().err.startswith("love: finished, 0 pages in ")


# Kept traffic.


def test_replay_runs_the_spider_again_on_what_was_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    web = SimulatedWeb()
    add_books(web)
    first = simulate(Replayed, web, {"WARC_FILE": str(tmp_path / "books.warc.gz"), "DEPTH_LIMIT": 2})
    replay(str(tmp_path / "books-00001.warc.gz"))
    printed = capsys.readouterr()
    assert [json.loads(line) for line in printed.out.splitlines()] == first.items
    assert len(first.items) == 3
    assert printed.err == ""


def test_replay_tells_what_was_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    web = SimulatedWeb()
    add_books(web)
    simulate(Replayed, web, {"WARC_FILE": str(tmp_path / "books.warc.gz"), "CLOSESPIDER_PAGECOUNT": 1})
    replay(str(tmp_path / "books-00001.warc.gz"))
    assert capsys.readouterr().err == "not in the archive: http://127.0.0.1:8765/books/catalogue/page-2.html\n"


# Tests beside a spider.


def test_test_pace_passes_as_a_user_runs_it(examples: Path) -> None:
    words = ["-p", "no:cacheprovider", "-p", "trawl.testing.plugin", "-q", str(examples / "test_pace.py")]
    quiet = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "pytest_trio.plugin", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=examples.parent, env=quiet, timeout=300
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr
