"""C1: ``trawl crawl --job`` as a process of its own, killed with SIGKILL again and again, and resumed until it ends."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.feeds.fakes import READERS
from trawl.frontier.inspect import export_pending, inspect_job
from trawl.frontier.sections import STATISTICS

SPIDER = """
import trawl

class Linked(trawl.Spider):
    name = "linked"

    def __init__(self, server, **arguments):
        super().__init__(**arguments)
        self.start_urls = [server + "/0"]

    def parse(self, response):
        yield {"url": response.url, "text": "one <of> many,\\n" * 20}
        yield from response.follow_all(css="a")
"""
SETTLED = 0.01
"""Seconds without work for the site after which all that a dead process has sent was read."""

SETTINGS = (
    "ROBOTSTXT_OBEY=false",
    "CONCURRENT_REQUESTS_PER_DOMAIN=8",
    "DOWNLOAD_DELAY=0",
    "DOWNLOAD_DELAY_PER_SLOT=0",
    "BACKOFF_MAX_DELAY=1",
)
PATIENCE = 250.0
"""Seconds after which a test that hangs fails."""


class Site:
    """Pages linked to three more each and to what comes after them, so that most links lead to what was seen.

    Attributes:
        url: Where it listens.
        asked: How often each path was asked for.
    """

    def __init__(self, pages: int) -> None:
        self.url = ""
        self.asked: Counter[str] = Counter()
        self._pages = pages
        self._came = trio.Condition()

    async def until_asked(self, more: int) -> None:
        """Return when so many further requests have come. A checkpoint."""
        wanted = self.asked.total() + more
        async with self._came:
            while self.asked.total() < wanted:
                await self._came.wait()

    async def converse(self, stream: trio.SocketStream) -> None:
        """Answer the requests of one connection."""
        text = b""
        try:
            while read := await stream.receive_some():
                text += read
                while b"\r\n\r\n" in text:
                    head, _, text = text.partition(b"\r\n\r\n")
                    path = head.split(b" ", 2)[1].decode("ascii")
                    async with self._came:
                        self.asked[path] += 1
                        self._came.notify_all()
                    await stream.send_all(self._page(int(path[1:])))
        except trio.BrokenResourceError:
            return  # it was killed

    def _page(self, number: int) -> bytes:
        children = {3 * number + 1, 3 * number + 2, 3 * number + 3, number // 2, number + 1}
        links = "".join([f'<a href="/{child}">x</a>' for child in sorted(children) if child < self._pages])
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(links)}\r\n\r\n"
        return (head + links).encode("ascii")


@asynccontextmanager
async def serving(pages: int) -> AsyncIterator[Site]:
    """A site on loopback."""
    site = Site(pages)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, site.converse, 0, host="127.0.0.1"))
        site.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        yield site
        nursery.cancel_scope.cancel()


async def crawling(folder: Path, site: Site, feed: str) -> trio.Process:
    """The command, at work on the job in ``folder``."""
    settings = [word for setting in SETTINGS for word in ("-s", setting)]
    command = [sys.executable, "-m", "trawl", "crawl", "linked.py", "-q", "-a", f"server={site.url}", *settings]
    return await trio.lowlevel.open_process([*command, "-o", feed, "--job", "job"], cwd=folder)


async def killed(process: trio.Process, site: Site, rng: random.Random, most: int) -> bool:
    """Kill it at a random moment of its work; False where it ended before."""
    async with trio.open_nursery() as nursery:

        async def kill() -> None:
            await site.until_asked(rng.randint(1, most))
            if most > 1:  # else the pages that are left are needed for the kills that follow
                await trio.sleep(rng.choice([0.0, 0.0, 0.001, 0.003, 0.01, 0.03]))  # not always with one just come
            process.kill()

        nursery.start_soon(kill)
        status = await process.wait()
        nursery.cancel_scope.cancel()
    assert status in (0, -9)
    return status == -9


async def crawled_through_kills(folder: Path, pages: int, kills: int, feed: str, seed: int) -> None:
    """Kill a crawl of ``pages`` pages so often, then let it end; everything is asked for and delivered as promised."""
    (folder / "linked.py").write_text(SPIDER, encoding="utf-8")
    rng = random.Random(seed)
    lost: Counter[str] = Counter()  # how often each path was in flight at a kill
    with trio.fail_after(PATIENCE + 10 * kills):
        async with serving(pages) as site:
            for more in range(kills, 0, -1):
                most = max(1, (pages - len(site.asked)) // (more + 1))  # so that each of them finds it at work
                assert await killed(await crawling(folder, site, feed), site, rng, most)
                await trio.testing.wait_all_tasks_blocked(SETTLED)  # what it sent before is counted
                pending = [json.loads(line)["url"].removeprefix(site.url) for line in export_pending(folder / "job")]
                lost.update([path for path in pending if path in site.asked])
            assert await (await crawling(folder, site, feed)).wait() == 0
    assert sorted(site.asked, key=lambda path: int(path[1:])) == [f"/{number}" for number in range(pages)]
    assert all(times <= 1 + lost[path] for path, times in site.asked.items()), (site.asked - lost).most_common(3)
    rows = READERS[Path(feed).suffix[1:]]((folder / feed).read_bytes())
    assert sorted([row["url"] for row in rows]) == sorted([f"{site.url}/{number}" for number in range(pages)])
    report = inspect_job(folder / "job")
    statistics = STATISTICS.read(report)
    assert (report.pending, report.items, report.failed) == (0, 0, 0)
    assert statistics is not None
    assert statistics["item_scraped_count"] == pages
    assert statistics["finish_reason"] == "finished"


async def test_c1_killed_twice_every_page_is_in_the_feed_once(tmp_path: Path) -> None:
    await crawled_through_kills(tmp_path, 120, 2, "out.json", seed=0)


async def test_f01_killed_again_and_again_no_quota_is_overdrawn(tmp_path: Path) -> None:
    limits = """custom_settings = {"THROTTLING_SCOPES": {"127.0.0.1": {"quota": 80, "window": 1000}}}"""
    spider = SPIDER.replace('name = "linked"', f'name = "linked"\n    {limits}')
    (tmp_path / "linked.py").write_text(spider, encoding="utf-8")
    rng = random.Random(1)
    with trio.fail_after(PATIENCE):
        async with serving(120) as site:
            for _ in range(2):
                assert await killed(await crawling(tmp_path, site, "out.jsonl"), site, rng, 10)
            process = await crawling(tmp_path, site, "out.jsonl")
            # At each kill the requests that were connecting, and an allowance of one request, may be lost. How many
            # came before the kills took effect is the machine's affair: a quick one sends some ten more.
            await site.until_asked(80 - 2 * 9 - site.asked.total())
            with trio.move_on_after(2.0):  # after the wait above: a busy machine may take this long to start Python
                await site.until_asked(81 - site.asked.total())
            process.kill()
            await process.wait()
    assert site.asked.total() <= 80


@pytest.mark.sweep
@pytest.mark.parametrize("feed", ["out.jsonl", "out.json", "out.csv", "out.xml"])
async def test_c1_killed_fifty_times_every_page_is_in_the_feed_once(tmp_path: Path, feed: str) -> None:
    await crawled_through_kills(tmp_path, 500, 50, feed, seed=len(feed))
