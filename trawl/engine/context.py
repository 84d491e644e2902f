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

__all__ = ["CrawlContext", "CrawlValues", "ItemOutput", "Network"]


@attrs.frozen(kw_only=True)
class CrawlValues:
    """The values that a crawl takes from its settings. The parts of the engine never see the settings themselves.

    Attributes:
        settings: The mapping behind ``spider.settings``.
        engine: The engine's settings.
        scheduler: The settings of admission and order.
        throttling: The throttle's settings.
        robots: The settings of robots.txt.
        user_agent: Name whose group in robots.txt applies if the settings have none.
        follows_loops: True if a redirect to an earlier URL of its chain is followed, because that page may have set a
            cookie.
        seed: Seed of all randomness in the crawl.
    """

    settings: Mapping[str, Any]
    engine: EngineSettings
    scheduler: SchedulerSettings
    throttling: ThrottlingSettings
    robots: RobotsSettings
    user_agent: str
    follows_loops: bool
    seed: int


@attrs.frozen(kw_only=True)
class Network:
    """The way to the wire, and what is known of addresses.

    Attributes:
        transport: Sends requests.
        recorder: Notified of each send and its end; None if nobody is.
        address_of: Returns the address of a host, for limits by address and for managers.
        guard: Decides which addresses may be connected to.
        shares_host: Returns True for hosts that rendered pages of several processes need; None if there are none.
    """

    transport: Transport
    recorder: Recorder | None
    address_of: AddressOf
    guard: AddressGuard
    shares_host: Callable[[str], bool | None] | None


@attrs.frozen(kw_only=True)
class ItemOutput:
    """The way of items out of the crawl.

    Attributes:
        pipelines: Makes the item pipelines for the crawl.
        receivers: Receive finished items.
        collected: List that also receives finished items; None if they are not collected.
    """

    pipelines: Callable[[Crawl], Processor]
    receivers: Sequence[ItemReceiver]
    collected: list[object] | None


@attrs.frozen(kw_only=True)
class CrawlContext:
    """Everything that the objects of a crawl share, as values and components instead of settings.

    Attributes:
        spider: The spider, which starts the crawl and parses its pages.
        stats: The statistics of the crawl.
        values: The values of its settings.
        network: The way to the wire.
        middleware_stack: The middleware, cookies, sessions and cache.
        frontier: Stores pending requests.
        output: The way of items out of it.
        hooks: Makes the hooks of the crawl, the check of its items included.
        watchers: Tasks that run alongside the crawl. If one fails, the error is logged and the crawl continues.
        wall: Wall time, computed from the event loop time.
        open_job: The job, if the crawl has one.
        mark: Returns the seen mark of a request; None if the request is always new, empty if it was already seen.
        blocking: Runs blocking work.
        common: Scopes shared by the crawls of this event loop; None: this crawl shares none.
        events: Receives the events of the crawl.
        state: Number of open requests, and whether the crawl is ending.
        shields: Protect awaits of the engine inside a callback from the callback's own cancel scopes.
    """

    spider: Spider
    stats: Stats
    values: CrawlValues
    network: Network
    middleware_stack: MiddlewareStack
    frontier: Frontier
    output: ItemOutput
    hooks: Callable[[Crawl, ItemCheck | None], Hooks]
    watchers: Sequence[Watcher]
    wall: WallClock
    blocking: Blocking
    open_job: NoJob = attrs.field(factory=NoJob)
    mark: Callable[[Request], bytes | None] = fingerprint
    common: CommonScopes | None = None
    events: Events = attrs.field(factory=Events)
    state: State = attrs.field(init=False)
    shields: Shields = attrs.field(init=False, factory=Shields)

    @state.default
    def _new_state(self) -> State:
        return State(self.values.engine.concurrent_callbacks)

    @property
    def writers(self) -> Sequence[Writer]:
        """The tasks that write items."""
        return [*self.output.receivers, *self.open_job.writers]
