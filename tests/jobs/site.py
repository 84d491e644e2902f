"""A small linked site, a spider with one item per page, and runs of the spider that share a job."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import trio

import trawl
from tests.watched_crawl import crawl_with
from trawl._run import CrawlResult
from trawl.blocking import InlineBlocking
from trawl.engine import Crawl
from trawl.http import Outcome, Response
from trawl.scheduler import Attempt
from trawl.settings import Layer, load
from trawl.spiders import Spider
from trawl.testing import SimulatedWeb

__all__ = ["Linked", "Runs", "site"]

START_UTC = datetime(2025, 1, 1, tzinfo=UTC)


class Linked(trawl.Spider):
    """Follows all links and yields one item per page."""

    name = "linked"
    start_urls: Sequence[str] = ("http://a.example/",)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}
        yield from response.follow_all(css="a")


def site(pages: int, *, latency: float = 0.1, **host: Any) -> SimulatedWeb:
    """Return a tree of ``pages`` pages. Each page links to two further pages and back to the first."""
    web = SimulatedWeb()
    web.add_host("a.example", latency=latency, **host)
    for number in range(pages):
        links = [f"/{child}" for child in (2 * number + 1, 2 * number + 2) if child < pages]
        web.add_page(f"http://a.example/{number or ''}", links=[*links, "/"])
    return web


class Runs:
    """Runs of one spider that share a job and a feed, one after the other.

    Attributes:
        directory: The job's directory.
        feed: The file of the feed.
        sent: Number of sends of each URL in all runs.
        times: Times of the sends in the last run, in seconds since its start.
        now_utc: Start time of the next run.
    """

    def __init__(
        self,
        folder: Path,
        web: SimulatedWeb,
        spider: type[Spider] = Linked,
        settings: Mapping[str, object] | None = None,
        feed: str = "items.jsonl",
    ) -> None:
        self.directory = folder / "job"
        self.feed = folder / feed
        self.web = web
        self.spider = spider
        self.settings: Mapping[str, object] = settings or {}
        self.sent: Counter[str] = Counter()
        self.times: list[tuple[float, str]] = []
        self.now_utc = START_UTC

    async def run(
        self,
        watchers: Sequence[Callable[[Crawl], Awaitable[None]]] = (),
        *,
        stop_after: float | None = None,
        **more: Any,
    ) -> CrawlResult:
        """Run the spider once, with a shutdown ``stop_after`` seconds after the start. A checkpoint."""
        began_at, self.times = trio.current_time(), []
        started_utc = self.now_utc

        def record(attempt: Attempt, outcome: Outcome | None, now: float) -> None:
            if outcome is None:
                self.sent[attempt.request.url] += 1
                self.times.append((round(now - began_at, 6), attempt.request.url))

        async def stop(crawl: Crawl) -> None:
            await trio.sleep(stop_after or 0.0)
            crawl.shutdown()

        settings = {"JOB_DIR": str(self.directory), "FEEDS": {str(self.feed): {}}, **self.settings, **more}
        try:
            return await crawl_with(
                self.spider,
                load(Layer("test", settings)),
                transport=self.web.transport(),
                open_page=self.web.open_page,
                blocking=InlineBlocking(),
                seed=0,
                now_utc=started_utc,
                watchers=[*watchers, *([stop] if stop_after is not None else [])],
                recorder=record,
            )
        finally:
            self.now_utc = started_utc + timedelta(seconds=trio.current_time() - began_at)

    def down(self, seconds: float) -> None:
        """Let time pass between two runs."""
        self.now_utc += timedelta(seconds=seconds)

    @property
    def items(self) -> list[Any]:
        """Return the items in the feed (jsonl)."""
        return [json.loads(line) for line in self.feed.read_text(encoding="utf-8").splitlines()]

    @property
    def urls(self) -> list[str]:
        """Return the URLs of the items in the feed, sorted by their number."""
        return sorted([item["url"] for item in self.items], key=lambda url: (len(url), url))


def all_urls(pages: int) -> list[str]:
    """Return the URLs of a site, sorted like :attr:`Runs.urls`."""
    return sorted([f"http://a.example/{number or ''}" for number in range(pages)], key=lambda url: (len(url), url))
