"""The engine's own share of a request, and the cost of a simulated crawl."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import trawl
from benchmarks.bench import Bench
from benchmarks.crawling import loaded, timed
from benchmarks.figures import Figure, median_of
from benchmarks.wires import NullTransport
from trawl.http import Request
from trawl.testing import SimulatedWeb, Simulation, simulate

__all__ = ["engine", "simulated"]

REQUESTS = 20_000
HOSTS = 50
PAGES = 10_000


class Null(trawl.Spider):
    """Requests many pages of many hosts, and ignores them."""

    name = "null"
    pages = REQUESTS

    async def start(self) -> AsyncIterator[trawl.Request]:
        """Yield the requests."""
        for number in range(self.pages):
            yield trawl.Request(f"http://host-{number % HOSTS}.example/{number // HOSTS}")

    def parse(self, response: trawl.Response) -> Iterator[Any] | None:
        """Ignore the response."""


def engine(bench: Bench) -> list[Figure]:
    """Return the time of a request from its creation in ``start()`` to the end of its callback, without a network.

    The crawl uses the real clock, because only tests use the virtual clock.
    """
    requests = REQUESTS // 10 if bench.is_quick else REQUESTS
    settings = loaded()
    own, making = [], []
    for _ in range(bench.rounds):
        crawl = timed(Null, settings, spider_args={"pages": requests}, transport=NullTransport())
        if crawl.result.stats["response_count"] != requests:
            raise RuntimeError(f"{crawl.result.stats['response_count']} responses in place of {requests}")
        own.append(crawl.own / requests * 1e6)
        began = time.process_time()
        for number in range(requests):
            Request(f"http://host-{number % HOSTS}.example/{number // HOSTS}")
        making.append((time.process_time() - began) / requests * 1e6)
    return [
        median_of("the engine's own share", own, "us", most=80),
        median_of("creation of the request, included in this", making, "us"),
    ]


class Listed(Null):
    """Yields an item for each page."""

    name = "listed"

    def parse(self, response: trawl.Response) -> Iterator[Any]:
        """Yield an item with the URL and the status."""
        yield {"url": response.url, "status": response.status}


class Linked(trawl.Spider):
    """Yields each page's title, and follows every link."""

    name = "linked"
    start_urls = [f"http://host-{host}.example/0" for host in range(HOSTS)]  # noqa: RUF012

    def parse(self, response: trawl.Response) -> Iterator[Any]:
        """Yield the title, and requests for the links."""
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield from response.follow_all(css="a")


def linked_web(pages: int) -> SimulatedWeb:
    """Return a web with ``pages`` pages on each host, in a chain with a link back."""
    web = SimulatedWeb()
    for host in range(HOSTS):
        web.add_host(f"host-{host}.example", latency=0.1)
        for number in range(pages):
            near = [f"/{other}" for other in range(number + 1, min(number + 3, pages))]
            web.add_page(f"http://host-{host}.example/{number}", links=[*near, "/0"], title=f"Page {number}")
    return web


def simulated(bench: Bench) -> list[Figure]:
    """Return the time of 10,000 pages on 50 hosts in virtual time, with the default delay of each host."""
    pages = PAGES // (10 if bench.is_quick else 1)
    web = linked_web(pages // HOSTS)
    listed, linked, virtual = [], [], []
    for _ in range(bench.rounds):
        seconds, run = simulated_in(Listed, web, pages)
        listed.append(seconds)
        virtual.append(run.elapsed)
        seconds, run = simulated_in(Linked, web, pages)
        linked.append(seconds)
    return [
        median_of(f"{pages:,} pages on {HOSTS} hosts, all from start()", listed, "s", most=3.0),
        median_of("virtual time", virtual, "s"),
        median_of("a page", [each / pages * 1e6 for each in listed], "us"),
        median_of(f"{pages:,} pages found by links, parsed, with three links each", linked, "s"),
        median_of("a page with links", [each / pages * 1e6 for each in linked], "us"),
    ]


def simulated_in(spider_cls: type[trawl.Spider], web: SimulatedWeb, pages: int) -> tuple[float, Simulation]:
    """Return the seconds that a simulated crawl takes, and the simulation."""
    began = time.process_time()  # processor time is enough, because a simulation never waits
    run = simulate(spider_cls, web, {"ROBOTSTXT_OBEY": False}, pages=pages)
    seconds = time.process_time() - began
    if len(run.items) != pages:
        raise RuntimeError(f"{len(run.items)} items in place of {pages}")
    return seconds, run
