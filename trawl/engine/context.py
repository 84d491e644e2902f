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
        spider: spider: The spider, which starts the crawl and parses its pages.
        settings: settings: The mapping behind ``spider.settings``.
        stats: stats: The statistics of the crawl.
        engine: engine: The engine's settings.
        scheduler: scheduler: The settings of admission and order.
        throttling: The throttle's settings.
        robots: robots: The settings of robots.txt.
        user_agent: user_agent: Name whose group in robots.txt applies if the settings have none.
        transport: transport: Sends requests.
        middleware_stack: middleware_stack: The middleware, cookies, sessions and cache.
        frontier: frontier: Stores pending requests.
        pipelines: Makes the item pipelines for the crawl.
        hooks: Makes the hooks of the crawl, the check of its items included.
        receivers: receivers: Receive finished items.
        collected: collected: List that also receives finished items; None if they are not collected.
        watchers: watchers: Tasks that run beside the crawl. If one fails, the error is logged and the crawl continues.
        recorder: recorder: Notified of each send and its end.
        wall: wall: Wall time, computed from the event loop time.
        seed: seed: Seed of all randomness in the crawl.
        address_of: address_of: Returns the address of a host, for limits by address and for managers.
        guard: guard: Decides which addresses may be connected to; None: all.
        open_job: open_job: The job, if the crawl has one.
        mark: mark: Returns the seen mark of a request; None: the request is always new; empty: it was already seen.
        follows_loops: follows_loops: True if a redirect to an earlier URL of its chain is followed, because that page
            may have set a cookie.
        blocking: blocking: Runs blocking work.
        common: common: Scopes shared by the crawls of this event loop; None: this crawl shares none.
        events: events: Receives the events of the crawl.
        state: state: Number of open requests, and whether the crawl is ending.
        shields: shields: Protect awaits of the engine inside a callback from the callback's own cancel scopes.
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
