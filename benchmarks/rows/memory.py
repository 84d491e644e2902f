"""Memory of pending requests and seen fingerprints, measured with ``tracemalloc``, and garbage collection pauses."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from hashlib import blake2b

import trio
from trio.testing import MockClock

import trawl
from benchmarks.bench import Bench
from benchmarks.figures import Figure
from benchmarks.wires import NullTransport
from trawl._run import crawl_with
from trawl.blocking import InlineBlocking
from trawl.cli.crawl import short_collections
from trawl.engine import Crawl
from trawl.frontier import MemoryFrontier
from trawl.settings import Layer, load

__all__ = ["pauses", "per_pending", "per_seen"]

HOSTS = 100
PENDING = 200_000
SEEN = 1_500_000
PATH = "/catalogue/a-product-with-a-name_{}/index.html"
"""A complete URL has about 73 characters, as on books.toscrape.com."""

SETTINGS = {
    "CONCURRENT_REQUESTS": 0,
    "DOWNLOAD_DELAY": 3_600.0,
    "ROBOTSTXT_OBEY": False,
}
"""After the first page of each host, nothing is sent for an hour."""


class Holder(trawl.Spider):
    """Finds links to many hosts on one page. Only the first request to each host may be sent."""

    name = "holder"
    start_urls = ["http://start.example/"]  # noqa: RUF012

    def __init__(self, hosts: int, pending: int) -> None:
        super().__init__()
        self.hosts = hosts
        self.links = pending // hosts

    def parse(self, response: trawl.Response) -> Iterator[trawl.Request]:
        """Yield requests for the links."""
        if response.url == self.start_urls[0]:
            for number in range(self.links + 1):
                for host in range(self.hosts):
                    yield response.follow(f"http://www.shop-{host}.example{PATH.format(number)}")


class Measuring:
    """Reads the traced memory when all requests are pending, and ends the crawl."""

    def __init__(self) -> None:
        self.traced = 0
        self.pending = 0

    async def watch(self, crawl: Crawl) -> None:
        """Wait for the first pages, and measure."""
        await trio.sleep(60)
        gc.collect()
        self.traced = tracemalloc.get_traced_memory()[0]
        self.pending = crawl.queued
        crawl.cancel()


def held(hosts: int, pending: int) -> Measuring:
    """Measure the memory of a crawl with ``pending`` requests to ``hosts`` hosts."""
    measuring = Measuring()
    crawl = partial(
        crawl_with,
        Holder,
        load(Layer("benchmark", SETTINGS)),
        spider_args={"hosts": hosts, "pending": pending},
        transport=NullTransport(),
        blocking=InlineBlocking(),
        watchers=[measuring.watch],
    )
    gc.collect()
    tracemalloc.start()
    trio.run(crawl, clock=MockClock(autojump_threshold=0))
    tracemalloc.stop()
    return measuring


def bytes_of_pending(hosts: int, pending: int) -> float:
    """Return the bytes per request, from crawls with ``pending`` requests and with one request per host."""
    held(hosts, hosts)  # imports modules and fills caches
    without, all_of_them = held(hosts, hosts), held(hosts, pending)
    return (all_of_them.traced - without.traced) / (all_of_them.pending - without.pending)


def per_pending(bench: Bench) -> list[Figure]:
    """Return the memory of a request with its URL, its record, its place in the heap, and its fingerprint."""
    pending = PENDING // 10 if bench.is_quick else PENDING
    few, many = bytes_of_pending(HOSTS, pending), bytes_of_pending(pending // 40, pending // 4)
    return [
        Figure(name=f"{pending // HOSTS:,} for each of {HOSTS} hosts", value=few, unit="bytes", most=400),
        Figure(name=f"10 for each of {pending // 40:,} hosts", value=many, unit="bytes"),
    ]


class Wide(trawl.Spider):
    """Finds all links on one page. The links lead to all hosts in turn, so each host has the same number."""

    name = "wide"

    def __init__(self, hosts: int, pending: int) -> None:
        super().__init__()
        self.hosts = hosts
        self.pending = pending

    async def start(self) -> AsyncIterator[trawl.Request]:
        """Yield the request for the page."""
        yield trawl.Request("http://www.start.example/", self.parse_start)

    def parse_start(self, response: trawl.Response) -> Iterator[trawl.Request]:
        """Yield requests for the links."""
        for number in range(self.pending):
            yield response.follow(f"http://www.shop-{number % self.hosts}.example{PATH.format(number)}", self.parse)

    def parse(self, response: trawl.Response) -> None:
        """Ignore the response."""


def longest_pause(hosts: int, pending: int, around: AbstractContextManager[None]) -> float:
    """Return the milliseconds of processor time of the longest garbage collection in a crawl of :class:`Wide`."""
    longest = began = 0.0

    def passed(phase: str, info: Mapping[str, int]) -> None:
        nonlocal began, longest
        if phase == "start":
            began = time.process_time()
        else:
            longest = max(longest, time.process_time() - began)

    crawl = partial(
        crawl_with,
        Wide,
        load(Layer("benchmark", SETTINGS)),
        spider_args={"hosts": hosts, "pending": pending},
        transport=NullTransport(),
        blocking=InlineBlocking(),
        watchers=[Measuring().watch],
    )
    with around:
        gc.callbacks.append(passed)
        try:
            trio.run(crawl, clock=MockClock(autojump_threshold=0))
        finally:
            gc.callbacks.remove(passed)
    return longest * 1000


def pauses(bench: Bench) -> list[Figure]:
    """Return the longest garbage collection with a million pending requests."""
    pending = 1_000_000 // (50 if bench.is_quick else 1)
    hosts = pending // 50
    command, program = (longest_pause(hosts, pending, around) for around in (short_collections(), nullcontext()))
    return [
        Figure(name=f"{pending:,} on {hosts:,} hosts, in trawl crawl", value=command, unit="ms", most=50),
        Figure(name=f"{pending:,} on {hosts:,} hosts, inside a program", value=program, unit="ms"),
    ]


async def seen(most: int) -> dict[int, float]:
    """Return the bytes per fingerprint, measured after each 10,000 fingerprints, up to ``most`` fingerprints."""
    frontier = MemoryFrontier()
    gc.collect()
    tracemalloc.start()
    taken = {}
    for start in range(0, most, 10_000):
        numbers = [number.to_bytes(4) for number in range(start, start + 10_000)]
        await frontier.claim_many([blake2b(number, digest_size=16).digest() for number in numbers])
        taken[start + 10_000] = tracemalloc.get_traced_memory()[0] / (start + 10_000)
    tracemalloc.stop()
    return taken


def per_seen(bench: Bench) -> list[Figure]:
    """Return the memory per claimed fingerprint. The container doubles its size, so the largest value is decisive."""
    most = SEEN // 10 if bench.is_quick else SEEN
    taken = trio.run(seen, most)
    least = most // 5
    worst = max((count for count in taken if count >= least), key=taken.__getitem__)
    told = f"among {worst:,}"
    return [
        Figure(name=f"among {most:,}", value=taken[most], unit="bytes"),
        Figure(name=f"maximum, from {least:,} on", value=taken[worst], unit="bytes", most=40, note=told),
    ]
