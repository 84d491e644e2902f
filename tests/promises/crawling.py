"""Shared code of the promise tests: spiders, webs, and settings for exact pacing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import Any

import trawl
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation, simulate

__all__ = [
    "EXACT",
    "FREE",
    "Call",
    "a_web",
    "answering",
    "crawled",
    "found_at_once",
    "page",
    "shown",
    "spider_of",
    "statuses",
    "times",
]

FREE: dict[str, Any] = {
    "RANDOMIZE_DOWNLOAD_DELAY": False,
    "BACKOFF_JITTER": 0,
    "ROBOTSTXT_OBEY": False,
    "DOWNLOAD_DELAY": 0.0,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
}
"""Settings without jitter, delays and robots.txt."""

EXACT: dict[str, Any] = {**FREE, "DOWNLOAD_DELAY": 1.0}
"""The same settings with one second between any two sends to a host."""

Call = Callable[[trawl.Spider, trawl.Response], Any]


def page(url: str, scopes: object = None, **options: Any) -> trawl.Request:
    """Return a request with ``scopes`` in its meta, if there are any. ``options`` are arguments of the request."""
    meta = {**options.pop("meta", {}), **({} if scopes is None else {"throttling_scopes": scopes})}
    return trawl.Request(url, meta=meta, **options)


def spider_of(
    requests: Callable[[], Iterable[trawl.Request]], parse: Call | None = None, **attributes: Any
) -> type[trawl.Spider]:
    """Return a spider that starts with ``requests()`` and calls ``parse`` with the spider and each response."""

    class Listed(trawl.Spider):
        name = "listed"

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            for request in requests():
                yield request

        def parse(self, response: trawl.Response, **kwargs: object) -> Any:
            return None if parse is None else parse(self, response)

    for name, value in attributes.items():
        setattr(Listed, name, value)
    return Listed


def found_at_once(requests: Callable[[], Iterable[trawl.Request]]) -> type[trawl.Spider]:
    """Return a spider whose first page, ``http://start.example/``, yields all of ``requests()`` in one step."""

    def parse(spider: trawl.Spider, response: trawl.Response) -> Iterator[trawl.Request]:
        if response.url == "http://start.example/":
            yield from requests()

    return spider_of(lambda: [trawl.Request("http://start.example/", meta={"throttling_scopes": []})], parse)


def a_web(*hosts: str, **options: Any) -> SimulatedWeb:
    """Return a web with these hosts, which have the same options, and with ``start.example``."""
    web = SimulatedWeb()
    for host in hosts:
        web.add_host(host, **options)
    web.add_host("start.example")
    return web


def answering(*answers: SimulatedResponse, latency: float = 0.1, host: str = "a.example") -> SimulatedWeb:
    """Return a web with one host that sends these responses in turn, and then status code 200."""
    left = iter(answers)
    web = SimulatedWeb()
    web.add_host(host, latency=latency, handler=lambda request: next(left, SimulatedResponse()))
    return web


def crawled(
    requests: Callable[[], Iterable[trawl.Request]],
    web: SimulatedWeb,
    settings: dict[str, Any],
    **more: Any,
) -> Simulation:
    """Run a spider with these requests on this web."""
    return simulate(spider_of(requests), web, settings={**settings, **more})


def shown(sim: Simulation) -> list[tuple[float, str]]:
    """Return time and path of each send, without sends to ``start.example``."""
    return [(send.time, send.url.split("/", 3)[3]) for send in sim.sends if send.host != "start.example"]


def times(sim: Simulation) -> list[float]:
    """Return the time of each send, without sends to ``start.example``."""
    return [send.time for send in sim.sends if send.host != "start.example"]


def statuses(sim: Simulation) -> list[int | None]:
    """Return the status code of each send."""
    return [send.status for send in sim.sends]
