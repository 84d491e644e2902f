"""Runs a spider against a simulated web; everything except the wire, the clock and threads is real."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from trio.testing import MockClock

from trawl._run import crawl_with
from trawl.blocking import InlineBlocking
from trawl.settings import Layer, Settings, load, of_spider
from trawl.testing.clock import VirtualClock, seeded_scheduling, seeded_scheduling_here
from trawl.testing.guard import guarded
from trawl.testing.sends import Recorder, rounded
from trawl.testing.simulation import Simulation
from trawl.testing.transport import WALL_START_UTC
from trawl.testing.watchdog import Watchdog
from trawl.transport import TransportSettings

if TYPE_CHECKING:
    from trawl.spiders import Spider
    from trawl.testing.web import SimulatedWeb

__all__ = ["crawl_web", "simulate"]


def simulate(
    spider_cls: type[Spider],
    web: SimulatedWeb,
    settings: Mapping[str, object] | None = None,
    seed: int = 0,
    **spider_args: Any,
) -> Simulation:
    """Run a spider against a simulated web, on a virtual clock of its own, and return what it did.

    Hours of waiting pass in milliseconds. The wall clock starts at 2025-01-01T00:00:00Z. The same seed gives the same
    sends, in a new process too. Settings come from the defaults, the spider's ``custom_settings`` and ``settings``;
    neither the environment nor pyproject.toml is read, so that a test behaves the same everywhere.

    >>> class Titles(trawl.Spider):
    ...     name = "titles"
    ...     start_urls = ["http://a.example/"]
    ...
    ...     def parse(self, response):
    ...         yield {"title": response.css("title::text").get()}
    >>> web = SimulatedWeb()
    >>> web.add_page("http://a.example/", title="A")
    >>> simulate(Titles, web, {"DOWNLOAD_DELAY": 2}).items
    [{'title': 'A'}]

    Args:
        spider_cls: The spider's class.
        web: The simulated web.
        settings: Settings that override ``custom_settings``.
        seed: The seed of all random numbers, and of the order of tasks.
        spider_args: Arguments of the spider's constructor.

    Raises:
        RuntimeError: Trio already runs in this thread: use ``await web.crawl(...)``.
        Stuck: The crawl waits for something that will never happen.
        NotSimulated: The crawl tried to use a real socket, thread or process.
        SettingsError: A setting is unknown or not valid.
        Exception: The error of a handler of the web.
    """
    if trio.lowlevel.in_trio_run():
        raise RuntimeError("simulate() starts Trio, which already runs here: use `await web.crawl(...)` instead")
    with seeded_scheduling(seed):
        run = partial(_crawl, spider_cls, web, settings, seed, spider_args)
        return trio.run(run, clock=VirtualClock())


async def crawl_web(
    spider_cls: type[Spider],
    web: SimulatedWeb,
    settings: Mapping[str, object] | None,
    seed: int,
    spider_args: Mapping[str, Any],
) -> Simulation:
    """Do the same in a Trio program on a virtual clock; see :meth:`trawl.testing.SimulatedWeb.crawl`. A checkpoint."""
    if not isinstance(trio.lowlevel.current_clock(), MockClock):
        raise RuntimeError("a simulated crawl needs a virtual clock: give the test the fixture autojump_clock")
    with seeded_scheduling_here(seed):
        return await _crawl(spider_cls, web, settings, seed, spider_args)


async def _crawl(
    spider_cls: type[Spider],
    web: SimulatedWeb,
    given: Mapping[str, object] | None,
    seed: int,
    spider_args: Mapping[str, Any],
) -> Simulation:
    # Two simulations in one program are two worlds, unless a test says that their scopes are shared.
    apart = Layer("simulation", {"THROTTLING_SHARED": False})
    settings = (
        given if isinstance(given, Settings) else load(apart, of_spider(spider_cls), Layer("settings", given or {}))
    )
    begun_at = trio.current_time()
    transport = web.transport(settings.of(TransportSettings), seed=seed, begun_at=begun_at)
    recording = Recorder(transport.send_log, begun_at)
    with guarded() as guard, Watchdog(guard) as watchdog:
        transport.on_bug = guard.end
        result = await crawl_with(
            spider_cls,
            settings,
            spider_args=spider_args,
            collect=True,
            watchers=[recording.watch],
            transport=transport,
            blocking=InlineBlocking(),
            resolve=web.resolve,
            seed=seed,
            now_utc=WALL_START_UTC,
            recorder=recording.record,
        )
    watchdog.check()
    sends = transport.send_log.sends(begun_at, trio.current_time())
    web.latest = Simulation(
        sends=sends,
        items=result.items or [],
        stats=result.stats,
        reason=result.reason,
        elapsed=rounded(result.elapsed),
        find_stretches=partial(recording.stretches, sends),
        report=recording.report,
        title=f"Spider {spider_cls.name or spider_cls.__name__}",
        limits={send.host: host.limit for send in sends if (host := web.host_of(send.url)) is not None},
    )
    return web.latest
