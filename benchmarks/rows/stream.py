"""200,000 pages streamed through: whether the last are as quick as the first, and what stays in memory."""

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
"""Each is the 5,000 pages with five links each, under another path."""

EVERY = 0.25
"""Seconds between two looks at how far it is."""


class Streamed(trawl.Spider):
    """Each page's title; every link is followed, and from the middle of each round the next is begun."""

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
        """Take the title, follow the links."""
        yield {"url": response.url, "title": response.css("title::text").get()}
        for request in response.follow_all(css="a"):
            self.links += 1
            yield request
        *_, number, name = response.url.split("/")
        if name == f"{PAGES // 2}.html" and int(number) + 1 < self.rounds:
            yield trawl.Request(f"{self.url}/round/{int(number) + 1}/0.html")


class Watching:
    """Notes every now and then how many pages there are, our own time, and what is in memory."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float, float, int]] = []
        self.spider: Any = None

    async def watch(self, crawl: Crawl) -> None:
        """Look, until the crawl has ended."""
        self.spider = crawl.spider
        while True:
            used = resource.getrusage(resource.RUSAGE_SELF)
            pages = int(crawl.stats.get("response_count") or 0)
            self.seen.append((pages, trio.current_time(), used.ru_utime + used.ru_stime, resident()))
            await trio.sleep(EVERY)

    def tenth(self, number: int, pages: int) -> tuple[float, float]:
        """Pages a second in one of the tenths, and microseconds of our own a page."""
        among = [each for each in self.seen if number * pages / 10 <= each[0] <= (number + 1) * pages / 10]
        (first, began, began_own, _), (last, ended, ended_own, _) = among[0], among[-1]
        return (last - first) / (ended - began), (ended_own - began_own) / (last - first) * 1e6

    def memory(self, part: float, pages: int) -> int:
        """Bytes in memory when so much of the pages had come."""
        return next(each[3] for each in self.seen if each[0] >= part * pages)


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def streamed(bench: Bench) -> list[Figure]:
    """One run of 200,000 pages: long enough to be its own median."""
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
        Figure(name="all of it", value=pages / crawl.seconds, unit="pages/s", each=[rate for rate, _ in tenths]),
        Figure(name="own time, median of the tenths", value=median(own for _, own in tenths), unit="us/page"),
        Figure(name="last tenth against the first", value=tenths[9][0] / tenths[0][0], unit="x", least=0.9),
        Figure(name="the same by our own time", value=tenths[0][1] / tenths[9][1], unit="x"),
        *(Figure(name=f"in memory after {part:.0%}", value=each, unit="MB") for part, each in at.items()),
        Figure(name="growth, from 10% to 90%", value=grown, unit="bytes/page", note="85 to 96 are a seen fingerprint"),
    ]
