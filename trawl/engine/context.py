"""The context of one crawl: its settings, statistics, clocks and components."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from trawl.engine.callbacks import Shields
from trawl.engine.no_job import NoJob
from trawl.engine.state import State
from trawl.events import Events
from trawl.http import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trawl.address_guard import AddressGuard
    from trawl.blocking import Blocking
    from trawl.clock import WallClock
    from trawl.engine.crawl import Crawl, Watcher
    from trawl.engine.fetcher import Recorder
    from trawl.engine.hooks import Hooks
    from trawl.engine.items import ItemReceiver, Processor, Writer
    from trawl.engine.settings import EngineSettings
    from trawl.frontier import Frontier
    from trawl.http import Request
    from trawl.middleware import MiddlewareStack
    from trawl.observe import Stats
    from trawl.robots import RobotsSettings
    from trawl.scheduler import SchedulerSettings
    from trawl.spiders import ItemCheck, Spider
    from trawl.throttling import AddressOf, ThrottlingSettings
    from trawl.throttling.common import CommonScopes
    from trawl.transport import Transport

__all__ = ["CrawlContext"]


@attrs.frozen(kw_only=True)
class CrawlContext:
    """Everything that the objects of a crawl share, as values and components instead of settings.

    Attributes:
        spider: The spider, which starts the crawl and parses its pages.
        settings: The mapping behind ``spider.settings``.
        stats: The statistics of the crawl.
        engine: The engine's settings.
        scheduler: The settings of admission and order.
        throttling: The throttle's settings.
        robots: The settings of robots.txt.
        user_agent: Name whose group in robots.txt applies if the settings have none.
        transport: Sends requests.
        middleware_stack: The middleware, cookies, sessions and cache.
        frontier: Stores pending requests.
        pipelines: Makes the item pipelines for the crawl.
        hooks: Makes the hooks of the crawl, the check of its items included.
        receivers: Receive finished items.
        collected: List that also receives finished items; None if they are not collected.
        watchers: Tasks that run alongside the crawl. If one fails, the error is logged and the crawl continues.
        recorder: Notified of each send and its end.
        wall: Wall time, computed from the event loop time.
        seed: Seed of all randomness in the crawl.
        address_of: Returns the address of a host, for limits by address and for managers.
        guard: Decides which addresses may be connected to; None: all.
        open_job: The job, if the crawl has one.
        mark: Returns the seen mark of a request; None if the request is always new, empty if it was already seen.
        follows_loops: True if a redirect to an earlier URL of its chain is followed, because that page may have set a
            cookie.
        blocking: Runs blocking work.
        shares_host: Returns True for hosts that rendered pages of several processes need; None if there are none.
        common: Scopes shared by the crawls of this event loop; None: this crawl shares none.
        events: Receives the events of the crawl.
        state: Number of open requests, and whether the crawl is ending.
        shields: Protect awaits of the engine inside a callback from the callback's own cancel scopes.
    """

    spider: Spider
    settings: Mapping[str, Any]
    stats: Stats
    engine: EngineSettings
    scheduler: SchedulerSettings
    throttling: ThrottlingSettings
    robots: RobotsSettings
    user_agent: str
    transport: Transport
    middleware_stack: MiddlewareStack
    frontier: Frontier
    pipelines: Callable[[Crawl], Processor]
    hooks: Callable[[Crawl, ItemCheck | None], Hooks]
    receivers: Sequence[ItemReceiver]
    collected: list[object] | None
    watchers: Sequence[Watcher]
    recorder: Recorder | None
    wall: WallClock
    seed: int
    address_of: AddressOf
    blocking: Blocking
    guard: AddressGuard | None = None
    open_job: NoJob = attrs.field(factory=NoJob)
    mark: Callable[[Request], bytes | None] = fingerprint
    follows_loops: bool = True
    shares_host: Callable[[str], bool] | None = None
    common: CommonScopes | None = None
    events: Events = attrs.field(factory=Events)
    state: State = attrs.field(init=False)
    shields: Shields = attrs.field(init=False, factory=Shields)

    @state.default
    def _new_state(self) -> State:
        return State(self.engine.concurrent_callbacks)

    @property
    def writers(self) -> Sequence[Writer]:
        """The tasks that write items."""
        return [*self.receivers, *self.open_job.writers]
