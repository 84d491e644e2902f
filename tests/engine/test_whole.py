"""C5, P18: however and whenever a crawl is ended, its frontier is whole: what was not finished is there, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.watched_crawl import crawl_with
from trawl.blocking import InlineBlocking
from trawl.engine import Crawl
from trawl.frontier import MemoryFrontier
from trawl.http import Request, Response
from trawl.settings import Layer, load
from trawl.testing import SimulatedResponse, SimulatedWeb, Uniform

SETTINGS: Mapping[str, object] = {
    "DOWNLOAD_DELAY": 0.2,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
    "SHUTDOWN_TIMEOUT": 1.0,
    "RETRY_DELAY": 0.5,
    "BACKOFF_MAX_DELAY": 2.0,
    "BACKOFF_MIN_DELAY": 0.2,
}
PAGES = 40


class Tree(trawl.Spider):
    """Each page has two below it, some callbacks take their time, some fetch; a second run starts with nothing."""

    name = "tree"
    is_second = False

    async def start(self) -> AsyncGenerator[Any, None]:
        if not self.is_second:
            yield Request("http://a.example/1")

    async def parse(self, response: Response, **kwargs: Any) -> Any:
        number = int(response.url.rsplit("/", 1)[1])
        if number % 3 == 0:
            await trio.sleep(0.7)
        yield {"number": number}
        if number % 5 == 0:
            await self.fetch(Request(f"http://a.example/direct/{number}"))
        for below in (2 * number, 2 * number + 1):
            if below <= PAGES:
                yield Request(f"http://a.example/{'moved/' if below % 4 == 3 else ''}{below}")


def tree() -> SimulatedWeb:
    """Pages, redirects to them, and every seventh request fails for once."""
    failed: set[str] = set()

    def answer(request: Request) -> SimulatedResponse:
        path = request.url.removeprefix("http://a.example/")
        if path.startswith("moved/"):
            return SimulatedResponse(301, headers={"Location": path.replace("moved/", "/")})
        if path[-1] == "7" and path not in failed:
            failed.add(path)
            return SimulatedResponse(503)
        return SimulatedResponse()

    web = SimulatedWeb()
    web.add_host("a.example", latency=Uniform(0.1, 1.5), handler=answer)
    return web


async def run(frontier: MemoryFrontier, web: SimulatedWeb, seed: int, **options: Any) -> trawl.CrawlResult:
    settings = {**SETTINGS, **options.pop("settings", {})}
    return await crawl_with(
        Tree,
        load(Layer("test", settings)),
        frontier=frontier,
        transport=web.transport(seed=seed),
        blocking=InlineBlocking(),
        seed=seed,
        collect=True,
        **options,
    )


async def ended(way: str, at: float, frontier: MemoryFrontier, web: SimulatedWeb) -> list[Any]:
    """The items of a crawl that is ended in some way at some time."""

    async def stop(crawl: Crawl) -> None:
        await trio.sleep(at)
        items.append(crawl)
        if way != "cancel":
            crawl.shutdown()
            await trio.sleep(0.3)
        if way != "shutdown":
            crawl.cancel()

    items: list[Any] = []
    seed = int(at * 100)
    if way == "caller":
        collected: list[Any] = []
        with trio.move_on_after(at):
            await run(frontier, web, seed, receivers=[Kept(collected)])
        return collected
    if way.startswith("CLOSESPIDER"):
        limit = {"settings": {way: int(at * 3) + 1}}
        return (await run(frontier, web, seed, **limit)).items or []
    return (await run(frontier, web, seed, watchers=[stop])).items or []


class Kept:
    """A sink that keeps what it is given, also of a crawl that is cancelled."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.closed = trio.Event()

    def put_nowait(self, item: object, page: str = "") -> None:
        self.items.append(item)

    async def put(self, item: object, page: str = "") -> None:
        self.items.append(item)

    async def write(self) -> None:
        await self.closed.wait()

    def close(self) -> None:
        self.closed.set()


LIMITS = ["CLOSESPIDER_PAGECOUNT", "CLOSESPIDER_ITEMCOUNT", "CLOSESPIDER_TIMEOUT"]


@pytest.mark.long
@pytest.mark.parametrize("at", [0.0, 1.2, 3.3, 5.15])
@pytest.mark.parametrize("way", ["shutdown", "twice", "cancel", "caller", *LIMITS])
async def test_c5_what_was_not_finished_is_in_the_frontier_once(way: str, at: float, autojump_clock: MockClock) -> None:
    frontier, web = MemoryFrontier(), tree()
    first = await ended(way, at, frontier, web)
    statistics = frontier.statistics()
    assert statistics.leased == 0
    rest = await run(frontier, web, 1000, spider_args={"is_second": bool(first) or statistics.seen > 0})
    assert rest.reason == "finished"
    assert (frontier.statistics().pending, frontier.statistics().leased) == (0, 0)
    given = Counter(item["number"] for item in [*first, *(rest.items or ())])
    assert set(given) == set(range(1, PAGES + 1))  # nothing is lost
    assert sum(given.values()) - PAGES <= 4  # callbacks that had given their item when they were cut off
