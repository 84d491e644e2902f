"""The running crawl, as a spider, a watcher and a view see it.

Length: users reach everything in a running crawl through this one object.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import datetime
from heapq import nlargest
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, overload

import trio

from trawl.blocking import Blocking
from trawl.engine.callbacks import BATCH
from trawl.engine.leases import MAX_PENDING
from trawl.engine.state import current_attempt
from trawl.errors import IgnoreRequest, SettingsError
from trawl.events import MAX_UNREAD, Event, EventStream, EventT
from trawl.http import Request, Response, host_scope
from trawl.middleware import Session
from trawl.middleware.proxies import check_socks
from trawl.observe import CrawlStatus, SendLimit, Stats
from trawl.robots import at_once
from trawl.scheduler.reasons import NO_PAGES
from trawl.spiders import Spider, Waiting
from trawl.throttling import Reason, ScopeReport, Throttle
from trawl.throttling.scopes import is_host_like, normal_id

if TYPE_CHECKING:
    from trawl.browser import BrowserPage
    from trawl.engine.engine import Engine
    from trawl.engine.status import StatusKeeper
    from trawl.frontier.redis.sessions import JobSession

__all__ = ["Crawl", "Watcher"]


class ThrottlingHandle:
    """Changes limits while the crawl runs: ``crawl.throttling``."""

    def __init__(self, throttle: Throttle, pending: Callable[[str], int], store: Callable[[], None]) -> None:
        self._throttle = throttle
        self._pending = pending
        self._store = store  # stores the changed limits soon, in a job

    def set(self, scope: str, /, **limits: Any) -> None:
        """Set limits of a scope. They apply to waiting requests at once. The next run of a job continues with them.

        Args:
            scope: The scope's id. The scope is created if it does not exist.
            limits: The keys of ``THROTTLING_SCOPES``: ``concurrency`` (requests), ``delay`` and ``delay_per_slot``
                (seconds), ``rate`` (requests a second), ``quota``, ``window`` (seconds), and the others.

        Raises:
            SettingsError: If a limit is unknown or a value is out of range; the message names it.
        """
        self._throttle.set(scope, trio.current_time(), **limits)
        self._throttle.keep_limits(scope, limits)
        self._store()

    def preview(self, scope: str, /, **limits: Any) -> tuple[SendLimit, SendLimit, int]:
        """Return the rate that a scope allows now, the rate with these limits, and the number of its pending requests.

        Changes nothing. Raises the errors of :meth:`set`.
        """
        before, after = self._throttle.preview(scope, trio.current_time(), **limits)
        return before, after, self._pending(normal_id(scope))


class Crawl:
    """A running crawl.

    Attributes:
        spider: The spider.
        settings: The settings by their upper-case names.
        stats: The statistics.
        throttling: Changes limits while the crawl runs.
        cancel_scope: Cancel scope around all requests.
        started_at: Event loop time of the start, in seconds.
        blocking: Runs blocking work: ``await crawl.blocking.run(function, argument)``.

    Raises:
        SettingsError: If a limit in ``SESSIONS`` is unknown or out of range, or a name, header or proxy is not valid.
    """

    def __init__(self, engine: Engine) -> None:
        context = engine.context
        self.spider: Spider[Any] = context.spider
        self.settings: Mapping[str, Any] = context.values.settings
        self.stats: Stats = context.stats
        self.blocking: Blocking = context.blocking
        self.started_at: float = trio.current_time()
        self.cancel_scope: trio.CancelScope = trio.CancelScope()
        self._context = context
        self._state = context.state
        self._frontier = context.frontier
        self._sessions = context.middleware_stack.sessions
        self._when_cancelled: list[Callable[[], None]] = []
        self._scheduler = engine.scheduler
        self._throttle = engine.throttle
        self._direct = engine.direct
        self._leases = engine.leases
        self._gates = engine.gates
        self._adding = trio.Lock()  # taken by the caller that waits for room and stores its requests
        self._status_keeper: StatusKeeper | None = None
        self._status_wanted = trio.Event()
        store = engine.job_state.has_backed_off
        self.throttling: ThrottlingHandle = ThrottlingHandle(self._throttle, self.pending_of, store)
        for name, config in context.middleware_stack.settings.sessions.items():
            try:
                self.session(name, **config)
            except ValueError as error:
                raise SettingsError(f"SESSIONS[{name!r}]: {error}", "SESSIONS") from error
            check_socks([config.get("proxy", "")], f"SESSIONS[{name!r}]")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return another attribute of ``spider.crawler``, because middleware and spiders must share one crawler."""
            if name.startswith("_"):  # the object is incomplete, or a protocol looks for the name
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(self.spider.crawler, name)

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the crawl."""
        return trio.current_time() - self.started_at

    @property
    def queued(self) -> int:
        """Admitted requests that have not been sent or are waiting to be sent again.

        Direct fetches and requests for robots.txt are not included.
        """
        scheduler = self._scheduler
        return self._state.queued + scheduler.preparations.ahead  # running tasks that have not sent yet

    @property
    def is_idle(self) -> bool:
        """True if no request is pending, in flight or in its callback, so that only ``start()`` may continue."""
        return self._state.is_idle

    async def until_idle(self) -> None:
        """Return when :attr:`is_idle` is True. In ``start()``, this waits for the end of one stage. A checkpoint.

        Raises:
            RuntimeError: If called from a callback, which is itself pending and would wait forever.
        """
        attempt = current_attempt.get()
        if attempt is not None:
            raise RuntimeError(f"until_idle() waits for ever in the callback of {attempt.request!r}: ask in start()")
        await self._state.until_idle()

    @property
    def in_flight(self) -> int:
        """Number of requests in flight."""
        return self._scheduler.in_flight

    @property
    def callbacks(self) -> int:
        """Number of callbacks that run, or whose items pass the pipelines."""
        return self._state.callbacks

    @property
    def is_paused(self) -> bool:
        """True while the crawl is paused by :meth:`pause`."""
        return self._state.is_paused

    @property
    def reason(self) -> str | None:
        """The reason why the crawl is ending; None while it is not."""
        return self._state.reason

    @property
    def session_of_job(self) -> JobSession | None:
        """This process's session in a job that several processes share; None if there is none."""
        return self._context.open_job.session

    def status(self) -> CrawlStatus:
        """Return the latest status of the crawl: figures, rates, waiting requests, errors and the estimated end.

        From the first call on, a task updates the figures every second, and the waiting requests in steps of 2 ms that
        take at most 2 % of the time. So a call costs nothing, and with 10,000 hosts the waiting requests are up to 15 s
        old.
        """
        return self.status_keeper.latest

    @property
    def status_keeper(self) -> StatusKeeper:
        """The task that keeps the status up to date. Created when first needed."""
        if self._status_keeper is None:
            from trawl.engine.status import StatusKeeper  # noqa: PLC0415 - only for a crawl that is looked at

            self._status_keeper = StatusKeeper(self, self._context, self._scheduler, self._throttle)
            self._status_wanted.set()
        return self._status_keeper

    async def keep_status(self) -> None:
        """Keep the status up to date from the first request for it until cancelled. The crawl runs this task."""
        await self._status_wanted.wait()
        await self.status_keeper.run()

    def waiting(self, most: int = 5) -> Sequence[Waiting]:
        """Return the limits that pending requests wait for, at most ``most`` groups, the largest first.

        With 10,000 hosts this blocks the event loop for 50 to 100 ms. :meth:`status` does not.
        """
        groups = at_once(self.waiting_in_steps())
        return [Waiting(count, reason) for count, reason in nlargest(most, groups, key=itemgetter(0))]

    def waiting_in_steps(
        self, by_scope: dict[str, int] | None = None
    ) -> Generator[None, None, list[tuple[int, Reason]]]:
        """Group the pending requests by their reason to wait. Yields after each step, which takes less than 1 ms.

        Requests that move between two steps may be counted twice, or not at all. Returns the number of requests and the
        reason of each group, in no particular order, and puts the number of pending requests of each scope into
        ``by_scope``.
        """
        groups = yield from self._scheduler.waiting_in_steps(trio.current_time, self._frontier.pending_in, by_scope)
        paused = self._paused(trio.current_time())
        if paused is not None:
            return [(self.queued, paused)]
        if (storing := self._storing(trio.current_time())) is not None:
            blocked = [count for count, reason in groups if self._is_blocked_by_store(reason)]
            groups = [group for group in groups if not self._is_blocked_by_store(group[1])]
            groups.append((len(self._context.open_job.storing) + sum(blocked), storing))
        if held := self._frontier.statistics().held:
            groups.append((held, Reason("", "not_before", self._frontier.next_due(), "the request's own delay")))
        return groups

    def _paused(self, now: float) -> Reason | None:
        """Return the reason if the job's server does not respond, the crawl is ending, or it is paused."""
        lease, ending = self._context.open_job.lease, self._state.reason
        words = lease.why(now)
        if ending is not None and ending != "finished":
            storing = self._storing(now)
            others = [words] if words else [] if storing is None else [storing.source]
            return Reason("", "ending", math.inf, "; ".join([ending, *others]))
        if not words and self._state.is_paused:
            words = f"paused, until {self._context.open_job.resume_words}"
        return Reason("", "store", math.inf, words) if words else None

    def _storing(self, now: float) -> Reason | None:
        """Return the reason of pages that wait for their step to be stored; None if there are none."""
        opened = self._context.open_job
        if not (count := len(opened.storing)):
            return None
        pages = "1 page waits for its step" if count == 1 else f"{count} pages wait for their steps"
        return Reason("", "store", math.inf, f"{pages} to be stored; {opened.step_words(now)}")

    def _is_blocked_by_store(self, reason: Reason | None) -> bool:
        """Return whether no page can be sent only because pages whose callbacks have ended are not stored yet."""
        state = self._state
        return reason is NO_PAGES and state.callbacks - state.finishing < state.most_callbacks

    def _or_storing(self, reason: Reason | None, now: float) -> Reason | None:
        return self._storing(now) if self._is_blocked_by_store(reason) else reason

    def why(self, subject: Request | str) -> Reason | None:
        """Explain why a pending request, a URL, a scope (by its id) or a host waits.

        A request far back in its lane reports the reason of the lane's next request. If no request for a URL is in
        memory, the next page of its host is explained. If another process of the job sends to a host, this process
        knows only that, and the limit is ``store``.

        Returns:
            Scope, limit, until when (event loop time in seconds) and source. None if nothing delays the request,
            because it may be sent, is in flight, or is not pending.
        """
        now = trio.current_time()
        if (paused := self._paused(now)) is not None:
            return paused
        if isinstance(subject, str):
            scope_id = normal_id(subject)
            reason = self._why_scope_or_host(scope_id, now) or self._why_elsewhere(scope_id)
            if reason is not None or "://" not in subject:
                return reason
            reason = self._scheduler.why_url(Request(subject).url, now)
            return self.why(host_scope(subject)) if reason is None else self._or_storing(reason, now)
        if any(request is subject for request in self._context.open_job.storing):
            return self._storing(now)
        reason = self._scheduler.why(subject, now)
        if reason is not None:
            return self._or_storing(reason, now)
        if (until := self._frontier.held_until(subject)) is not None:
            return Reason("", "not_before", until, "the request's own delay")
        lane = self._frontier.lane_of(subject)
        if lane is None:
            return self._why_elsewhere(host_scope(subject.url))
        return self._or_storing(self._scheduler.why(lane, now), now)

    def _why_elsewhere(self, host: str) -> Reason | None:
        """Return the reason if another process of the job sends to a host; otherwise None."""
        owner = self._context.open_job.other_owner(host)
        if not owner or not is_host_like(host) or self._throttle.is_shared(host):
            return None
        return Reason(host, "store", math.inf, f"{owner} sends to it: `trawl job JOB --why` says what that waits for")

    def _why_scope_or_host(self, subject: str, now: float) -> Reason | None:
        """Explain a host's own scope first, then the scope of its address, then all scopes of its requests."""
        for scope_id in dict.fromkeys((subject, self._throttle.resolver.scope_of_host(subject))):
            reason = self._scheduler.why(scope_id, now) or self._throttle.why_idle(scope_id, now)
            if reason is not None:
                return reason
        return self._scheduler.why_host(subject, now)

    def report(self) -> Sequence[ScopeReport]:
        """Report for each scope its requests and what limited them, the busiest first.

        For the end of a crawl: with 10,000 scopes it blocks the event loop for 60 to 100 ms.
        """
        return self._throttle.report(trio.current_time())

    @overload
    def events(self, *, most: int = ...) -> EventStream[Event]: ...

    @overload
    def events(self, *kinds: type[EventT], most: int = ...) -> EventStream[EventT]: ...

    def events(self, *kinds: type[Event], most: int = MAX_UNREAD) -> EventStream[Any]:
        """Listen to events from now on: ``with crawl.events(ItemScraped) as events: async for event in events: ...``.

        Args:
            kinds: The kinds of events, of :mod:`trawl.events`; none: all.
            most: Maximum number of events that wait for the reader. Beyond it, the oldest are dropped and counted.

        Raises:
            TypeError: If one of ``kinds`` is not a kind of event.
            ValueError: If ``most`` is less than one.
        """
        return self._context.events.stream(kinds, most)

    async def fetch(self, request: Request) -> Response:
        """Send a request through the throttle and wait for its response, of any status. A checkpoint.

        Raises:
            DownloadError: If there is no response.
            IgnoreRequest: If robots.txt or a middleware refused the request, or the crawl is ending.
        """
        return await self._direct.fetch(request)

    async def render(self, response: Response, **options: Any) -> Response:
        """Render a response in a browser, and return the rendered page. Nothing is sent again. A checkpoint.

        The received document is opened, and only its scripts, styles and data are fetched, like with meta ``browser``.
        So a callback may look at a page first, and render it only if it has to.

        Args:
            response: A response of this crawl that contains HTML.
            options: The keys of ``trawl.Page``.

        Raises:
            ValueError: If the response is not HTML, or an option is unknown or wrong.
            RenderError: If the page could not be rendered or was not ready in time.
            UsageError: If no browser can be started.
        """
        return await self._context.middleware_stack.rendering.made().render(response, options)

    def open_page(self, response: Response, *, session: str | None = None) -> AbstractAsyncContextManager[BrowserPage]:
        """Open a response in a browser and keep the page open for a block: ``async with crawl.open_page(response)``.

        The page has no timeout of its own, and takes one of the ``BROWSER_PAGES``. Further pages that the block opens,
        renders or fetches do not wait for a free tab, because they might wait for this page. Leaving the block closes
        the page, and stores its cookies. Cancelling closes it at once.

        Args:
            response: A response of this crawl that contains HTML.
            session: Name of the session whose cookies and storage the page uses; None for the session of the request.

        Raises:
            ValueError: If the response is not HTML.
            RenderError: If the browser or the page ends.
            UsageError: If no browser can be started.
        """
        return self._context.middleware_stack.rendering.made().open_page(response, session)

    async def add(self, requests: Request | Iterable[Request]) -> None:
        """Add requests to the crawl from outside, as ``start()`` does. A checkpoint.

        For tasks alongside the crawl, such as a watcher or a program's own nursery. It returns when the requests are
        stored. It waits until the crawl has started, and while 10,000 requests or more are pending; several callers
        take turns. Requests are taken in groups of 100. Cancelling ends the call between two groups, and stored
        requests stay. A crawl with nothing left ends, even if another task wants to add requests: see
        :meth:`stay_open`. From a thread, call ``trio.from_thread.run(crawl.add, requests)``.

        Args:
            requests: One request or several. Each gets depth 0, and ``parse`` as its callback if it names none.

        Raises:
            IgnoreRequest: If the crawl is ending or over. Requests that were not stored by then are not sent.
            RuntimeError: If called from a callback, which might wait for itself. Callbacks yield their requests
                instead.
            TypeError: If an object is not a request.
        """
        if current_attempt.get() is not None:
            raise RuntimeError("add() is for tasks beside the crawl: in a callback, yield the requests")
        anything: Any = requests  # other objects raise an error below
        is_many = isinstance(anything, Iterable) and not isinstance(anything, str)
        given: Iterator[object] = iter(anything if is_many else [anything])
        with self.stay_open():
            await trio.lowlevel.checkpoint()
            while group := [_checked(each) for each in islice(given, BATCH)]:
                async with self._adding:
                    await self._state.until_room(MAX_PENDING)
                    self._check_open()
                    with self._context.shields.shielded():
                        await self._leases.push(group, depth=0, is_start=True)
                # If the crawl ended during the store, the requests are not sent, so raise an error.
                self._check_open()

    @contextmanager
    def stay_open(self) -> Iterator[None]:
        """Keep the crawl from ending while the block runs, also while nothing is pending: ``with crawl.stay_open():``.

        Requests may then be added at any time. A shutdown, a reached limit (``CLOSESPIDER_TIMEOUT``) or a cancellation
        still ends the crawl, and :meth:`add` then raises an error.

        Raises:
            IgnoreRequest: If the crawl is ending or over.
        """
        self._check_open()
        self._state.keepers += 1
        try:
            yield
        finally:
            self._state.keepers -= 1
            # The dispatcher, which ends a crawl with nothing pending, sleeps until then.
            self._state.wakeup.set()

    def _check_open(self) -> None:
        if not self._state.may_add or self._context.shields.is_cancelled:
            why = f" ({self._state.reason})" if self._state.reason else ""
            raise IgnoreRequest(f"the crawl is ending, or is over{why}: it takes no more requests")

    async def address_of(self, host: str) -> str | None:
        """Return the address of a host as a string; None if it has none. A checkpoint.

        Each host is looked up once, and the result is kept. With ``CONCURRENT_REQUESTS_PER_IP``, the transport connects
        to exactly this address.

        Args:
            host: A name or address, with or without a port.
        """
        return await self._context.network.address_of(host)

    def session(self, name: str, *, throttling: Mapping[str, Any] | None = None, **options: Any) -> Session:
        """Return the session with this name, and create it if needed. Arguments other than None replace its values.

        Args:
            name: The session's name.
            throttling: Limits of the session's scope, with the keys of ``THROTTLING_SCOPES``.
            options: ``proxy``, the default proxy of its requests, and ``headers``, their default headers.

        Raises:
            ValueError: If the name is empty, or the proxy or a header is not valid.
            SettingsError: If a limit is unknown or out of range.
        """
        session = self._sessions.get(name, self, **options)
        if throttling:  # by code or a setting, so not stored in a job
            self._throttle.set(session.scope, trio.current_time(), **throttling)
        return session

    def now_utc(self) -> datetime:
        """Return the current wall time of the crawl. Also works in a thread of the crawl."""
        try:
            now = trio.current_time()
        except RuntimeError:
            now = trio.from_thread.run_sync(trio.current_time)
        return self._context.wall.to_utc(now)

    def random(self, name: str) -> random.Random:
        """Return a random number generator that is seeded by the crawl's seed and ``name``."""
        return random.Random(f"{self._context.values.seed}:{name}")

    def shutdown(self, reason: str = "shutdown") -> None:
        """Send nothing new, and let requests in flight finish, for at most ``SHUTDOWN_TIMEOUT`` seconds."""
        self._state.end(reason)

    def cancel(self, reason: str = "cancelled") -> None:
        """End at once with ``reason``. Requests in flight are cancelled."""
        self._state.reason = reason  # replaces any earlier reason
        self._state.end(reason)
        self.cancel_scope.cancel()
        for hook in self._when_cancelled:
            hook()

    async def until_ending(self) -> None:
        """Return when the crawl starts to end for any :attr:`reason` and sends nothing new. A checkpoint."""
        await self._state.until_ending()

    def pause(self, *, is_paused: bool = True) -> None:
        """Stop sending pages, or resume with ``is_paused=False``. Requests in flight finish."""
        self._state.pause(is_paused=is_paused)

    def pending_of(self, scope: str) -> int:
        """Return the number of pending requests of a scope (by its id), without requests with their own delay."""
        return self._scheduler.pending_of(scope, self._frontier.pending_in)

    async def drop(self, host: str, *, before: int = 0) -> None:
        """Drop the pending pages of a host, without sending them. A checkpoint. They count as ``dropped_by_hand``.

        They leave the scheduler and the frontier in one step, which a job stores. Requests in flight finish, and a page
        found later is sent.

        Args:
            host: The host, as in :func:`trawl.http.host_scope`.
            before: In a job that several processes share, the arrival order below which pages are dropped that this
                process receives later; 0: drop the pages that it has now.

        Raises:
            JobError: If the job can't be written.
        """
        await trio.lowlevel.checkpoint()
        with self._context.shields.shielded():
            await self._leases.drop(host, before)

    def words_of_host(self, subject: str) -> list[str]:
        """Return what a host, or that of a URL, has asked for in robots.txt and in headers, one line each."""
        host = host_scope(subject) if "://" in subject else normal_id(subject)
        lines = self._gates.words_of(host)
        scope = self._throttle.table.get(self._throttle.resolver.scope_of_host(host))
        if scope is not None and scope.state.totals.last_hint:
            lines.append(f"header {scope.state.totals.last_hint}")
        return lines

    def tell(self, event: Event) -> None:
        """Emit an event, if it has a reader."""
        self._context.events.emit(event)

    def when_cancelled(self, hook: Callable[[], None]) -> None:
        """Register ``hook`` to be called when the crawl is cancelled, so that shielded work can hurry."""
        self._when_cancelled.append(hook)


def _checked(given: object) -> Request:
    if not isinstance(given, Request):
        raise TypeError(f"add() takes requests, not {given!r:.100}: write trawl.Request(url)")
    return given


Watcher = Callable[[Crawl], Awaitable[None]]
"""A task that watches the running crawl. It is cancelled when the crawl has ended."""
