"""A crawl of 200,000 pages. It shows whether the last pages are as fast as the first, and how memory grows."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import trio

import trawl
from benchmarks.bench import Bench
from benchmarks.crawling import loaded, timed
from benchmarks.figures import Figure
from benchmarks.site import PAGES
from trawl.engine import Crawl

__all__ = ["streamed"]

ROUNDS = 40
"""Number of rounds. Each round crawls the same 5,000 pages with five links each, under another path."""

EVERY = 0.25
"""Seconds between two measurements."""


class Streamed(trawl.Spider):
    """Yields each page's title, and follows every link. The next round starts in the middle of the current round."""

    name = "streamed"
    url = ""
    rounds = ROUNDS

    def __init__(self, url: str, rounds: int) -> None:
        super().__init__()
        self.url = url
        self.rounds = rounds
        self.start_urls = [f"{url}/round/0/0.html"]
        self.links = 0

    def parse(self, response: trawl.Response) -> Iterator[Any]:
        """Yield the title, and requests for the links."""
        yield {"url": response.url, "title": response.css("title::text").get()}
        for request in response.follow_all(css="a"):
            self.links += 1
            yield request
        *_, number, name = response.url.split("/")
        if name == f"{PAGES // 2}.html" and int(number) + 1 < self.rounds:
            yield trawl.Request(f"{self.url}/round/{int(number) + 1}/0.html")


class Watching:
    """Regularly records the number of pages, the processor time and the memory."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float, float, int]] = []
        self.spider: Any = None

    async def watch(self, crawl: Crawl) -> None:
        """Measure until the crawl has ended."""
        self.spider = crawl.spider
        while True:
            used = resource.getrusage(resource.RUSAGE_SELF)
            pages = int(crawl.stats.get("response_count") or 0)
            self.seen.append((pages, trio.current_time(), used.ru_utime + used.ru_stime, resident()))
            await trio.sleep(EVERY)

    def tenth(self, number: int, pages: int) -> tuple[float, float]:
        """Return the pages per second in one tenth of the crawl, and microseconds of processor time per page."""
        among = [each for each in self.seen if number * pages / 10 <= each[0] <= (number + 1) * pages / 10]
        (first, began, began_own, _), (last, ended, ended_own, _) = among[0], among[-1]
        return (last - first) / (ended - began), (ended_own - began_own) / (last - first) * 1e6

    def memory(self, part: float, pages: int) -> int:
        """Return the bytes in memory after a share of the pages."""
        return next(each[3] for each in self.seen if each[0] >= part * pages)


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def streamed(bench: Bench) -> list[Figure]:
    """Return the figures of one run of 200,000 pages. The run is so long that no further runs are needed."""
    rounds = 4 if bench.is_quick else ROUNDS
    pages = rounds * PAGES
    watching = Watching()
    feeds = {str(bench.folder / "streamed.jsonl"): {"format": "jsonl", "overwrite": True}}
    gc.collect()
    crawl = timed(
        Streamed,
        loaded(FEEDS=feeds),
        spider_args={"url": bench.site.url("").rstrip("/"), "rounds": rounds},
        watchers=[watching.watch],
    )
    if crawl.result.stats["response_count"] != pages:
        raise RuntimeError(f"{crawl.result.stats['response_count']} pages in place of {pages}")
    tenths = [watching.tenth(number, pages) for number in range(10)]
    at = {part: watching.memory(part, pages) / 1e6 for part in (0.1, 0.5, 0.9)}
    grown = (at[0.9] - at[0.1]) * 1e6 / (0.8 * pages)
    return [
        Figure(name="pages", value=float(pages)),
        Figure(name="links seen", value=float(watching.spider.links)),
        Figure(name="the whole crawl", value=pages / crawl.seconds, unit="pages/s", each=[rate for rate, _ in tenths]),
        Figure(name="processor time, median of ten parts", value=median(own for _, own in tenths), unit="us/page"),
        Figure(name="last tenth against the first", value=tenths[9][0] / tenths[0][0], unit="x", least=0.9),
        Figure(name="last tenth against the first, by processor time", value=tenths[0][1] / tenths[9][1], unit="x"),
        *(Figure(name=f"in memory after {part:.0%}", value=each, unit="MB") for part, each in at.items()),
        Figure(name="growth, from 10% to 90%", value=grown, unit="bytes/page", note="85 to 96 are a seen fingerprint"),
    ]
