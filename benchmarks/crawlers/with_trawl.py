"""Crawls the linked pages with trawl: ``with_trawl.py URL FEED [--count] [--slowed N]``. Prints one line of JSON."""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import attrs
import trio

import trawl
from trawl._run import crawl_with
from trawl.cli.crawl import short_collections
from trawl.settings import Layer, load

SETTINGS: dict[str, object] = {
    "CONCURRENT_REQUESTS": 64,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 64,
    "DOWNLOAD_DELAY": 0.0,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    "RANDOMIZE_DOWNLOAD_DELAY": False,
    "ROBOTSTXT_OBEY": False,
}


class Steps(trio.abc.Instrument):
    """Counts the steps of Trio. Other programs on the machine do not affect their number."""

    def __init__(self) -> None:
        self.steps = self.waits = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a step of a task."""
        self.steps += 1

    def before_io_wait(self, timeout: float) -> None:
        """Count a wait for I/O."""
        self.waits += 1


@attrs.frozen
class SlowedClock(trio.abc.Clock):
    """The system's clock, slowed down by the factor ``times``.

    Under valgrind, a program takes many times as long. With the system's clock, trawl would treat each callback as
    slow, and the feed's writer would wake up for each page. A normal crawl does neither.
    """

    times: float

    def start_clock(self) -> None:
        """Do nothing."""

    def current_time(self) -> float:
        """Return the slowed seconds."""
        return time.perf_counter() / self.times

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the seconds on the system's clock until the deadline."""
        return (deadline - self.current_time()) * self.times


class Pages(trawl.Spider):
    """Yields each page's title, and follows every link."""

    name = "pages"
    url = ""

    def __init__(self, url: str = "") -> None:
        super().__init__()
        self.start_urls = [url]

    def parse(self, response: trawl.Response) -> Iterator[Any]:
        """Yield the title, and requests for the links."""
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield from response.follow_all(css="a")


def crawled(
    url: str,
    feed: str,
    *,
    concurrency: int = 64,
    count: bool = False,
    job: str = "",
    cache: str = "",
    slowed: float = 1,
) -> dict[str, float]:
    """Crawl. Returns the duration."""
    counts = {"CONCURRENT_REQUESTS": concurrency, "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency}
    kept: dict[str, object] = {"JOB_DIR": job} if job else {}
    if cache:
        kept |= {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": cache}
    feeds = {feed: {"format": "jsonl", "overwrite": True}}
    settings = load(Layer("benchmark", {**SETTINGS, **counts, **kept, "FEEDS": feeds}))
    steps = Steps()
    run = partial(crawl_with, Pages, settings, spider_args={"url": url})
    began, began_own = time.perf_counter(), time.process_time()
    clock = SlowedClock(slowed) if slowed > 1 else None
    result = trio.run(run, clock=clock, instruments=[steps] if count else [])
    told = {
        "pages": result.stats["response_count"],
        "seconds": time.perf_counter() - began,
        "own": time.process_time() - began_own,
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    return told | ({"steps": steps.steps, "waits": steps.waits} if count else {})


def main() -> None:
    """Crawl and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("feed")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--count", action="store_true", help="count task steps and I/O waits: the seconds are longer")
    parser.add_argument("--job", default="", help="a job's directory or address")
    parser.add_argument("--cache", default="", help="the folder of an HTTP cache")
    parser.add_argument("--slowed", type=float, default=1, help="the crawl's clock is so many times slower")
    given = parser.parse_args()
    with short_collections():  # collect garbage as the command does
        print(json.dumps(crawled(**vars(given))))


if __name__ == "__main__":
    main()
