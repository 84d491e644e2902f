"""A site of page trees, its spider, and the work that command processes have done, for tests of shared jobs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

__all__ = ["PAGES", "SPIDER", "WITHIN", "assert_whole", "pids", "site", "until_gone", "until_items"]

PAGES = 40
WITHIN = 200.0
"""Maximum seconds for a command, on a busy machine."""

SPIDER = """
import os
import trio
import trawl

class Tree(trawl.Spider):
    name = "tree"
    custom_settings = {"DOWNLOAD_DELAY": 0.1, "DOWNLOAD_DELAY_PER_SLOT": 0, "RANDOMIZE_DOWNLOAD_DELAY": False,
                       "ROBOTSTXT_OBEY": False, "JOB_LEASE": 3.0, "RETRY_TIMES": 20, "BACKOFF_MAX_DELAY": 1.0}

    def __init__(self, sites="", processes="1", **arguments):
        super().__init__(**arguments)
        self.start_urls = sites.split()
        self.processes = int(processes)
        with open("born", "a") as file:
            file.write(f"{os.getpid()}\\n")

    async def start(self):
        while len(set(open("born"))) < self.processes:  # all of them crawl from the first pages on
            await trio.sleep(0.02)
        async for request in super().start():
            yield request

    def parse(self, response):
        with open("pids", "a") as file:
            file.write(f"{os.getpid()}\\n")
        yield {"url": response.url}
        yield from response.follow_all(css="a")
"""


class Page(BaseHTTPRequestHandler):
    """A tree of pages."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        number = int(self.path.strip("/") or 0)
        links = [child for child in (2 * number + 1, 2 * number + 2) if child < PAGES]
        body = "".join(f'<a href="/{child}">{child}</a>' for child in links).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[list[str]]:
    """Yield the first pages of several hosts. The hosts are addresses in different partitions of a job."""
    pages = ThreadingHTTPServer(("0.0.0.0", 0), Page)
    thread = threading.Thread(target=pages.serve_forever)
    thread.start()
    yield [f"http://127.0.8.{host}:{pages.server_port}/" for host in range(1, 7)]
    pages.shutdown()
    thread.join()
    pages.server_close()


def pids(folder: Path) -> list[int]:
    """Return the processes that have crawled pages, without duplicates."""
    try:
        return list(dict.fromkeys(int(line) for line in (folder / "pids").read_text().splitlines()))
    except FileNotFoundError:
        return []


def until_items(folder: Path, wanted: int) -> None:
    """Wait until the feed has this many items."""
    feed = folder / "items.jsonl"
    deadline = time.monotonic() + WITHIN
    while not (feed.exists() and feed.read_bytes().count(b"\n") >= wanted):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def until_gone(pid: int) -> None:
    """Wait until a process has ended that is not a child of this process."""
    deadline = time.monotonic() + WITHIN
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()


def assert_whole(folder: Path, site: list[str]) -> None:
    """Assert that the feed has each page of each host once."""
    urls = [json.loads(line)["url"] for line in (folder / "items.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(urls) == len(set(urls))
    assert set(urls) == {f"{host}{number or ''}" for host in site for number in range(PAGES)}
