"""Running a spider: ``run`` starts Trio, ``crawl`` runs inside it, ``open_crawl`` yields items during the crawl.

Any number of crawls may run at the same time. ``run`` and the command handle signals, ``crawl`` never does.

Length: programs call these functions, so each has complete documentation with an example.
"""

from __future__ import annotations

import logging
import random
import sys
from collections import defaultdict
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import trio

from trawl.address_guard import MAX_NAMES, AddressGuard
from trawl.blocking import Blocking, ThreadBlocking
from trawl.browser import BrowserSettings, shared_hosts
from trawl.cache import CacheSettings
from trawl.clock import WallClock
from trawl.compat.hooks import CompatHooks, hears_idle, ignore_urls
from trawl.engine import Crawl, CrawlContext, EngineSettings, ItemReceiver, Recorder, Watcher, run_crawl
from trawl.engine.callbacks import without_groups
from trawl.engine.context import CrawlValues, ItemOutput, Network
from trawl.engine.no_job import NoJob
from trawl.engine.run import CrawlResult
from trawl.engine.watchers import report_blocked_loop
from trawl.feeds import Feeds, FeedsSettings, open_feeds, with_attributes
from trawl.frontier import SCHEMES, Frontier, JobSettings, MemoryFrontier, named_frontier
from trawl.http import Headers, Middleware, Request, fingerprint, normalize_url
from trawl.http.headers import class_of_crawl
from trawl.middleware import AdvisingTransport, MiddlewareSettings, MiddlewareStack, open_middleware_stack
from trawl.middleware.factory import Adapt
from trawl.observe import Stats, came_to_nothing
from trawl.pipelines import Pipelines, PipelinesSettings
from trawl.robots import RobotsSettings
from trawl.scheduler import SchedulerSettings
from trawl.settings import DEFAULT, Layer, Settings, ambient, digests, load, of_spider
from trawl.settings.hidden import without_effect
from trawl.shutdown import Signals, heed_signals
from trawl.spiders import Spider, make_spider
from trawl.spiders.crawler import Crawler
from trawl.throttling import ThrottlingSettings
from trawl.throttling.common import CommonScopes
from trawl.throttling.outcomes import GivenUpScopes
from trawl.throttling.scope_table import CrawlDelays
from trawl.tracebacks import contained
from trawl.transport import Transport, TransportRouter, TransportSettings
from trawl.transport.resolver import CrawlResolver, DnsResolver, Resolve, ThreadResolver
from trawl.user_files import is_imported_for_spiders

if TYPE_CHECKING:
    from trawl.browser import OpenPage
    from trawl.compat.middleware import Show

__all__ = ["CrawlResult", "OpenCrawl", "crawl", "crawl_with", "header_class", "open_crawl", "run"]

logger: logging.Logger = logging.getLogger("trawl")


def run(spider: type[Spider], settings: Mapping[str, object] | None = None, **spider_args: Any) -> CrawlResult:
    """Start Trio and run a spider until it finishes. The first Ctrl-C drains the crawl, the second cancels it.

    While a command such as ``trawl check`` imports the script for its spiders, nothing is sent.

    ::

        result = trawl.run(Titles, {"DOWNLOAD_DELAY": 2})
        print(result.reason, len(result.items), result.stats["item_scraped_count"])

    Args:
        spider: The spider's class.
        settings: Settings that override all other sources.
        spider_args: Arguments of the spider's constructor.

    Returns:
        The result, with the items if there are no feeds.

    Raises:
        SettingsError: If a setting is unknown or wrong.
        UsageError: If a feed can't be opened, a start URL can't be fetched, or the spider's ``download_delay`` is not
            valid. Nothing was sent.
        RuntimeError: If Trio or asyncio already runs in this thread. Use ``await trawl.crawl(...)`` under Trio, and
            ``await trawl.crawl_in_asyncio(...)`` under asyncio.
        TypeError: If ``spider`` is not a spider's class.
    """
    values = _settings(spider, settings)
    if trio.lowlevel.in_trio_run() and not _is_asyncio_task():
        raise RuntimeError(f"Trio already runs in this thread; write `await trawl.crawl({spider.__name__}, ...)`")
    if _is_asyncio_task():
        called = f"await trawl.crawl_in_asyncio({spider.__name__}, ...)"
        raise RuntimeError(f"asyncio already runs in this thread, for example in a notebook; write `{called}`")
    with Signals():
        return _warned(
            trio.run(partial(crawl_with, spider, values, spider_args=spider_args, collect=None, handle_signals=True))
        )


def _warned(result: CrawlResult) -> CrawlResult:
    """Log a warning if the crawl has no results. Returns ``result``."""
    if words := came_to_nothing(result.reason, result.stats):
        logger.warning("%s", words)
    return result


async def crawl(spider: type[Spider], settings: Mapping[str, object] | None = None, **spider_args: Any) -> CrawlResult:
    """Run a spider until it finishes, inside a Trio program. A checkpoint.

    Any number of crawls may run in one process, also at the same time. Cancelling drops requests in flight, and the
    feeds end with whole records. Arguments and errors are the same as for :func:`run`. Under asyncio, use
    :func:`~trawl.crawl_in_asyncio` instead.

    ::

        async def both():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trawl.crawl, Titles)
                nursery.start_soon(trawl.crawl, Prices)

    Returns:
        The result, with the items if there are no feeds.

    Raises:
        RuntimeError: If Trio does not run in this thread.
    """
    _check_trio("await trawl.crawl()")
    return _warned(await crawl_with(spider, _settings(spider, settings), spider_args=spider_args, collect=None))


STREAM_BUFFER = 100
"""Maximum number of items of an open crawl that wait for the reader. If this many items wait, the crawl waits too."""


class OpenCrawl(AsyncIterator[Any]):
    """A crawl whose items are read while it runs, with ``async for item in crawl``.

    Attributes:
        result: The result, even if the block was left early; None while the crawl runs or if it raised an error.
    """

    def __init__(self, items: trio.MemoryReceiveChannel[Any]) -> None:
        self._items = items
        self._running: Crawl | None = None
        self._error: Exception | None = None
        self._begun = trio.Event()
        self._is_read = trio.Event()
        self._ended = trio.Event()
        self.result: CrawlResult | None = None

    async def __anext__(self) -> Any:
        try:
            return await self._items.receive()
        except trio.EndOfChannel:
            await self._ended.wait()  # noqa: ASYNC120 - the end of the channel is not an error
            self.check()
            raise StopAsyncIteration from None

    def check(self) -> None:
        """Raise the error that ended the crawl, if there is one. A second call does not raise it again."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def to_its_end(self, crawl: Awaitable[CrawlResult], items: trio.MemorySendChannel[Any]) -> None:
        """Run ``crawl`` and store its result or error."""
        try:
            with items:
                self.result = _warned(await crawl)
        except Exception as error:
            self._error = error
        except BaseException:
            self.result = self._cut_off()
            raise
        finally:
            self._begun.set()
            self._ended.set()

    def _cut_off(self) -> CrawlResult:
        """Return the result of a crawl that was cancelled together with its reader."""
        running = self._running
        if running is None:
            return CrawlResult("cancelled", {}, 0.0)
        return CrawlResult(running.reason or "cancelled", running.stats.as_dict(), running.elapsed)

    @property
    def running(self) -> Crawl:
        """The running crawl with its statistics, ``why``, ``throttling.set`` and ``shutdown``.

        Raises:
            RuntimeError: If the crawl could not start. The reason is raised when items are read or the block ends.
        """
        if self._running is None:
            raise RuntimeError("the crawl could not start")
        return self._running

    async def add(self, requests: Request | Iterable[Request]) -> None:
        """Add requests to the running crawl; see :meth:`trawl.engine.crawl.Crawl.add`. A checkpoint."""
        await self.running.add(requests)

    def stay_open(self) -> AbstractContextManager[None]:
        """Keep the crawl from ending while the block runs; see :meth:`trawl.engine.crawl.Crawl.stay_open`."""
        return self.running.stay_open()

    async def until_begun(self) -> None:
        """Wait until the crawl runs or has failed to start. A checkpoint.

        The crawl does not end before the caller awaits again, so the caller can first enter ``stay_open()``.
        """
        await self._begun.wait()
        self._is_read.set()

    async def watch(self, crawl: Crawl) -> None:
        """Store the running crawl. The engine runs this as a watcher."""
        self._running = crawl
        with crawl.stay_open():
            self._begun.set()
            await self._is_read.wait()


class _Stream:
    """The receiver of the items of an open crawl: a bounded channel to the reader."""

    def __init__(self, items: trio.MemorySendChannel[Any]) -> None:
        self._items = items
        self._closed = trio.Event()

    def put_nowait(self, item: object, page: str = "") -> None:
        """Pass an item to the reader. Raises trio.WouldBlock if the channel is full."""
        self._items.send_nowait(item)

    async def put(self, item: object, page: str = "") -> None:
        """Pass an item to the reader. Waits while the channel is full."""
        await self._items.send(item)

    async def write(self) -> None:
        """Wait for the end of the crawl. Nothing is written here, because the reader takes the items itself."""
        await self._closed.wait()

    def close(self) -> None:
        """End the stream of items."""
        self._items.close()
        self._closed.set()


@asynccontextmanager
async def open_crawl(
    spider: type[Spider], settings: Mapping[str, object] | None = None, **spider_args: Any
) -> AsyncGenerator[OpenCrawl, None]:
    """Run a spider and read its items during the crawl: ``async for item in crawl``.

    The block starts when the crawl has started, and before the crawl can end. To :meth:`~OpenCrawl.add` requests, enter
    :meth:`OpenCrawl.stay_open` first. Leaving the block early cancels the crawl, and ``result`` shows its state at that
    time. At most :data:`STREAM_BUFFER` items wait for the reader. Arguments and errors are the same as for :func:`run`.

    ::

        async def titles():
            async with trawl.open_crawl(Titles) as crawl:
                async for item in crawl:
                    print(item)
    """
    _check_trio("trawl.open_crawl()")
    outbox, inbox = trio.open_memory_channel[Any](STREAM_BUFFER)
    opened = OpenCrawl(inbox)
    values = _settings(spider, settings)
    failure: Exception | None = None
    running = crawl_with(spider, values, spider_args=spider_args, receivers=[_Stream(outbox)], watchers=[opened.watch])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(opened.to_its_end, running, outbox)
        with inbox:
            try:
                await opened.until_begun()
                yield opened
            except Exception as error:
                failure = error  # raised below, because the nursery would wrap it in a group
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    opened.check()


async def crawl_with(
    spider: type[Spider],
    settings: Settings,
    *,
    spider_args: Mapping[str, Any] | None = None,  # arguments of the spider's constructor
    collect: bool | None = False,  # True to keep the items for the result; None to keep them unless there are feeds
    # Tasks that watch the running crawl and are cancelled at its end. If a watcher raises an exception, the exception
    # is logged, and the crawl continues.
    watchers: Sequence[Watcher] = (),
    receivers: Sequence[ItemReceiver] = (),  # receivers of items in addition to the feeds
    # True if the process belongs to the crawl. The first SIGINT, SIGTERM or SIGHUP then drains the crawl, the second
    # cancels it, and callbacks that block cause a warning. Put `trawl.shutdown.Signals` around `trio.run` to handle
    # signals before the crawl starts and until everything is closed.
    handle_signals: bool = False,
    transport: Transport | None = None,  # the transport; None for the real transport
    open_page: OpenPage | None = None,  # opens the pages that a browser renders; None to open them in Chromium
    blocking: Blocking | None = None,  # runs blocking functions; None for threads
    resolve: Resolve | None = None,  # looks up host names; None to follow the settings
    # Stores pending requests; None for a new frontier in memory. With `JOB_DIR`, the job's frontier is used.
    frontier: Frontier | None = None,
    seed: int | None = None,  # seed of all random numbers; None for a random seed
    now_utc: datetime | None = None,  # wall time at the start; None for the machine's time
    recorder: Recorder | None = None,  # called at the start and at the end of each send
    # Runs the assembled crawl. To only create the components, pass `trawl.engine.try_crawl`.
    run: Callable[[CrawlContext], Awaitable[CrawlResult]] = run_crawl,
) -> CrawlResult:
    """Run a spider with replaceable components, for :func:`crawl`, the command and the simulator. A checkpoint.

    Returns:
        The result.

    Raises:
        UsageError: If a feed can't be opened, a start URL can't be fetched, or the spider's ``download_delay`` is not
            valid. Nothing was sent.
    """
    if is_imported_for_spiders.get():
        await trio.lowlevel.checkpoint()
        return CrawlResult("not started", defaultdict(int), 0.0, [])
    blocking = blocking or ThreadBlocking()
    resolve = resolve or _resolver(settings, blocking)
    whereabouts = CrawlResolver(resolve)
    wall, stats = WallClock.started(trio.current_time(), now_utc), Stats()
    crawler = Crawler(settings, stats, spider)
    with header_class(is_moved=settings["SCRAPY_COMPAT"]):  # all tasks of the crawl inherit it
        instance = _spider(settings, crawler, spider, spider_args)
        values = _values(settings, instance, seed)
        guard = _guard(settings, instance, is_real=transport is None)

        def wall_now() -> datetime:
            return wall.to_utc(trio.current_time())

        async with (
            _stored(settings, instance, spider_args or {}, blocking, wall, stats) as (feeds, job, stored),
            _middleware(settings, instance, blocking, wall_now, stats, open_page) as middleware_stack,
            _archive(settings.of(TransportSettings), blocking, wall_now) as archived,
            _common_scopes(values.throttling) as common,
        ):
            wire = archived(transport or _transport(settings, resolve, whereabouts, guard))
            context = CrawlContext(
                spider=instance,
                stats=stats,
                values=values,
                network=Network(
                    transport=middleware_stack.wire(job.wire(wire)),
                    recorder=recorder,
                    address_of=whereabouts.address_of,
                    guard=guard,
                    shares_host=_shared_hosts(settings, instance),
                ),
                middleware_stack=middleware_stack,
                blocking=blocking,
                frontier=stored or frontier or await _frontier(settings),
                output=ItemOutput(
                    pipelines=partial(Pipelines.build, settings.of(PipelinesSettings)),
                    receivers=[*([] if job.is_durable or feeds.is_empty else [feeds]), *receivers],
                    collected=[] if _collects(collect, feeds) else None,
                ),
                hooks=CompatHooks,
                watchers=[*([heed_signals, report_blocked_loop] if handle_signals else []), *watchers],
                wall=wall,
                open_job=job,
                mark=_marks(crawler),
                common=common,
            )
            with contained:  # exit() in user code must never end the process with success
                return await without_groups(run(context))


@contextmanager
def header_class(*, is_moved: bool) -> Generator[None, None, None]:
    """Set the class of the headers of new requests and responses during a block: that of moved crawls, if it is one."""
    made: type[Headers] = Headers
    if is_moved:
        from trawl.compat.messages import ScrapyHeaders  # noqa: PLC0415 - only for moved crawls

        made = ScrapyHeaders
    token = class_of_crawl.set(made)
    try:
        yield
    finally:
        class_of_crawl.reset(token)


def _spider(settings: Settings, crawler: Crawler, spider: type[Spider], arguments: Mapping[str, Any] | None) -> Spider:
    """Return the spider of a crawl, and log the settings that have no effect on it."""
    instance = make_spider(spider, arguments, crawler)
    if isinstance(domains := instance.allowed_domains, Iterator):  # several components read them
        with suppress(AttributeError):  # a property without a setter, which returns a new iterator each time
            instance.allowed_domains = list(domains)
    if settings["SCRAPY_COMPAT"]:
        ignore_urls(instance)
    for sentence in without_effect(settings, instance):
        logger.warning("%s", sentence)
    return instance


def _values(settings: Settings, spider: Spider, seed: int | None) -> CrawlValues:
    """Return what the engine takes from the settings."""
    throttling = settings.of(ThrottlingSettings).with_download_delay(getattr(spider, "download_delay", None))
    return CrawlValues(
        settings=settings,
        engine=settings.of(EngineSettings),
        scheduler=settings.of(SchedulerSettings),
        throttling=throttling.with_browser(settings.of(BrowserSettings).browser_pages),
        robots=settings.of(RobotsSettings),
        user_agent=settings.of(MiddlewareSettings).user_agent,
        follows_loops=not settings["SCRAPY_COMPAT"],
        seed=random.randrange(2**32) if seed is None else seed,
    )


def _shared_hosts(settings: Settings, spider: Spider) -> Callable[[str], bool | None] | None:
    """Return a test for the hosts that pages in several processes of a job need; None if there are none."""
    is_chosen = settings.source("BROWSER_THIRD_PARTY") != DEFAULT
    return shared_hosts(settings.of(BrowserSettings), spider, is_chosen=is_chosen) if settings["JOB_DIR"] else None


def _marks(crawler: Crawler) -> Callable[[Request], bytes | None]:
    """Return the function that makes the seen mark of a request."""
    settings = crawler.settings
    if not settings["DUPEFILTER_CLASS"] and not settings["REQUEST_FINGERPRINTER_CLASS"]:
        return fingerprint
    from trawl.compat.classes import marks  # noqa: PLC0415 - only for crawls with their own class

    return marks(crawler, has_job=bool(settings["JOB_DIR"]))


_COMMON: trio.lowlevel.RunVar[CommonScopes | None] = trio.lowlevel.RunVar("trawl_common_scopes", None)


@asynccontextmanager
async def _common_scopes(settings: ThrottlingSettings) -> AsyncGenerator[CommonScopes | None, None]:
    """Yield the scopes that the crawls of this event loop share; None if each crawl has its own scopes."""
    if not settings.throttling_shared:
        yield None
        return
    common = _COMMON.get()
    if common is None:
        common = CommonScopes(CrawlDelays(settings.throttling_scope_limit), GivenUpScopes())
        _COMMON.set(common)
    common.crawls += 1
    try:
        yield common
    finally:
        common.crawls -= 1
        if not common.crawls:
            _COMMON.set(None)


def _collects(collect: bool | None, feeds: Feeds) -> bool:
    if collect is None and not feeds.is_empty:
        logger.info("the feeds have the items: the result keeps none of them (its `items` is None)")
        return False
    return collect is not False


async def _frontier(settings: Settings) -> Frontier:
    """Return the frontier of a crawl without a job."""
    named = settings.of(JobSettings).frontier
    depth_first = settings.of(SchedulerSettings).depth_first
    return await named_frontier(named, settings) if named else MemoryFrontier(depth_first=depth_first)


def _archive(
    wired: TransportSettings, blocking: Blocking, now_utc: Callable[[], datetime]
) -> AbstractAsyncContextManager[Callable[[Transport], Transport]]:
    """Open the archive of responses. Without an archive, transports are not wrapped."""
    if not wired.warc_file:
        return nullcontext(lambda transport: transport)
    from trawl.transport.warc import open_archive  # noqa: PLC0415 - for crawls with an archive

    return open_archive(
        wired.warc_file, wired.warc_max_bytes, blocking=blocking, now_utc=now_utc, has_bodies=wired.warc_bodies
    )


def _middleware(
    settings: Settings,
    spider: Spider,
    blocking: Blocking,
    now_utc: Callable[[], datetime],
    stats: Stats,
    open_page: OpenPage | None,
) -> AbstractAsyncContextManager[MiddlewareStack]:
    """Open the middleware, cookies, sessions and cache of a crawl."""
    values = settings.of(MiddlewareSettings)
    show: Show | None = None
    if settings["SCRAPY_COMPAT"]:
        from trawl.compat import messages  # noqa: PLC0415 - only for moved crawls

        timeout = getattr(spider, "download_timeout", None) or settings["DOWNLOAD_TIMEOUT"]
        values, show = messages.with_messages(values, timeout), messages.show
    return open_middleware_stack(
        values,
        settings.of(CacheSettings),
        spider=spider,
        stats=stats,
        blocking=blocking,
        now_utc=now_utc,
        adapt=_adapter(show),
        max_body_bytes=settings["DOWNLOAD_MAXSIZE"],
        browser=settings.of(BrowserSettings),
        open_page=open_page,
    )


def _adapter(show: Show | None) -> Adapt:
    """Return the function that converts objects with Scrapy's methods to middleware in one crawl."""
    inside: list[Any] = []

    def adapt(middleware: object, spider: object) -> Middleware | None:
        from trawl.compat.middleware import adapted  # noqa: PLC0415 - for crawls with user middleware

        return adapted(middleware, spider, show=show, inside=inside)

    return adapt


@asynccontextmanager
async def _stored(
    settings: Settings,
    spider: Spider,
    arguments: Mapping[str, Any],
    blocking: Blocking,
    wall: WallClock,
    stats: Stats,
) -> AsyncGenerator[tuple[Feeds, NoJob, Frontier | None], None]:
    """Open the feeds, and the job if there is one. They are also closed if another component can't be created."""
    values, job = with_attributes(settings.of(FeedsSettings), spider), settings.of(JobSettings)
    if job.job_dir:
        from trawl.engine.job import open_job  # noqa: PLC0415 - for crawls with a job

        depth_first = settings.of(SchedulerSettings).depth_first
        async with open_job(
            job,
            spider,
            wall=wall,
            blocking=blocking,
            feeds=values,
            depth_first=depth_first,
            stats=stats,
            goes_on=hears_idle(spider),
            terms=digests(settings, type(spider), arguments) if job.job_dir.startswith(SCHEMES) else {},
        ) as durable:
            yield durable.feeds, durable, durable.frontier
        return
    async with await open_feeds(
        values, blocking, spider_name=spider.name, started_utc=wall.anchor_utc, stats=stats
    ) as feeds:
        yield feeds, NoJob(), None


def _guard(settings: Settings, spider: Spider, *, is_real: bool) -> AddressGuard:
    """Return the guard that decides which addresses are allowed. Without ``is_real``, all are allowed by default.

    The guard gets the start URLs here, because a resumed crawl may not read ``start()`` again.
    """
    allows = settings.of(TransportSettings).allow_private_addresses
    guard = AddressGuard(True if allows is None and not is_real else allows)
    given = spider.start_urls
    for url in islice(given, MAX_NAMES) if isinstance(given, list | tuple) and not guard.is_open else ():
        with suppress(ValueError, TypeError):  # a wrong URL is reported when it is requested
            guard.note_start(normalize_url(url))
    return guard


def _transport(settings: Settings, resolve: Resolve, whereabouts: CrawlResolver, guard: AddressGuard) -> Transport:
    """Return the real transport. With throttling by address, it uses the address that the scope names."""
    by_address = settings.of(ThrottlingSettings).concurrent_requests_per_ip > 0
    wired = settings.of(TransportSettings)
    resolve = whereabouts if by_address else resolve
    wire = TransportRouter(wired, resolve=resolve, guard=guard, keeps_received=bool(wired.warc_file))
    return wire if settings["CONTACT"] else AdvisingTransport(wire)


def _resolver(settings: Settings, blocking: Blocking) -> Resolve:
    """Return the resolver of host names."""
    system = ThreadResolver(blocking)
    return DnsResolver(system) if settings.of(TransportSettings).dns_resolver == "dnspython" else system


def _is_asyncio_task() -> bool:
    """Return True if asyncio runs the current task. Trio may run other tasks as a guest of asyncio's loop."""
    if "asyncio" not in sys.modules or trio.lowlevel.in_trio_task():
        return False
    try:
        sys.modules["asyncio"].get_running_loop()
    except RuntimeError:
        return False
    return True


def _check_trio(called: str) -> None:
    """Raise a RuntimeError with advice if Trio does not run."""
    if not trio.lowlevel.in_trio_run() or _is_asyncio_task():
        raise RuntimeError(
            f"{called} needs Trio, which does not run here; call trawl.run(MySpider) instead, under asyncio"
            " `await trawl.crawl_in_asyncio(MySpider)`"
        )


def _settings(spider: type[Spider], given: Mapping[str, object] | None) -> Settings:
    kind: object = spider
    if not isinstance(kind, type) or not issubclass(kind, Spider):
        by_name = f", or type `trawl crawl {kind}`" if isinstance(kind, str) else ""
        raise TypeError(f"a crawl takes a spider's class, not {kind!r}; import the class and pass it{by_name}")
    if isinstance(given, Settings):
        if not given.is_changeable:
            return given
        given = given.own
    return load(*ambient(spider=spider), of_spider(spider), Layer("settings", given or {}))
