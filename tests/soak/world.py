"""A web with all kinds of faults, drawn from a seed, that records the requests for each page.

Pages are numbers. The fault of a page depends only on its number, so the web stores only one byte per page: its
requests, its responses and its result.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from typing import Any

import trio

from trawl.exceptions import BodyTooLarge, ConnectFailed, ConnectTimeout, DownloadError, ReadTimeout, ResponseBroken
from trawl.http import Request
from trawl.testing import LogNormal, Outage, SimulatedResponse, SimulatedWeb, Uniform

__all__ = ["World"]

TRIES, FINAL = 0, 1
"""Data that the web stores per page: the number of requests, and whether its final response was sent."""

SHARED = "api"
HOUR = 3600.0


class World(SimulatedWeb):
    """The web and the record of its pages.

    Args:
        seed: The seed of all random values.
        most: Maximum number of pages that the spider may request.
        pace: Factor for delays, windows and outages. 1.0 is a crawl at full load.
        hosts: Number of hosts.

    Attributes:
        issued: Number of requested pages.
        scopes: The configuration for ``THROTTLING_SCOPES``.
        violations: A sentence for each violation.
    """

    def __init__(self, seed: int, *, most: int, pace: float = 1.0, hosts: int = 40) -> None:
        super().__init__()
        self.seed = seed
        self.most = most
        self.pace = pace
        self.issued = 0
        self.violations: list[str] = []
        self.notes = (bytearray(most + 1000), bytearray(most + 1000))
        rng = random.Random(seed)
        self.scopes: dict[str, Mapping[str, Any]] = {
            SHARED: {"concurrency": 6, "quota": 120, "window": 30.0 * pace, "sliding": True}
        }
        for number in range(hosts):
            name = f"h{number}.example"
            self.scopes[name] = self._config(rng, number % 7)
            self.add_host(
                name,
                latency=LogNormal(0.3, 0.7),
                connect=Uniform(0.0, 0.4),
                keep_alive=rng.choice([0.0, 5.0, 75.0]),
                handler=self.answer,
                connect_error=self.connect_error,
                outages=self._outages(rng),
            )
        self._rng = rng
        self._names = list(self.scopes)[1:]

    def _config(self, rng: random.Random, kind: int) -> Mapping[str, Any]:
        pace, budget = self.pace, max(5, self.most // 100)
        free = {"concurrency": rng.randint(1, 8), "delay": 0.0, "delay_per_slot": 0.0, "jitter": 0.0}
        return (
            free
            | {
                0: {},
                1: {"delay": rng.uniform(0.05, 1.0) * pace},
                2: {"delay": rng.uniform(0.05, 1.0) * pace, "jitter": 0.5},
                3: {"delay_per_slot": rng.uniform(0.2, 2.0) * pace, "concurrency": rng.randint(2, 5)},
                4: {"quota": rng.randint(5, 30), "window": 10.0 * pace},
                5: {"quota": rng.randint(5, 30), "window": 10.0 * pace, "sliding": True, "delay": 0.02 * pace},
                6: {
                    "delay": 0.3 * pace,
                    "delay_per_slot": 1.0 * pace,
                    "concurrency": 2,
                    "jitter": 0.2,
                    "pages": budget,
                },
            }[kind]
        )

    def _outages(self, rng: random.Random) -> list[Outage]:
        """Return several outages per hour. Most last seconds, and a few exceed the crawler's patience."""
        outages: list[Outage] = []
        at = rng.uniform(0.0, HOUR / 6)
        while at < 24 * HOUR * self.pace:
            lasts = rng.choice([3.0, 20.0, 60.0, 200.0, 1500.0])
            error = rng.choice([None, None, ConnectFailed, ResponseBroken])
            outages.append(
                Outage(at, at + lasts, rng.choice([429, 503]), error=error, retry_after=rng.choice([None, 2, 30]))
            )
            at += lasts + rng.uniform(HOUR / 4, 2 * HOUR) * self.pace
        return outages

    # -- the spider's side

    def next_page(self) -> int | None:
        """Return the number of a page that was not requested yet; None if there is none."""
        if self.issued >= self.most:
            return None
        self.issued += 1
        return self.issued

    def draw(self, number: int) -> int:
        """Return the number below a thousand that selects the fault of a page."""
        return zlib.crc32(b"%d:%d" % (self.seed, number)) % 1000

    def url(self, number: int) -> str:
        """Return the URL of a page."""
        name = self._names[zlib.crc32(b"%d" % number) % len(self._names)]
        folder = "private" if self.draw(number) % 25 == 0 else "p"
        return f"http://{name}/{folder}/{number}"

    # -- the servers' side

    def connect_error(self, request: Request) -> type[DownloadError] | None:
        """Return an error for one connection in a hundred."""
        return self._rng.choices([None, ConnectFailed, ConnectTimeout], [985, 10, 5])[0]

    def page_at(self, url: str) -> SimulatedResponse | None:
        """Return robots.txt, whose rules change four times an hour."""
        if not url.endswith("/robots.txt"):
            return None
        origin = url.removesuffix("/robots.txt")
        phase = (int(trio.current_time() / (900.0 * self.pace)) + zlib.crc32(origin.encode())) % 5
        rules = ["", "User-agent: *\nDisallow: /private/", "User-agent: *\nCrawl-delay: 0.01", "", ""][phase]
        if phase == 3 and trio.current_time() % 900.0 < 60.0:
            return SimulatedResponse(503)
        return SimulatedResponse(404 if not rules else 200, rules, {"Content-Type": "text/plain"})

    def answer(self, request: Request) -> SimulatedResponse:
        """Return the response of a host, which depends on the page and the number of its requests."""
        parts = request.url.split("/")
        number = int(parts[4].partition("?")[0])
        if parts[3] == "direct":
            return SimulatedResponse(200 if number % 3 else 404)
        if "?" not in request.url and self.draw(number) < 20:
            return SimulatedResponse(302, headers={"Location": f"{self.url(number * 7 + 1)}?for={number}"})
        number = int(request.url.partition("?for=")[2] or number)
        tries, final = self.notes[TRIES], self.notes[FINAL]
        if final[number]:
            self.wrong(f"{request.url} was sent again after its last word")
        tries[number] = min(255, tries[number] + 1)
        answer = self._fate(number, tries[number])
        if answer.error is None and answer.status in (200, 404):
            final[number] = 1
        return answer

    def _fate(self, number: int, tries: int) -> SimulatedResponse:
        draw = self.draw(number)
        is_first = tries == 1
        if 20 <= draw < 40 and is_first:
            return SimulatedResponse(error=ResponseBroken, body=b"half of it")
        if 40 <= draw < 45:
            return SimulatedResponse(error=BodyTooLarge)
        if 45 <= draw < 50 and is_first:
            return SimulatedResponse(error=ReadTimeout, latency=30.0)
        if 50 <= draw < 60:
            return SimulatedResponse(404)
        if 60 <= draw < 64:
            return SimulatedResponse(500)
        if 65 <= draw < 70 and tries <= 2:
            return SimulatedResponse(429, headers={"Retry-After": str(1 + number % 5)})
        if 70 <= draw < 74 and is_first:
            return SimulatedResponse(503, headers={"Retry-After": "2"})
        return SimulatedResponse(body=b"<title>%d</title>" % number)

    def wrong(self, what: str) -> None:
        """Record a violation."""
        if len(self.violations) < 20:
            self.violations.append(what)
