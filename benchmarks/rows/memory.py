"""What pending requests and seen fingerprints take: memory, by the tracer of Python's allocations, and pauses."""

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
"""With its host a URL is about 73 characters, as on books.toscrape.com."""

SETTINGS = {
    "CONCURRENT_REQUESTS": 0,
    "DOWNLOAD_DELAY": 3_600.0,
    "ROBOTSTXT_OBEY": False,
}
"""After the first page of each host nothing goes for an hour."""


class Holder(trawl.Spider):
    """Finds links of many hosts on one page; the first of each host goes, the others may not."""

    name = "holder"
    start_urls = ["http://start.example/"]  # noqa: RUF012

    def __init__(self, hosts: int, pending: int) -> None:
        super().__init__()
        self.hosts = hosts
        self.links = pending // hosts

    def parse(self, response: trawl.Response) -> Iterator[trawl.Request]:
        """Find the links."""
        if response.url == self.start_urls[0]:
            for number in range(self.links + 1):
                for host in range(self.hosts):
                    yield response.follow(f"http://www.shop-{host}.example{PATH.format(number)}")


class Measuring:
    """Reads the tracer when all is pending, and ends the crawl."""

    def __init__(self) -> None:
        self.traced = 0
        self.pending = 0

    async def watch(self, crawl: Crawl) -> None:
        """Wait for the first pages to be done."""
        await trio.sleep(60)
        gc.collect()
        self.traced = tracemalloc.get_traced_memory()[0]
        self.pending = crawl.queued
        crawl.cancel()


def held(hosts: int, pending: int) -> Measuring:
    """What a crawl holds with ``pending`` requests of so many hosts."""
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
    """Bytes of one more pending request: what is held with all, less what is held with one of each host."""
    held(hosts, hosts)  # what is imported and cached once
    without, all_of_them = held(hosts, hosts), held(hosts, pending)
    return (all_of_them.traced - without.traced) / (all_of_them.pending - without.pending)


def per_pending(bench: Bench) -> list[Figure]:
    """A request with its URL, its record, its place in the heap, and its fingerprint."""
    pending = PENDING // 10 if bench.is_quick else PENDING
    few, many = bytes_of_pending(HOSTS, pending), bytes_of_pending(pending // 40, pending // 4)
    return [
        Figure(name=f"{pending // HOSTS:,} of each of {HOSTS} hosts", value=few, unit="bytes", most=400),
        Figure(name=f"10 of each of {pending // 40:,} hosts", value=many, unit="bytes"),
    ]


class Wide(trawl.Spider):
    """Finds all links on one page: as many of each host, and the next is always of another."""

    name = "wide"

    def __init__(self, hosts: int, pending: int) -> None:
        super().__init__()
        self.hosts = hosts
        self.pending = pending

    async def start(self) -> AsyncIterator[trawl.Request]:
        """Ask for the page."""
        yield trawl.Request("http://www.start.example/", self.parse_start)

    def parse_start(self, response: trawl.Response) -> Iterator[trawl.Request]:
        """Find the links."""
        for number in range(self.pending):
            yield response.follow(f"http://www.shop-{number % self.hosts}.example{PATH.format(number)}", self.parse)

    def parse(self, response: trawl.Response) -> None:
        """Find nothing."""


def longest_pause(hosts: int, pending: int, around: AbstractContextManager[None]) -> float:
    """Milliseconds of our own time that the longest pass of the garbage collector takes in a crawl of :class:`Wide`."""
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
    """The longest pass of the garbage collector with a million requests pending."""
    pending = 1_000_000 // (50 if bench.is_quick else 1)
    hosts = pending // 50
    command, program = (longest_pause(hosts, pending, around) for around in (short_collections(), nullcontext()))
    return [
        Figure(name=f"{pending:,} over {hosts:,} hosts, trawl crawl", value=command, unit="ms", most=50),
        Figure(name=f"{pending:,} over {hosts:,} hosts, inside a program", value=program, unit="ms"),
    ]


async def seen(most: int) -> dict[int, float]:
    """Bytes of one fingerprint among so many, for each 10,000 up to ``most``."""
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
    """A fingerprint that was claimed. What holds them doubles now and then, so that the worst of all sizes counts."""
    most = SEEN // 10 if bench.is_quick else SEEN
    taken = trio.run(seen, most)
    least = most // 5
    worst = max((count for count in taken if count >= least), key=taken.__getitem__)
    told = f"among {worst:,}"
    return [
        Figure(name=f"among {most:,}", value=taken[most], unit="bytes"),
        Figure(name=f"at most, from {least:,} on", value=taken[worst], unit="bytes", most=40, note=told),
    ]
