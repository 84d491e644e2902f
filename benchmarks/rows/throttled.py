"""Delays and rates on the real clock, over real sockets. Measures rates, and checks that nothing is sent early."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import accumulate
from statistics import mean

import trawl
from benchmarks.bench import Bench
from benchmarks.crawling import Sends, loaded, timed
from benchmarks.figures import Figure

__all__ = ["delays", "rates", "thousand_hosts"]

HOSTS = 1_000
DELAY = 1.0
SECONDS = 20
"""Number of seconds for which each host is crawled."""

DELAYS = (0.1, 0.2, 0.5, 1.0, 2.0)

RATES = {100: 0.99, 400: 0.97}
"""Rates in requests per second, and for each rate the share that a crawl must reach."""

EARLY = 1e-6
"""Maximum difference in seconds that rounding may cause between two times."""


class Pages(trawl.Spider):
    """Requests many pages of one host, all known from the start."""

    name = "pages"

    def __init__(self, host: str, pages: int) -> None:
        super().__init__()
        self.host = host
        self.pages = pages

    async def start(self) -> AsyncIterator[trawl.Request]:
        """Yield the requests."""
        for number in range(self.pages):
            yield trawl.Request(f"http://{self.host}/small/{number}")

    def parse(self, response: trawl.Response) -> None:
        """Ignore the response."""


class Rounds(trawl.Spider):
    """Requests pages of each host one after the other. Each page leads to the next."""

    name = "rounds"

    def __init__(self, hosts: list[str], pages: dict[str, int]) -> None:
        super().__init__()
        self.hosts = hosts
        self.pages = pages

    async def start(self) -> AsyncIterator[trawl.Request]:
        """Yield a request for the first page of each host."""
        for host in self.hosts:
            yield trawl.Request(f"http://{host}/small/0", cb_kwargs={"host": host, "number": 0})

    def parse(self, response: trawl.Response, host: str, number: int) -> Iterator[trawl.Request]:
        """Yield the request for the next page."""
        if number + 1 < self.pages[host]:
            yield trawl.Request(f"http://{host}/small/{number + 1}", cb_kwargs={"host": host, "number": number + 1})


def address(number: int, port: int) -> str:
    """Return a loopback address."""
    return f"127.{1 + number // 62_500}.{number // 250 % 250}.{1 + number % 250}:{port}"


def thousand_hosts(bench: Bench) -> list[Figure]:
    """Return the figures of 1,000 hosts with a delay of 1 s."""
    count, pages = (100, 5) if bench.is_quick else (HOSTS, SECONDS)
    hosts = [address(number, bench.site.port) for number in range(count)]
    sends = Sends()
    settings = loaded(CONCURRENT_REQUESTS=0, DOWNLOAD_DELAY=DELAY)
    crawl = timed(
        Rounds,
        settings,
        spider_args={"hosts": hosts, "pages": dict.fromkeys(hosts, pages)},
        recorder=sends.record,
    )
    if crawl.result.stats["response_count"] != count * pages:
        raise RuntimeError(f"{crawl.result.stats['response_count']} responses in place of {count * pages}")
    gaps = sends.gaps()
    return [
        Figure(name="hosts", value=float(len(sends.times))),
        Figure(name="rate against the allowed rate", value=DELAY / mean(gaps), unit="x", least=0.99),
        Figure(
            name="shortest interval, above the delay",
            value=(min(gaps) - DELAY) * 1_000,
            unit="ms",
            least=-EARLY * 1_000,
        ),
        Figure(name="longest interval, above the delay", value=(max(gaps) - DELAY) * 1_000, unit="ms"),
        Figure(name="share of a core", value=crawl.own / crawl.seconds, unit="x", most=0.5),
        Figure(name="processor time", value=crawl.own / (count * pages) * 1e6, unit="us/page"),
    ]


def delays(bench: Bench) -> list[Figure]:
    """Return the figures of several delays, each with one host, at the same time."""
    seconds = 3.0 if bench.is_quick else float(SECONDS)
    hosts = {address(number, bench.site.port): delay for number, delay in enumerate(DELAYS)}
    sends = Sends()
    settings = loaded(CONCURRENT_REQUESTS=0, THROTTLING_SCOPES={host: {"delay": each} for host, each in hosts.items()})
    pages = {host: int(seconds / delay) + 1 for host, delay in hosts.items()}
    timed(Rounds, settings, spider_args={"hosts": list(hosts), "pages": pages}, recorder=sends.record)
    rates = []
    for host, delay in hosts.items():
        times = sends.times[host]
        rate = (len(times) - 1) * delay / (times[-1] - times[0])
        rates.append(Figure(name=f"delay {delay:g} s: rate against allowed", value=rate, unit="x", least=0.99))
    early = min(
        later - earlier - delay
        for host, delay in hosts.items()
        for earlier, later in zip(sends.times[host], sends.times[host][1:], strict=False)
    )
    return [
        *rates,
        Figure(name="shortest interval, above the delay", value=early * 1_000, unit="ms", least=-EARLY * 1_000),
    ]


def rates(bench: Bench) -> list[Figure]:
    """Return the figures of one host with a rate and jitter, and measure the bound of docs/explanation/throttle.md."""
    seconds = 2.0 if bench.is_quick else float(SECONDS)
    figures = []
    for rate, goal in RATES.items():
        host, sends = address(rate, bench.site.port), Sends()
        settings = loaded(
            CONCURRENT_REQUESTS=0,
            RANDOMIZE_DOWNLOAD_DELAY=False,
            THROTTLING_SCOPES={host: {"rate": rate}},
        )
        timed(Pages, settings, spider_args={"host": host, "pages": int(rate * seconds)}, recorder=sends.record)
        times = sends.times[host]
        reached = (len(times) - 1) / (times[-1] - times[0]) / rate
        figures.append(Figure(name=f"rate {rate}: reached", value=reached, unit="x", least=goal))
        # There are at most t * rate + 2 sends in t seconds (docs/explanation/throttle.md).
        surplus = [number - rate * (at - times[0]) for number, at in enumerate(times)]
        most = 1.0 + max(later - least for later, least in zip(surplus, accumulate(surplus, min), strict=True))
        figures.append(Figure(name=f"rate {rate}: most sends beyond t * rate", value=most, unit="sends", most=2.0))
    return figures
