"""Measures a free host next to throttled hosts: ``python -m benchmarks.free_host [--rounds N]``.

The free host takes 0.2 s for a page. For 20 s, up to four requests to this host are in flight. This is measured with
the free host alone, together with 15 hosts that have a delay of 1 s, and together with 100 such hosts. The ratio of the
times shows how much the other hosts slow down the free host.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator

import trio

import trawl
from benchmarks.bench import Bench
from benchmarks.crawling import LoopbackNames, loaded, timed
from benchmarks.figures import Figure, median_of, ratio_of, table
from trawl.engine import Crawl
from trawl.http import Outcome
from trawl.scheduler import Attempt

__all__ = ["FreeHost", "beside_throttled"]

SLOTS = 4
LATENCY = 0.2
"""Seconds that the server takes for a page below ``/free/``."""

SECONDS = 20.0
BESIDE = (15, 100)
FREE = "free.localhost"


class Mixed(trawl.Spider):
    """Requests pages of the free host, and more pages of each throttled host than its delay allows."""

    name = "mixed"
    port = 0
    pages = 0
    throttled = 0

    async def start(self) -> AsyncIterator[trawl.Request]:
        """Yield all requests."""
        for number in range(self.pages):
            yield trawl.Request(f"http://{FREE}:{self.port}/free/{number}")
            if number < 1.5 * self.pages * LATENCY / SLOTS:
                for host in range(self.throttled):
                    yield trawl.Request(f"http://throttled-{host}.localhost:{self.port}/small/{number}")

    def parse(self, response: trawl.Response) -> None:
        """Ignore the response."""


class FreeHost:
    """Records when the free host's requests are sent and end, and ends the crawl after the last request."""

    def __init__(self, pages: int) -> None:
        self._pages = pages
        self._done = trio.Event()
        self.sent: list[float] = []
        self.ended: list[float] = []
        self.others = 0

    def record(self, attempt: Attempt, outcome: Outcome | None, now: float) -> None:
        """Record the send or the end of a request. The crawl calls this as its recorder."""
        if FREE not in attempt.request.url:
            self.others += outcome is not None
            return
        (self.sent if outcome is None else self.ended).append(now)
        if len(self.ended) == self._pages:
            self._done.set()

    async def watch(self, crawl: Crawl) -> None:
        """End the crawl after the free host's last page."""
        await self._done.wait()
        crawl.cancel()

    @property
    def took(self) -> float:
        """Return the seconds from the first send to the last page."""
        return self.ended[-1] - self.sent[0]


def took(bench: Bench, throttled: int, seconds: float) -> float:
    """Return the seconds that the free host takes next to a number of throttled hosts."""
    pages = int(seconds * SLOTS / LATENCY)
    host = FreeHost(pages)
    free = {FREE: {"concurrency": SLOTS, "delay": 0.0, "delay_per_slot": 0.0}}
    timed(
        Mixed,
        loaded(CONCURRENT_REQUESTS=0, DOWNLOAD_DELAY=1.0, THROTTLING_SCOPES=free),
        spider_args={"port": bench.site.port, "pages": pages, "throttled": throttled},
        resolve=LoopbackNames(),
        watchers=[host.watch],
        recorder=host.record,
    )
    if host.others < throttled * seconds / 2:
        raise RuntimeError("the throttled hosts did next to nothing: this proves nothing")
    return host.took


def beside_throttled(bench: Bench) -> list[Figure]:
    """Return the free host's times together with other hosts, compared with its time alone."""
    seconds = 2.0 if bench.is_quick else SECONDS
    times: dict[int, list[float]] = {throttled: [] for throttled in (0, *BESIDE)}
    for _ in range(max(1, bench.rounds // 3)):  # fewer rounds, because each takes a minute
        for throttled, each in times.items():
            each.append(took(bench, throttled, seconds))
    return [
        *(median_of(f"next to {throttled} throttled hosts", each, "s") for throttled, each in times.items()),
        *(ratio_of(f"next to {count}, against alone", times[count], times[0], most=1.05) for count in BESIDE),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="so many minutes (3)")
    given = parser.parse_args()
    with Bench(given.rounds * 3) as bench:
        print(table("a host without limits next to throttled hosts", beside_throttled(bench)))


if __name__ == "__main__":
    main()
