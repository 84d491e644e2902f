"""A throttled host holds nothing that a free one needs: one such host alone, beside 15 and beside 100 of the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

import trawl
from tests.servers.names import LoopbackNames
from tests.servers.nginx import Nginx, running
from tests.watched_crawl import crawl_with
from trawl.engine import Crawl
from trawl.http import Outcome
from trawl.scheduler import Attempt
from trawl.settings import Layer, load

pytestmark = pytest.mark.servers

PAGES = 60
SLOTS = 4
LATENCY = 0.2
"""Seconds that the free host takes for a page."""

FREE = "free.localhost"
SERVER = """
        gzip off;
        location / { try_files /page.html =404; limit_rate 100k; sendfile on; sendfile_max_chunk 20k; }
        location /busy/ { try_files /small.html =404; }
"""
"""The free host's pages come in two pieces, the second one 0.2 s (20 kB at 100 kB/s) after the first."""

SETTINGS = load(
    Layer(
        "test",
        {
            "CONCURRENT_REQUESTS": 0,
            "ROBOTSTXT_OBEY": False,
            "DOWNLOAD_DELAY": 1.0,
            "THROTTLING_SCOPES": {FREE: {"concurrency": SLOTS, "delay": 0.0, "delay_per_slot": 0.0}},
        },
    )
)


class FreeBesideThrottled(trawl.Spider):
    """The free host's pages, and as many of each throttled host's as its delay allows meanwhile, and more."""

    name = "free-beside-throttled"
    port = 0
    throttled = 0

    async def start(self) -> AsyncIterator[trawl.Request]:
        for number in range(PAGES):
            yield trawl.Request(f"http://{FREE}:{self.port}/{number}")
            if number < 3 * PAGES * LATENCY / SLOTS:
                for host in range(self.throttled):
                    yield trawl.Request(f"http://throttled-{host}.localhost:{self.port}/busy/{number}")

    def parse(self, response: trawl.Response) -> None:
        pass


class FreeHost:
    """Notes the free host's sends and ends, and ends the crawl with the last of them."""

    def __init__(self) -> None:
        self.sent: list[float] = []
        self.ended: list[float] = []
        self.others = 0
        self._done = trio.Event()

    def record(self, attempt: Attempt, outcome: Outcome | None, now: float) -> None:
        if FREE not in attempt.request.url:
            self.others += outcome is not None
            return
        (self.sent if outcome is None else self.ended).append(now)
        if len(self.ended) == PAGES:
            self._done.set()

    async def watch(self, crawl: Crawl) -> None:
        await self._done.wait()
        crawl.shutdown()

    @property
    def took(self) -> float:
        """Seconds from its first send to its last page."""
        return self.ended[-1] - self.sent[0]


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[Nginx]:
    root, folder = tmp_path / "root", tmp_path / "nginx"
    root.mkdir()
    folder.mkdir()
    (root / "page.html").write_text("<title>a page</title>" + "x" * 21_000, encoding="utf-8")
    (root / "small.html").write_text("<title>a small page</title>", encoding="utf-8")
    with running(folder, root, server=SERVER) as server:
        yield server


async def crawled(nginx: Nginx, *, throttled: int) -> float:
    """Seconds that the free host takes beside so many throttled ones."""
    host = FreeHost()
    await crawl_with(
        FreeBesideThrottled,
        SETTINGS,
        spider_args={"port": nginx.port, "throttled": throttled},
        resolve=LoopbackNames(),
        watchers=[host.watch],
        recorder=host.record,
    )
    assert host.others >= 2 * throttled, "the throttled hosts did nothing: this proves nothing"
    return host.took


async def test_a_free_host_is_not_held_by_15_or_100_throttled_hosts(nginx: Nginx) -> None:
    """The free host's row of "Fairness and cost", on a real wire: nothing waits in its way.

    One that waited its turn behind the others would take their seconds, many times its own. How near it comes to its
    time alone is measured in ``benchmarks/free_host.py``; on the virtual clock the two are held to be equal.
    """
    alone = await crawled(nginx, throttled=0)
    for throttled in (15, 100):
        assert await crawled(nginx, throttled=throttled) < 1.5 * alone
