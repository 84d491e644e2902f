"""Runs a spider against a simulated web. Everything except the network, the clock and threads is real.

A test that only checks items might pass although the spider fails on every page. So :class:`ErrorCollector` collects
the errors of a run and raises them at its end, unless the test wants to collect them.

Length: one run, from its components to everything that a test asks about it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import attrs
import trio
from trio.testing import MockClock

from trawl._run import crawl_with
from trawl.blocking import InlineBlocking
from trawl.errors import ItemLost
from trawl.events import Event, ItemFailed, RequestFailed, SpiderError
from trawl.http import host_scope
from trawl.settings import Layer, Settings, load, of_spider
from trawl.testing.clock import GuardInstrument, VirtualClock, guarded, seeded_scheduling, seeded_scheduling_here
from trawl.testing.limits import RateLimit
from trawl.testing.rates import (
    MAX_PANELS,
    Panel,
    Rate,
    check_picture_name,
    count_rates,
    draw_rates,
    window_for,
    write_picture,
)
from trawl.testing.sends import REFUSALS, ScopeTracker, Send, Span, rounded, timeline
from trawl.testing.svg import draw
from trawl.testing.transport import WALL_START_UTC
from trawl.tracebacks import UserExit, describe_error, user_place
from trawl.transport import TransportSettings

if TYPE_CHECKING:
    from trawl._run import CrawlResult
    from trawl.engine import Crawl
    from trawl.spiders import Spider
    from trawl.testing.web import SimulatedWeb
    from trawl.throttling import ScopeReport

__all__ = ["Errors", "Simulation", "SimulationFailed", "crawl_web", "simulate"]

Errors = Literal["raise", "collect"]
"""Whether a run raises the spider's errors as :class:`SimulationFailed` or only collects them."""


class SimulationFailed(ExceptionGroup, AssertionError):
    """The spider failed in a simulation: a callback or start() raised, an item was lost, or a host is unknown.

    An exception group of the errors. A note of each error names its request or item. ``web.latest`` is the result of
    the run.
    """

    def derive(self, excs: Sequence[Exception]) -> SimulationFailed:  # type: ignore[override]
        """Return a group of some of the errors."""
        return SimulationFailed(self.message, excs)


@attrs.frozen(kw_only=True)
class Simulation:
    """The result of one run of a spider on a simulated web.

    Attributes:
        sends: All sends, in order: pages, robots.txt, redirects, retries, direct fetches.
        items: The items, in the order in which they finished.
        stats: The statistics by key.
        reason: The reason why the crawl ended, as in ``CrawlResult``.
        elapsed: Duration in seconds on the virtual clock.
        find_stretches: Computes ``stretches`` on first use.
        report: The report of each scope with its limits, the busiest first.
        title: The default title of pictures.
        limits: The rate limits of each simulated host that received a request.
        errors: The errors of user code, of lost items, and of unknown hosts whose requests have no errback. A note of
            each error names its request or item.
    """

    sends: tuple[Send, ...]
    items: list[Any]
    stats: Mapping[str, Any]
    reason: str
    elapsed: float
    find_stretches: Callable[[], Sequence[Span]] = attrs.field(default=tuple, repr=False, eq=False)
    report: Sequence[ScopeReport] = attrs.field(default=(), repr=False)
    title: str = "Sends"
    limits: Mapping[str, Sequence[RateLimit]] = attrs.field(factory=dict, repr=False)
    errors: Sequence[Exception] = ()

    @cached_property
    def stretches(self) -> Sequence[Span]:
        """The periods in which scopes were closed, with the reasons."""
        return self.find_stretches()

    def of(self, scope: str) -> list[Send]:
        """Return the sends charged to ``scope``, or sent to that host without a scope, in order."""
        return [send for send in self.sends if scope in send.scopes or (not send.scopes and send.host == scope)]

    def times(self, scope: str) -> list[float]:
        """Return the times of the sends of ``scope``, in seconds since the start of the crawl."""
        return [send.time for send in self.of(scope)]

    def gaps(self, scope: str) -> list[float]:
        """Return the seconds between consecutive sends of ``scope``."""
        return [rounded(later - earlier) for earlier, later in pairwise(self.times(scope))]

    def most_in_flight(self, scope: str | None = None) -> int:
        """Return the maximum number of sends in flight at once, in ``scope`` or in total.

        If a send ends when another send starts, they do not count as simultaneous.
        """
        sends = self.sends if scope is None else self.of(scope)
        changes = sorted([(send.time, 1) for send in sends] + [(send.finished, -1) for send in sends])
        most = count = 0
        for _, change in changes:
            count += change
            most = max(most, count)
        return most

    def rate(self, scope: str) -> float:
        """Return the sends per second from the first to the last send of ``scope``; 0.0 for fewer than two sends."""
        times = self.times(scope)
        return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 and times[-1] > times[0] else 0.0

    @property
    def scopes(self) -> list[str]:
        """The ids of the scopes with sends (or the hosts, for sends without a scope), the busiest first."""
        used = Counter(scope for send in self.sends for scope in send.scopes or (send.host,))
        return sorted(used, key=lambda scope: (-used[scope], scope))

    def rates(self, scope: str, window: float | None = None) -> list[Rate]:
        """Return the rate of ``scope`` over time, in windows from the start of the crawl to its last response.

        Args:
            scope: The id of the scope.
            window: Length of a window in seconds. The last window is between half and one and a half times as long.
                None selects 1, 2 or 5 times a power of ten, so that there are at most 200 windows, with at least five
                sends on average.

        Raises:
            ValueError: If the window is not more than 0.
        """
        sends, end = self.of(scope), self._end
        seconds = window_for(end, len(sends)) if window is None else window
        return count_rates([send.time for send in sends], self._refused_at(sends), 0.0, end, seconds)

    def limit(self, scope: str) -> list[tuple[float, float]]:
        """Return the average rate that the simulated server of ``scope`` allows.

        Returns:
            Pairs of a time, in seconds since the start of the crawl, and the requests per second from then on. If there
            are several limits, the lowest applies. Empty if the server has no limit, or the scope's sends went to
            several hosts.
        """
        hosts = {send.host for send in self.of(scope)}
        limits = self.limits.get(hosts.pop(), ()) if len(hosts) == 1 else ()
        steps: list[tuple[float, float]] = []
        for at in sorted({0.0, *(at for limit in limits for at, _ in limit.changes)}) if limits else ():
            rate = min(limit.rate_at(at) for limit in limits)
            if not steps or steps[-1][1] != rate:
                steps.append((at, rate))
        return steps

    @cached_property
    def _end(self) -> float:
        return max([send.finished for send in self.sends], default=0.0) or 1.0

    def _refused_at(self, sends: Iterable[Send]) -> list[float]:
        return [send.time for send in sends if send.status in REFUSALS]

    def timeline(self, most: int = 10_000) -> str:
        """Print the sends, one per line, and return the same text.

        Args:
            most: Maximum number of lines.
        """
        text = timeline(self.sends, most)
        print(text)
        return text

    def to_svg(
        self,
        path: str | Path | None = None,
        *,
        title: str | None = None,
        start: float = 0.0,
        end: float | None = None,
        scopes: Iterable[str] | None = None,
        width: float = 1200.0,
    ) -> str:
        """Draw the sends, with a track for each scope and a row for each slot. Returns the picture as SVG text.

        Args:
            path: A file to write the picture to; None for no file.
            title: The heading; None for the spider's name.
            start: The first second to show.
            end: The last second to show; None for the end of the crawl.
            scopes: The scopes to show, in this order. None shows all scopes, the most used at the top.
            width: Width in pixels.

        Raises:
            OSError: If the file can't be written.
        """
        told = self.title if title is None else title
        picture = draw(self.sends, self.stretches, title=told, width=width, start=start, end=end, scopes=scopes)
        if path is not None:
            Path(path).write_text(picture, encoding="utf-8")
        return picture

    def plot(
        self,
        path: str | Path | None = None,
        *,
        title: str | None = None,
        start: float = 0.0,
        end: float | None = None,
        scopes: Iterable[str] | None = None,
        window: float | None = None,
        width: float = 900.0,
        height: float = 116.0,
    ) -> str:
        """Draw the rate of each scope over time, and the limit of its server. Returns the picture as SVG text.

        Bars are requests per second, with refused requests in red. The server's limit is a dashed line (see
        :meth:`limit`). The picture is light or dark, as the reader's browser prefers.

        Args:
            path: A file to write the picture to: SVG, or PNG if its name ends in ``.png`` (light, twice as large);
                None for no file.
            title: The heading; None for the spider's name.
            start: The first second to show.
            end: The last second to show; None for the end of the crawl.
            scopes: The scopes to show, in this order. None shows the 12 busiest scopes and the number of other scopes.
            window: Length of a window in seconds. None selects the length that :meth:`rates` would choose for the
                busiest scope shown.
            width: Width in pixels.
            height: Height of each graph in pixels, without its heading and its axis.

        Raises:
            ValueError: If the file's name ends in neither ``.svg`` nor ``.png``, or the window is not more than 0.
            ImportError: If the file is a PNG and the ``png`` extra is not installed.
            OSError: If the file can't be written.
        """
        if path is not None:
            check_picture_name(path)
        until = self._end if end is None else end
        until = until if until > start else start + 1.0
        names = self.scopes if scopes is None else list(scopes)
        shown = names[:MAX_PANELS] if scopes is None else names
        sends = {scope: [send for send in self.of(scope) if start <= send.time <= until] for scope in shown}
        if window is None:
            window = window_for(until - start, max(map(len, sends.values()), default=0))
        panels = [self._panel(scope, sends[scope], start, until, window) for scope in shown]
        told = self.title if title is None else title
        omitted = len(names) - len(shown)
        picture = draw_rates(panels, title=told, start=start, end=until, omitted=omitted, width=width, height=height)
        if path is not None:
            write_picture(picture, path)
        return picture

    def _panel(self, scope: str, sends: Sequence[Send], start: float, end: float, window: float) -> Panel:
        refused = self._refused_at(sends)
        note = f"{len(sends):,} sends" + (f", {len(refused):,} of them refused" if refused else "")
        rates = count_rates([send.time for send in sends], refused, start, end, window)
        return Panel(title=scope, note=note, rates=rates, refused_at=refused, limit=self.limit(scope))


def simulate(
    spider_cls: type[Spider],
    web: SimulatedWeb,
    settings: Mapping[str, object] | None = None,
    seed: int = 0,
    *,
    errors: Errors = "raise",
    **spider_args: Any,
) -> Simulation:
    """Run a spider against a simulated web on a new virtual clock, and return the result.

    Hours of waiting pass in milliseconds. The wall clock starts at 2025-01-01T00:00:00Z. The same seed gives the same
    sends, even in a new process. Settings come from the defaults, the spider's ``custom_settings`` and ``settings``.
    The environment and pyproject.toml are not read, so that a test behaves the same everywhere.

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
        seed: The seed of all random numbers and of the order of tasks.
        errors: "collect" keeps the errors of the spider in ``Simulation.errors`` instead of raising them.
        spider_args: Arguments of the spider's constructor.

    Raises:
        SimulationFailed: If a callback or start() raised, an item was lost, or a request without an errback went to a
            host that is not in the web.
        RuntimeError: If Trio already runs in this thread. Use ``await web.crawl(...)`` instead.
        Stuck: If the crawl waits for something that will never happen.
        NotSimulated: If the crawl tried to use a real socket, thread or process.
        SettingsError: If a setting is unknown or not valid.
        Exception: If a handler of the web raised it.
    """
    if trio.lowlevel.in_trio_run():
        raise RuntimeError("simulate() starts Trio, which already runs here: use `await web.crawl(...)` instead")
    with seeded_scheduling(seed):
        run = partial(_crawl, spider_cls, web, settings, seed, errors, spider_args)
        return trio.run(run, clock=VirtualClock())


async def crawl_web(
    spider_cls: type[Spider],
    web: SimulatedWeb,
    settings: Mapping[str, object] | None,
    seed: int,
    errors: Errors,
    spider_args: Mapping[str, Any],
    *,
    has_browser: bool = False,
) -> Simulation:
    """Run a spider as in :meth:`trawl.testing.SimulatedWeb.crawl`, in a Trio program with a virtual clock.

    If ``has_browser``, run it as in :meth:`trawl.testing.SimulatedWeb.crawl_in_browser`, on the clock of the program.
    """
    if isinstance(trio.lowlevel.current_clock(), MockClock) is has_browser:
        if has_browser:
            raise RuntimeError("a browser needs a real clock: the test must not use the fixture autojump_clock")
        raise RuntimeError("a simulated crawl needs a virtual clock: give the test the fixture autojump_clock")
    with seeded_scheduling_here(seed):
        return await _crawl(spider_cls, web, settings, seed, errors, spider_args, has_browser=has_browser)


async def _crawl(
    spider_cls: type[Spider],
    web: SimulatedWeb,
    given: Mapping[str, object] | None,
    seed: int,
    errors: Errors,
    spider_args: Mapping[str, Any],
    *,
    has_browser: bool = False,
) -> Simulation:
    if errors not in get_args(Errors):
        raise ValueError(f'errors={errors!r}: use "raise" or "collect"')
    # Two simulations in one program do not share scopes, unless the test sets THROTTLING_SHARED.
    apart = Layer("simulation", {"THROTTLING_SHARED": False, **({"BROWSER_SANDBOX": False} if has_browser else {})})
    layers = () if isinstance(given, Settings) else (apart, of_spider(spider_cls), Layer("settings", given or {}))
    settings = given if isinstance(given, Settings) else load(*layers)
    begun_at = trio.current_time()
    transport = web.transport(settings.of(TransportSettings), seed=seed, begun_at=begun_at)
    tracker = ScopeTracker(transport.send_log, begun_at)
    collector = ErrorCollector()
    replaced: dict[str, Any] = {}
    with ExitStack() as stack:
        if not has_browser:
            guard = stack.enter_context(guarded())
            instrument = stack.enter_context(GuardInstrument(guard))
            transport.on_bug = guard.end
            replaced = {"blocking": InlineBlocking(), "now_utc": WALL_START_UTC}
            replaced["open_page"] = partial(web.open_page, on_bug=guard.end)
        stack.enter_context(collector)
        result = await crawl_with(
            spider_cls,
            settings,
            spider_args=spider_args,
            collect=True,
            watchers=[tracker.watch, collector.watch],
            transport=transport,
            resolve=web.resolve,
            seed=seed,
            recorder=tracker.record,
            **replaced,
        )
    if not has_browser:
        instrument.check()
    sends = transport.send_log.sends(begun_at, trio.current_time())
    collector.finish(transport.unknown, result)
    web.latest = Simulation(
        sends=sends,
        items=result.items or [],
        stats=result.stats,
        reason=result.reason,
        elapsed=rounded(result.elapsed),
        find_stretches=partial(tracker.stretches, sends),
        report=tracker.report,
        title=f"Spider {spider_cls.name or spider_cls.__name__}",
        limits={send.host: host.limit for send in sends if (host := web.host_of(send.url)) is not None},
        errors=tuple(collector.errors),
    )
    if collector.is_failure and errors == "raise":
        raise collector.failure(spider_cls)
    return web.latest


_collecting: ContextVar[ErrorCollector | None] = ContextVar("trawl_simulation_errors", default=None)
_SHOWN = 5
_MAX_EVENTS = 100_000


class ErrorCollector(logging.Handler):
    """Collects the errors of one simulated crawl from its log and its events.

    The collector is a handler of trawl's log, and a context manager. The log contains the errors of all user code, with
    their requests. The events are needed in case the log is disabled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []  # the errors in order, without duplicates
        # Whether a callback or `start()` failed, a host is unknown or an item was lost. Failures of other user code,
        # such as middleware or a throttling manager, do not count, because tests may be about them.
        self.is_failure: bool = False
        self._notes: dict[int, str] = {}
        self._told: list[Event] = []
        self._heard: dict[str, bool] = {}  # by host: whether errbacks received all failed requests

    def __enter__(self) -> ErrorCollector:
        self._token = _collecting.set(self)
        logging.getLogger("trawl").addHandler(self)
        return self

    def __exit__(self, *raised: object) -> None:
        logging.getLogger("trawl").removeHandler(self)
        _collecting.reset(self._token)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the error of a record, unless another crawl of this program has logged the record."""
        handlers = [*logging.getLogger("trawl").handlers, *logging.getLogger().handlers]
        last = logging.lastResort
        is_alone = handlers[0] is self and all(isinstance(handler, ErrorCollector) for handler in handlers)
        # Python prints warnings if a program has no log handler. This collector is a handler that the program did not
        # add, so print the warnings here.
        if is_alone and last is not None and record.levelno >= last.level:
            last.handle(record)
        if record.levelno < logging.ERROR or _collecting.get() is not self:
            return
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._add(error, record.getMessage())
        elif record.name == "trawl.feeds":  # a feed refused an item
            self._add(ItemLost(record.getMessage()), "")

    async def watch(self, crawl: Crawl) -> None:
        """Store the events of failures. Run by the engine. A checkpoint."""
        with crawl.events(SpiderError, ItemFailed, RequestFailed, most=_MAX_EVENTS) as events:
            async for event in events:
                if not isinstance(event, RequestFailed):
                    self._told.append(event)
                elif not event.request.url.endswith("/robots.txt"):  # not robots.txt, because its pages fail too
                    host = host_scope(event.request.url)
                    self._heard[host] = event.request.errback is not None and self._heard.get(host, True)

    def finish(self, hosts: Mapping[str, Exception], result: CrawlResult) -> None:
        """Add the errors that the log does not contain. ``hosts`` maps unknown hosts to their errors."""
        unknown = [error for host, error in hosts.items() if not self._heard.get(host)]
        has_lost = any(isinstance(error, ItemLost) for error in self.errors)
        self.is_failure = bool(self._told or unknown or result.error or result.reason == "start_error" or has_lost)
        for event in self._told:
            if isinstance(event, SpiderError):
                self._add(event.error, f"{event.request!r}: the callback failed")
            elif isinstance(event, ItemFailed) and not (
                isinstance(event.error, ItemLost) and any(isinstance(each, ItemLost) for each in self.errors)
            ):
                self._add(event.error, f"the item {event.item!r:.200} is lost")
        for error in unknown:
            self._add(error, "add_host() and add_page() add a host to the web")
        if result.error is not None:
            self._add(result.error, "")
        if result.reason == "start_error" and not self.errors:
            self._add(RuntimeError("start() failed, and the log that has the error is disabled"), "")
        for error, note in zip(self.errors, self._notes.values(), strict=True):
            error.add_note(note)  # added last, because the log would show the note too

    def failure(self, spider_cls: type[Spider]) -> SimulationFailed:
        """Return the errors as one exception group."""
        count = len(self.errors)
        lines = [f"{spider_cls.__name__} failed in the simulation, {count} error{'s' if count > 1 else ''}:"]
        lines += [f"- {_line_of(error)}" for error in self.errors[:_SHOWN]]
        lines += [f"- and {count - _SHOWN} more"] if count > _SHOWN else []
        lines.append('errors="collect" keeps them in Simulation.errors instead')
        return SimulationFailed("\n".join(lines), self.errors)

    def _add(self, error: BaseException, note: str) -> None:
        failure = error if isinstance(error, Exception) else UserExit(error).with_traceback(error.__traceback__)
        if id(error) not in self._notes:
            self._notes[id(error)] = note
            self.errors.append(failure)


def _line_of(error: Exception) -> str:
    return ": ".join(part for part in (*error.__notes__[-1:], user_place(error), describe_error(error)) if part)
