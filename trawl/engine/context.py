"""The context of one crawl: its settings, its statistics, its clocks, and the parts that it is given."""

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
    """Everything a crawl is made of, and what its objects share: values and parts, no settings to look into.

    Attributes:
        spider: Where it starts and what becomes of pages.
        settings: What ``spider.settings`` shows.
        stats: Where everything is counted.
        engine: The engine's own settings.
        scheduler: Admission and order.
        throttling: The throttle's settings.
        robots: Whether and how robots.txt is obeyed.
        user_agent: Whose group in robots.txt is ours, where the settings name none.
        transport: The wire.
        middleware_stack: The middleware, cookies, sessions and cache.
        frontier: Where pending requests are kept.
        pipelines: Makes the item pipelines for the crawl.
        hooks: Makes the hooks of the crawl, the check of its items included.
        receivers: Where finished items go.
        collected: Keeps finished items too, if given.
        watchers: Tasks that look at the running crawl; an exception of one is logged, and the crawl continues.
        recorder: Told of each send and its end.
        wall: Wall time read off the run clock.
        seed: All randomness of the run comes from it.
        address_of: Says the address of a host, for limits by address and for managers.
        guard: Says which addresses may be connected to; None: all.
        open_job: The job, if the crawl has one.
        mark: Makes the mark by which a request is seen; None: it is always new; empty: it was seen.
        follows_loops: A redirect to a URL of its own chain is followed, for its page may have set a cookie first.
        blocking: How work that blocks is done.
        common: The scopes that the crawls of this event loop have in common; None: all are this crawl's own.
        events: Told of what happens.
        state: How much is open, and if the crawl is ending.
        shields: Protect what the engine awaits inside a callback from the callback's own cancel scopes.
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
        """The tasks that move items on."""
        return [*self.receivers, *self.open_job.writers]
