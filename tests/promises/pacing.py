"""Spiders from given requests, short webs, and settings without jitter, for the tests of pace."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, Literal

import trawl
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation, simulate

__all__ = ["EXACT", "SPACED", "A", "B", "changes", "crawl", "in_turn", "pages", "sends_of", "web_of"]

A, B = "a.example", "b.example"

EXACT: dict[str, Any] = {"RANDOMIZE_DOWNLOAD_DELAY": False, "BACKOFF_JITTER": 0, "ROBOTSTXT_OBEY": False}
"""The default settings without jitter and robots.txt: 1.0 s between sends, 1.0 s between the sends of a slot."""

SPACED: dict[str, Any] = {**EXACT, "DOWNLOAD_DELAY_PER_SLOT": 0.0}
"""The same settings without a delay per slot."""

Handler = Callable[[trawl.Request], SimulatedResponse]


def web_of(*hosts: str, **options: Any) -> SimulatedWeb:
    """Return a web of hosts with the same options; by default, only ``a.example``."""
    web = SimulatedWeb()
    for host in hosts or (A,):
        web.add_host(host, **options)
    return web


def pages(count: int, host: str = A, first: int = 0) -> list[str]:
    """Return the URLs of ``count`` pages of a host: ``/0``, ``/1``, ..."""
    return [f"http://{host}/{number}" for number in range(first, first + count)]


def in_turn(*statuses: int, then: int = 200) -> Handler:
    """Return a handler that responds with these status codes, one per request, and then with ``then``."""
    rest = iter(statuses)
    return lambda request: SimulatedResponse(next(rest, then))


def crawl(
    web: SimulatedWeb,
    urls: Iterable[str | trawl.Request],
    settings: Mapping[str, object] = EXACT,
    seed: int = 0,
    errors: Literal["raise", "collect"] = "raise",
    **attributes: Any,
) -> Simulation:
    """Run a spider that requests these pages. Each page yields one item, its URL."""
    requests = list(urls)

    class Pages(trawl.Spider):
        name = "pages"

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            for request in requests:
                yield trawl.Request(request) if isinstance(request, str) else request

        def parse(self, response: trawl.Response, *args: object, **kwargs: object) -> Any:
            return {"url": response.url}

    for name, value in attributes.items():
        setattr(Pages, name, value)
    return simulate(Pages, web, settings, seed, errors=errors)


def sends_of(sim: Simulation, path: str) -> list[float]:
    """Return the times of the sends of the page at ``path``."""
    return [send.time for send in sim.sends if send.url.endswith(path)]


def changes(times: Iterable[float]) -> list[tuple[float, float]]:
    """Return the changes of the gap between sends, as pairs of the earlier send and the gap."""
    made: list[tuple[float, float]] = []
    for earlier, later in pairwise(times):
        gap = round(later - earlier, 7)
        if not made or made[-1][1] != gap:
            made.append((earlier, gap))
    return made


def running_spider(urls: Iterable[str]) -> Any:
    """Return a spider of these pages. Its attribute ``running`` is the running instance, for middleware functions."""

    class Pages(trawl.Spider):
        name = "pages"
        running: trawl.Spider

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            Pages.running = self
            for url in urls:
                yield trawl.Request(url)

        def parse(self, response: trawl.Response) -> Any:
            yield {"url": response.url}

    return Pages
