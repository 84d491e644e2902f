"""Runs one soak crawl, measures its sends and items, and checks every promise at its end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import attrs
import trio
from trio.testing import MockClock

from tests.soak.rulers import Ruler
from tests.soak.spider import CALLED, ERRED, GIVEN, Soak
from tests.soak.world import World
from tests.watched_crawl import crawl_with
from trawl._run import CrawlResult
from trawl.blocking import InlineBlocking
from trawl.engine import Crawl
from trawl.engine.watchers import MEBIBYTE, held_bytes
from trawl.frontier import MemoryFrontier
from trawl.http import Outcome, Request, host_scope
from trawl.settings import Layer, load
from trawl.testing.clock import GuardInstrument, guarded, seeded_scheduling
from trawl.testing.sends import SendRecord
from trawl.testing.transport import WALL_START_UTC, SimulatedTransport
from trawl.transport import OnSent, Transport, TransportSettings

__all__ = ["Report", "soak"]

PLACES = 64
SEEN_BYTES = 2 * (49 + 53)
"""Maximum bytes for a seen fingerprint: 49 bytes for the value and 53 in its set, which may just have doubled.

A redirected page has two fingerprints.
"""
SLACK = 12 * MEBIBYTE
"""Bytes by which the memory of a Python process may vary without a leak, because its arenas are not released."""
DROPPED = ("robots_forbidden", "pages_filtered")


@attrs.frozen
class Report:
    """The result of a soak crawl.

    Attributes:
        pages: Number of requested pages.
        sends: Number of sends of all kinds.
        virtual: Duration in seconds on the virtual clock.
        real: Duration in real seconds.
        held: Memory in MiB after each third of the pages.
        stats: The crawl's statistics.
    """

    pages: int
    sends: int
    virtual: float
    real: float
    held: tuple[float, ...]
    stats: Any

    def __str__(self) -> str:
        """One line."""
        held = " / ".join(f"{mib:.0f}" for mib in self.held)
        return (
            f"{self.pages} pages, {self.sends} sends, {self.virtual / 86400:.2f} virtual days in {self.real:.0f} s"
            f" ({self.sends / self.real:.0f} sends/s), {held} MiB"
        )


class Nothing(list[SendRecord]):
    """Rows of a send log that stores nothing, because a million sends would take half a gigabyte."""

    def append(self, row: SendRecord) -> None:
        """Forget it."""


class Watched:
    """A transport that measures its requests.

    Args:
        inner: The simulated transport.
        world: The world with the limits to check.
    """

    def __init__(self, inner: SimulatedTransport, world: World) -> None:
        self.inner = inner
        self.inner.send_log.rows = Nothing()
        self.world = world
        self.sends = 0
        self.responses = 0
        self.rules: dict[str, str] = {}
        self.rulers = {id: Ruler(id, config) for id, config in world.scopes.items()}
        self.all = Ruler("all", {"concurrency": PLACES})

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        """Send a request, and measure it with a ruler for each scope and one for the whole crawl."""
        rulers = [self.rulers[scope] for scope in self.scopes_of(request)]
        self.check(request)

        def sent() -> bool | float | None:
            if is_held := on_sent():
                return is_held
            now = trio.current_time()
            self.sends += 1
            for ruler in (*rulers, self.all):
                ruler.sent(now)
            return None

        for ruler in (*rulers, self.all):
            ruler.enter()
        try:
            outcome = await self.inner.send(request, sent)
        finally:
            for ruler in (*rulers, self.all):
                ruler.leave()
        if outcome.response is not None:
            self.responses += 1
            if request.url.endswith("/robots.txt") and outcome.response.status < 500:
                # RFC 9309, 2.3.1.3: 4xx is "unavailable" and allows everything, a 429 too.
                self.rules[host_scope(request.url)] = outcome.response.text if outcome.response.status == 200 else ""
            asked = outcome.response.headers.get("Retry-After")
            if asked is not None and outcome.response.status in (429, 503) and float(asked) > 0:
                for ruler in rulers:
                    ruler.hold(trio.current_time(), float(asked))
        return outcome

    def scopes_of(self, request: Request) -> set[str]:
        """Return the scopes to which a request must be charged."""
        if request.meta_get("dont_throttle"):
            return set()
        named = request.meta_get("throttling_scopes")
        return set(named) if named else {host_scope(request.url)}

    def check(self, request: Request) -> None:
        """Check that a private page is only sent if the latest rules allow it."""
        if "/private/" in request.url and "/private/" in self.rules.get(host_scope(request.url), ""):
            self.world.wrong(f"{request.url} was sent at {trio.current_time():.3f}, and is disallowed")

    async def aclose(self) -> None:
        """Close the transport."""
        await self.inner.aclose()


class Items:
    """A receiver that accepts each item once."""

    def __init__(self, spider_of: Callable[[], Soak]) -> None:
        self._spider_of = spider_of
        self.count = 0
        self._closed = trio.Event()

    def put_nowait(self, item: Any, page: str = "") -> None:
        """Accept an item. Every hundredth call reports a full buffer."""
        if (self.count + 1) % 100 == 0:
            raise trio.WouldBlock
        self._take(item)

    async def put(self, item: Any, page: str = "") -> None:
        """Accept an item after a wait."""
        await trio.sleep(0.02)
        self._take(item)

    def _take(self, item: Any) -> None:
        self.count += 1
        spider, number = self._spider_of(), item["number"]
        if spider.ends[number] & GIVEN:
            spider.world.wrong(f"the item of page {number} came twice")
        spider.ends[number] |= GIVEN

    async def write(self) -> None:
        """Wait for the end of the crawl."""
        await self._closed.wait()

    def close(self) -> None:
        """Record that no more items will arrive."""
        self._closed.set()


class Memory:
    """The memory of the process after each third of the pages."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.held: list[float] = []

    async def watch(self, crawl: Crawl) -> None:
        """Measure the memory from time to time."""
        thirds = [self._world.most * part // 3 for part in (1, 2, 3)]
        for third in thirds:
            while self._world.issued < third:  # noqa: ASYNC110 - the spider is not to know that it is measured
                await trio.sleep(5.0 * self._world.pace)
            self.held.append((held_bytes() or 0) / MEBIBYTE)


def settings(world: World, seed: int) -> Any:
    """Return the settings of the crawl."""
    values = {
        "CONCURRENT_REQUESTS": PLACES,
        "CONCURRENT_CALLBACKS": 30,
        "DIRECT_FETCHES_LIMIT": 4,
        "THROTTLING_SCOPES": dict(world.scopes),
        "ROBOTSTXT_MAX_AGE": 600.0 * world.pace,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "REFERER_ENABLED": seed % 2 == 0,
        "RETRY_TIMES": 3,
        "BACKOFF_JITTER": 0,  # so that spacing can be measured to the microsecond
    }
    return load(Layer("soak", values))


def soak(seed: int, *, most: int, pace: float = 1.0) -> Report:
    """Crawl ``most`` pages, and check everything.

    Raises:
        AssertionError: If a promise was violated. The message has a sentence for each violation.
    """
    world = World(seed, most=most, pace=pace)
    begun = time.perf_counter()
    with seeded_scheduling(seed):
        run = trio.run(_crawled, world, seed, clock=MockClock(autojump_threshold=0))
    return run.report(time.perf_counter() - begun)


@attrs.frozen
class _Run:
    world: World
    spider: Soak
    crawl: Crawl
    wire: Watched
    items: Items
    memory: Memory
    frontier: MemoryFrontier
    result: CrawlResult

    def report(self, real: float) -> Report:
        """Return the report after all checks have passed."""
        wrong = [*self.limits(), *self.account(), *self.rest(), *self.flatness()]
        assert not wrong, "\n".join(wrong)
        return Report(
            self.world.issued, self.wire.sends, self.result.elapsed, real, tuple(self.memory.held), self.result.stats
        )

    def limits(self) -> list[str]:
        """Return violations of limits, and limits that were never used."""
        rulers = [*self.wire.rulers.values(), self.wire.all]
        budgets = {scope: config["pages"] for scope, config in self.world.scopes.items() if "pages" in config}
        pages = self.spider.pages
        return [
            *(violation for ruler in rulers for violation in ruler.violations),
            *(f"{ruler.id} never sent" for ruler in rulers if not ruler.sends and self.world.most > 1000),
            *(f"{scope} gave {pages[scope]} of {most} pages" for scope, most in budgets.items() if pages[scope] > most),
        ]

    def account(self) -> list[str]:
        """Return counts that do not match, because requests or items were lost or duplicated."""
        world, spider, stats = self.world, self.spider, self.result.stats
        ends = spider.ends[1 : world.issued + 1]
        called, erred = sum(end & CALLED > 0 for end in ends), sum(end & ERRED > 0 for end in ends)
        given = sum(end & GIVEN > 0 for end in ends)
        dropped = sum(stats.get(key, 0) for key in DROPPED)
        equal = {
            "pages and their ends": (world.issued, called + erred + dropped - spider.unreadable),
            "callbacks and items": (called, given),
            "items and their count": (self.items.count, stats["item_scraped_count"], given),
            "sends and their count": (self.wire.sends, stats["request_count"]),
            "responses and their count": (self.wire.responses, stats["response_count"]),
            "links that were known": (spider.duplicates, stats["dupefilter_filtered"]),
            "links to mail": (spider.mail, stats.get("scheme_filtered", 0)),
            "failed callbacks": (spider.failures, stats.get("spider_exceptions", 0)),
            "the reason": (self.result.reason, "finished"),
        }
        return [*world.violations, *(f"{what}: {values}" for what, values in equal.items() if len(set(values)) > 1)]

    def rest(self) -> list[str]:
        """Return data that is left at the end."""
        scheduler, throttle = self.crawl._scheduler, self.crawl._throttle
        statistics = self.frontier.statistics()
        scopes = list(throttle.table)
        left = {
            "pending in the frontier": statistics.pending,
            "leased": statistics.leased,
            "pending in the scheduler": scheduler.pending,
            "in flight in the scheduler": scheduler.in_flight,
            "lanes": len(scheduler.lanes),
            "scope queues": len(scheduler.queues.scope_queues),
            "timers": 0 if math.isinf(scheduler.queues.next_timer()) else 1,
            "in flight in scopes": sum(scope.traffic.in_flight + scope.traffic.unsent for scope in scopes),
            "reserved": sum(scope.quota.reserved for scope in scopes if scope.quota is not None),
            "on the wire": sum(not ruler.is_empty() for ruler in [*self.wire.rulers.values(), self.wire.all]),
            "direct fetches": len(self.crawl._state.waiters),
        }
        return [f"{count} {what}" for what, count in left.items() if count]

    def flatness(self) -> list[str]:
        """Return a violation if the memory grows by more than the seen fingerprints."""
        held = self.memory.held
        if len(held) < 3:
            return ["the memory was not measured"]
        allowed = (self.world.most / 3 * SEEN_BYTES + SLACK) / MEBIBYTE
        grown = held[2] - held[1]
        return [f"the last third took {grown:.1f} MiB more, {allowed:.1f} allowed: {held}"] if grown > allowed else []


async def _crawled(world: World, seed: int) -> _Run:
    spiders: list[Soak] = []
    crawls: list[Crawl] = []

    async def keep(crawl: Crawl) -> None:
        crawls.append(crawl)
        assert isinstance(crawl.spider, Soak)
        spiders.append(crawl.spider)

    values = settings(world, seed)
    inner = world.transport(values.of(TransportSettings), seed=seed, begun_at=trio.current_time())
    wire, frontier, memory = Watched(inner, world), MemoryFrontier(), Memory(world)
    items = Items(lambda: spiders[0])
    transport: Transport = wire
    with guarded() as guard, GuardInstrument(guard) as instrument:
        inner.on_bug = guard.end
        result = await crawl_with(
            Soak,
            values,
            spider_args={"world": world},
            watchers=[keep, memory.watch],
            receivers=[items],
            transport=transport,
            frontier=frontier,
            blocking=InlineBlocking(),
            resolve=world.resolve,
            seed=seed,
            now_utc=WALL_START_UTC,
        )
    instrument.check()
    return _Run(world, spiders[0], crawls[0], wire, items, memory, frontier, result)
