"""A fake crawl that shows the command the state of a crawl at the times that a test chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import trio
import trio.testing

from trawl._run import CrawlResult
from trawl.cli.view import Watcher
from trawl.observe import CrawlStatus, Stats
from trawl.observe.status import Rates, WaitingGroup
from trawl.settings import Settings
from trawl.spiders import Spider
from trawl.throttling import ScopeReport


class Quotes(Spider):
    name = "quotes"


@attrs.define
class FakeCrawl:
    spider: Spider = attrs.field(factory=Quotes)
    stats: Stats = attrs.field(factory=Stats)
    elapsed: float = 0.0
    queued: int = 0
    in_flight: int = 0
    callbacks: int = 0
    rates: Rates = attrs.field(factory=Rates)
    waiting: tuple[WaitingGroup, ...] = ()
    reports: tuple[ScopeReport, ...] = ()

    def status(self) -> CrawlStatus:
        return CrawlStatus(
            spider=self.spider.name,
            at=self.elapsed,
            pages=self.stats.count("response_count"),
            queued=self.queued,
            in_flight=self.in_flight,
            rates=self.rates,
            held=sum(group.count for group in self.waiting),
            groups=len(self.waiting),
            waiting=self.waiting,
        )

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
