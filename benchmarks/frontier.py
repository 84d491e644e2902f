"""Measures the frontier of a job with millions of pending requests: memory, start-up, and speed of operations.

::

    python benchmarks/frontier.py                         5 million on 1,000 lanes
    python benchmarks/frontier.py --pending 1e6 --lanes 50000 --batch 1000

The benchmark fills a job, opens it in a separate process, and measures that process. "Taken and given back" means that
batches of requests are leased and released, and that new requests are pushed. A "page" means that a request is leased
and then acknowledged, together with an item of 100 bytes and a new request whose fingerprint was claimed. As in a
crawl, each page has its own task. The goals are 5 million requests in 300 MB, a start-up under 5 s, and 10,000 requests
per second in batches.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import count, cycle
from pathlib import Path

import trio

from trawl.blocking import ThreadBlocking
from trawl.clock import WallClock
from trawl.frontier import LaneKey, Record
from trawl.frontier.job_frontier import JobFrontier, open_frontier
from trawl.frontier.sqlite import SqliteJob, open_job
from trawl.http import Request

FILL = 10_000
"""Number of requests stored at once while the job is filled."""


AHEAD = 32
"""Maximum number of requests that a crawl leases from one lane at once."""


class Pages:
    """A replacement for the spider. Its method is the callback of the requests."""

    def parse(self, response: object) -> None:
        """Do nothing."""


def record(spider: Pages, number: int, lanes: int) -> Record:
    """Return a pending request as in a usual crawl."""
    host = f"site{number % lanes}.example"
    request = Request(f"http://{host}/category/{number % 97}/page-{number}.html?ref=list", spider.parse)
    return Record(request, ((host, None),), f"http://{host}", blake2b(b"%d" % number, digest_size=16).digest())


async def opened(directory: str, spider: Pages) -> tuple[SqliteJob, JobFrontier]:
    """Return an open job and its frontier."""
    job = await open_job(directory, ThreadBlocking())
    return job, await open_frontier(job, spider, WallClock.started(trio.current_time()))


async def fill(directory: str, pending: int, lanes: int) -> None:
    """Store requests in the job."""
    spider = Pages()
    job, frontier = await opened(directory, spider)
    began = time.perf_counter()
    for first in range(frontier.statistics().pending, pending, FILL):  # continue a partly filled job
        records = [record(spider, number, lanes) for number in range(first, min(first + FILL, pending))]
        await frontier.claim_many([each.fingerprint for each in records if each.fingerprint])
        await frontier.push_many(records)
    print(f"filled: {pending / (time.perf_counter() - began):,.0f} requests/s")
    await job.aclose()


async def measure(directory: str, pages: int, batch: int) -> None:
    """Open a filled job and measure it."""
    spider = Pages()
    began, cpu = time.perf_counter(), time.process_time()
    job, frontier = await opened(directory, spider)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(f"start-up: {seconds:.2f} s ({cpu:.2f} s of CPU); {frontier.statistics()}; {rss():,.0f} MB")
    numbers = count(frontier.statistics().seen)
    lanes = len(frontier.lanes())
    turns = cycle(frontier.lanes())
    with told("taken and given", pages, job):
        for _ in range(0, pages, batch):
            leases = await leased(frontier, turns, batch)
            records = [record(spider, next(numbers), lanes) for _ in leases]
            await frontier.claim_many([each.fingerprint for each in records if each.fingerprint])
            await frontier.push_many(records)
            await frontier.release(leases)
    with told("pages", pages, job):
        for _ in range(0, pages, batch):
            leases = await leased(frontier, turns, batch)
            async with trio.open_nursery() as nursery:
                for lease in leases:
                    nursery.start_soon(page, frontier, lease, record(spider, next(numbers), lanes))
            job.outbox_done(job.outbox_end)
    began = time.perf_counter()
    await job.aclose()
    print(f"closing: {time.perf_counter() - began:.2f} s; most memory: {rss():,.0f} MB")


async def leased(frontier: JobFrontier, turns: Iterator[LaneKey], batch: int) -> list[Record]:
    """Return a batch of requests, leased from lanes in turn."""
    leases: list[Record] = []
    while len(leases) < batch:
        leases += await frontier.lease_many(next(turns), min(AHEAD, batch - len(leases)))
    return leases


@contextmanager
def told(what: str, requests: int, job: SqliteJob) -> Iterator[None]:
    """Print how many requests per second the block processed."""
    began, cpu, transactions = time.perf_counter(), time.process_time(), job.transactions.committed
    yield
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(
        f"{what}: {requests / seconds:,.0f} a second ({requests / cpu:,.0f} a second of CPU,"
        f" {requests / (job.transactions.committed - transactions):.1f} a transaction); {rss():,.0f} MB"
    )


async def page(frontier: JobFrontier, lease: Record, child: Record) -> None:
    """Make the calls to the frontier that one page needs."""
    if child.fingerprint and await frontier.claim_many([child.fingerprint]) == [True]:
        await frontier.acknowledge(lease, [child], [b"i" * 100])


def rss() -> float:
    """Return the maximum memory of this process in MB. ``getrusage`` would also count its parent's memory."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pending", type=float, default=5e6, help="requests that are stored")
    parser.add_argument("--lanes", type=int, default=1000, help="hosts that they are on")
    parser.add_argument("--pages", type=int, default=50_000, help="requests that are taken and given")
    parser.add_argument("--batch", type=int, default=1000, help="so many at once")
    parser.add_argument("--keep", help="a directory to fill, or to use as it is if it is filled")
    parser.add_argument("--measure", metavar="DIR", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        trio.run(measure, given.measure, given.pages, given.batch)
        return
    directory = given.keep or tempfile.mkdtemp(prefix="trawl-frontier-")
    try:
        trio.run(fill, directory, int(given.pending), given.lanes)
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--measure", directory], check=True)
    finally:
        if not given.keep:
            shutil.rmtree(directory)


if __name__ == "__main__":
    main()
