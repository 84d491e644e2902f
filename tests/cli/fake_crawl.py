"""A fake crawl that shows the command the state of a crawl at the times that a test chooses."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

import attrs
import trio
import trio.testing

from trawl._run import CrawlResult
from trawl.cli.view import Watcher
from trawl.engine import WaitingCount
from trawl.observe import Stats
from trawl.settings import Settings
from trawl.spiders import Spider
from trawl.throttling import Reason, ScopeReport


class Quotes(Spider):
    name = "quotes"


@attrs.frozen
class Held:
    count: int
    reason: Reason


@attrs.define
class FakeCrawl:
    spider: Spider = attrs.field(factory=Quotes)
    stats: Stats = attrs.field(factory=Stats)
    elapsed: float = 0.0
    queued: int = 0
    in_flight: int = 0
    callbacks: int = 0
    held: tuple[Held, ...] = ()
    reports: tuple[ScopeReport, ...] = ()

    def waiting_in_steps(self, most: int) -> Generator[None, None, tuple[WaitingCount, Sequence[Held]]]:
        yield
        return WaitingCount(sum(held.count for held in self.held), len(self.held)), self.held[:most]

    def report(self) -> Sequence[ScopeReport]:
        return self.reports


@attrs.define
class FakeEngine:
    """A ``crawl_with`` that ends immediately with ``reason``, or raises ``error``, and stores its arguments."""

    reason: str = "finished"
    error: BaseException | None = None
    crawl: FakeCrawl = attrs.field(factory=FakeCrawl)
    lasts: float = 0.0
    spider_cls: type[Spider] | None = None
    settings: Settings | None = None
    spider_args: Mapping[str, str] = attrs.field(factory=dict)
    handles_signals: bool = False
    watchers: int = 0

    async def __call__(
        self,
        spider_cls: type[Spider],
        settings: Settings,
        *,
        spider_args: Mapping[str, str],
        watchers: Sequence[Watcher] = (),
        handle_signals: bool = False,
    ) -> CrawlResult:
        self.spider_cls, self.settings, self.spider_args = spider_cls, settings, spider_args
        self.watchers, self.handles_signals = len(watchers), handle_signals
        if self.error is not None:
            raise self.error
        async with trio.open_nursery() as nursery:
            for watcher in watchers:
                nursery.start_soon(watcher, self.crawl)
            await trio.sleep(self.lasts)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        return CrawlResult(self.reason, self.crawl.stats.as_dict(), self.crawl.elapsed)
