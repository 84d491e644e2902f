"""The fetcher: the innermost fetch. One grant, one send, one answer that the throttle hears.

What the middleware hands on is compared with what was granted; where it needs something else it is not sent
(:meth:`~trawl.engine.admission.Admission.objection`).

From the grant to the wire there is no await but the connection's, and no delay is longer for it: a scope with spacing
grants a request earlier by the time that others took to the wire, and the request waits there, connected, for its
instant. What a user's middleware awaits comes before that: where there is one, requests are prepared without places,
and get them here (:meth:`~trawl.scheduler.scheduler.Scheduler.prepared`). A scope that was closed meanwhile, by a
refusal (D01, B03), a much longer delay, a lower quota or concurrency (I12), is still obeyed: the request is not sent,
gives its places back, and waits for another grant, while the connection is left to the next request. So does one whose
old connection was dead, where its scopes count sends: going again is another send. When the body has been read, the
throttle hears the outcome first and the places are given back second, in one step without a send between, so that the
request which takes the place already obeys the backoff; both come before any callback, so that a callback may wait for
a direct fetch at concurrency 1.

Beside the scheduler's counters, the places of a scope are a lock of Trio's. The scheduler decides; a scope's
:class:`trio.CapacityLimiter` would raise if the scheduler were wrong, and is what Trio's introspection shows. It is
taken on behalf of the grant, never waited on, made at a scope's first send and dropped when nothing of the scope is in
flight (838 bytes a scope; a crawl may know 100,000 of them), but for a few: to make one for each page of a delayed host
costs more than all else that is done with it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import trio

from trawl.engine.admission import Admission
from trawl.engine.context import CrawlContext
from trawl.engine.limits import CrawlLimits
from trawl.engine.robots_waiter import RobotsWaiter
from trawl.engine.state import RequestTask, current_grant
from trawl.errors import AddressRefused
from trawl.events import RequestSent, ResponseParsed, ResponseReceived
from trawl.http import Outcome, Replace, Request, Response, Times, body_bytes
from trawl.http.notes import note, notes_of
from trawl.observe import times_words
from trawl.scheduler import Grant, Scheduler
from trawl.throttling import Scope, Throttle
from trawl.throttling.reasons import add_parsing, add_times, add_wasted_send
from trawl.throttling.scope import MAX_LEAD

__all__ = ["Fetcher", "Recorder", "ScopeLimiters"]

MAX_KEPT = 256
"""Limiters up to which one is kept that has nothing in flight."""


class ScopeLimiters:
    """Capacity limiters of the scopes that have something in flight, and of a few that had."""

    __slots__ = ("_limiters",)

    def __init__(self) -> None:
        self._limiters: dict[str, trio.CapacityLimiter] = {}

    def take(self, grant: Grant) -> None:
        """Take one place in each scope for ``grant``.

        Raises:
            trio.WouldBlock: The scheduler granted what the limits do not allow: a defect of trawl.
        """
        assert grant.lane is not None
        for scope in grant.lane.scopes:
            limiter = self._limiters.get(scope.id)
            if limiter is None:
                limiter = self._limiters[scope.id] = trio.CapacityLimiter(_tokens(scope))
            elif limiter.total_tokens != scope.concurrency:
                limiter.total_tokens = _tokens(scope)
            limiter.acquire_on_behalf_of_nowait(grant)

    def give_back(self, grant: Grant) -> None:
        """Give the places of ``grant`` back."""
        assert grant.lane is not None
        for scope in grant.lane.scopes:
            limiter = self._limiters[scope.id]
            limiter.release_on_behalf_of(grant)
            if len(self._limiters) > MAX_KEPT and not limiter.borrowed_tokens:
                del self._limiters[scope.id]

    def resize(self, scope: Scope) -> None:
        """Follow a scope's changed concurrency; what is in flight stays."""
        limiter = self._limiters.get(scope.id)
        if limiter is not None:
            limiter.total_tokens = _tokens(scope)


def _tokens(scope: Scope) -> int | float:
    if scope.concurrency == math.inf:
        return math.inf
    return max(1, int(scope.concurrency))  # Trio takes no other float


logger: logging.Logger = logging.getLogger("trawl.engine")

_NONE = Times()

Recorder = Callable[[Grant, "Outcome | None", float], None]
"""Told of each send (outcome None) and of its end, at the instant on the run clock; for simulations and tests."""


class _Write:
    """Called by the transport at both ends of a write; scopes count from the later end."""

    __slots__ = ("_began", "_began_at", "_grant", "asked_at", "needs_new_connection", "opens_at")

    def __init__(self, began: Callable[[Grant, float], bool | float], grant: Grant) -> None:
        self._began = began
        self._grant = grant
        self._began_at = -math.inf
        self.asked_at: float | None = None  # since when it waits at the wire
        self.opens_at: float = -math.inf  # until when
        self.needs_new_connection: bool = notes_of(grant.request).needs_new_connection

    def __call__(self) -> bool | float:
        """The request is about to be written; True: it must not; an instant: not before that."""
        self._began_at = now = trio.current_time()
        if self.asked_at is not None:
            self._grant.waited(now - self.asked_at)
            self.asked_at = None
        answer = self._began(self._grant, now)
        if answer and answer is not True:
            self.asked_at, self.opens_at = now, answer
        return answer

    def had_new_connection(self, request: Request) -> None:
        """Note that ``request``, which the middleware made of the grant's, needs no new connection any more."""
        for each in (self._grant.request, request):
            note(each, needs_new_connection=False)

    def written(self) -> None:
        """It has been written, or the next part of it."""
        now = trio.current_time()
        grant = self._grant
        if grant.lane is not None and now > self._began_at:
            grant.lane.written(grant, self._began_at, now)
            self._began_at = now


class Fetcher:
    """Sends granted requests, and gives their places back."""

    __slots__ = (
        "_admission",
        "_events",
        "_limiters",
        "_limits",
        "_may_respond",
        "_recorder",
        "_scheduler",
        "_session_lease",
        "_state",
        "_stats",
        "_tells",
        "_throttle",
        "_transport",
    )

    def __init__(
        self,
        context: CrawlContext,
        admission: Admission,
        scheduler: Scheduler,
        throttle: Throttle,
        limiters: ScopeLimiters,
        limits: CrawlLimits,
    ) -> None:
        self._transport = context.transport
        self._recorder = context.recorder
        self._session_lease = context.open_job.lease
        self._events = context.events
        self._stats = context.stats
        self._state = context.state
        self._admission = admission
        self._scheduler = scheduler
        self._throttle = throttle
        self._limiters = limiters
        self._limits = limits
        self._may_respond = bool(context.middleware_stack.settings.downloader_middlewares)
        self._tells = logger.isEnabledFor(logging.DEBUG)

    async def send(self, request: Request) -> Outcome:
        """Send the request of the current grant, once. A checkpoint.

        Raises:
            RuntimeError: The grant was used already: a middleware that wants another try returns ``Replace``.
        """
        grant = current_grant.get()
        if grant is None or grant.task.is_used:
            raise RuntimeError(f"{request!r}: one grant is good for one send; to send again, return then=Replace(...)")
        task: RequestTask = grant.task
        task.is_used = True  # before the first await: a middleware may call it from two tasks at once
        if self._admission.is_in_doubt(grant, request):
            stopped = await self._admission.objection(grant, request)
            if stopped is not None:
                await trio.lowlevel.checkpoint()
                self.give_back(grant, stopped)
                return stopped
        if task.responder is not None:
            outcome: Outcome = await task.responder(request)
            task.read_at, task.times = outcome.ended_at, _NONE
            self._count(grant, outcome)
            return outcome
        write = _Write(self._sent, grant)
        try:
            if not grant.has_places and not await self._places(grant):
                return self._held(grant, Outcome(request))
            outcome = await self._transport.send(request, write)
        except BaseException:  # cancelled, by a time limit in a middleware: it is good for no other send
            self.give_back(grant)
            raise
        # Not written: a scope was closed at the wire. It waits for another grant, and gives its spacing back.
        if outcome.sent_at is None and outcome.is_held:
            if grant.lane is not None and trio.current_time() < write.opens_at:  # a transport that does not wait
                grant.lane.forget_lead()
            return self._held(grant, outcome)
        if write.needs_new_connection:
            write.had_new_connection(request)
        await self._hear(grant, outcome)
        return outcome

    async def respond(self, grant: Grant, outcome: Outcome) -> None:
        """Hear what user code made of a request that was not sent, as if the wire had responded. May wait.

        It counts as sent when the request entered the middleware. One that needs a token of the job's store waits for
        that now, and counts from then. What comes of a send, or of the cache, was heard already.
        """
        task: RequestTask = grant.task
        then = outcome.then
        is_put_off = (
            isinstance(then, Replace) and then.delay > 0.0 and outcome.response is None
        )  # until a proxy is ready
        if task.is_used or not grant.is_under_way or is_put_off or not self._may_respond:
            return
        task.is_used = task.is_responded = True
        if self._scheduler.needs_token(grant):
            grant.has_fetched = True  # so it waits as long as it takes
            await self._places(grant)
        now = trio.current_time()
        outcome.started_at = outcome.sent_at = grant.granted_at
        outcome.ended_at = now
        self._scheduler.responded(grant, now)
        self._state.wakeup.set()
        await self._hear(grant, outcome)

    async def _hear(self, grant: Grant, outcome: Outcome) -> None:
        """Have limits, statistics and the throttle hear the outcome of a send, and give its places back."""
        if outcome.response is not None:
            # Before its places are given back, so that no page too many is granted meanwhile.
            self._limits.answered(grant)
        self._time(grant, outcome)
        self._count(grant, outcome)
        outcome.is_heard = True
        now = trio.current_time()
        try:
            # Nearly always at once: only a user's manager is awaited.
            if not self._throttle.record_outcome_nowait(grant, outcome, now):
                await self._throttle.record_outcome(grant, outcome, now)
                now = trio.current_time()
        except Exception:  # a user's manager
            now = trio.current_time()
            logger.exception("%r: the throttling manager failed on its outcome", outcome.request)
            self._stats.inc("throttling_errors")
        if isinstance(grant.waiter, RobotsWaiter):
            await grant.waiter.read(outcome.response)
            now = trio.current_time()
        # After the throttle has heard: what takes the place obeys the backoff already.
        self.give_back(grant, outcome, now)

    def _held(self, grant: Grant, outcome: Outcome) -> Outcome:
        """End a grant without a send: a scope was closed meanwhile, or the crawl ends. It waits for another one."""
        if grant.sent_at is not None:
            # It was sent, and met a dead connection: its next grant must not meet another one.
            note(grant.request, needs_new_connection=True)
        outcome.then = Replace(grant.request, reason="held")
        self.give_back(grant, outcome)
        return outcome

    async def _places(self, grant: Grant) -> bool:
        """Wait for the places of a grant whose middleware has run; False: it gets none, and is not sent. A checkpoint.

        That is where the crawl is ending, or a scope was closed for longer than a request waits at the wire.
        """
        if self._state.is_ending:
            return False
        now = trio.current_time()
        if self._scheduler.prepared(grant, now, pages=self._state.may_page):
            if grant.has_places:
                self._limiters.take(grant)
            self._look_later(now)  # fewer are ahead: another may be prepared
            return grant.has_places
        grant.task.places = places = trio.Event()
        self._state.wakeup.set()
        await places.wait()
        return grant.has_places

    def give_back(self, grant: Grant, outcome: Outcome | None = None, now: float | None = None) -> None:
        """Give the places of a grant back, if it has any; what was never sent gives its spacing back too."""
        if not grant.is_under_way:
            return
        now = trio.current_time() if now is None else now
        if self._recorder is not None and grant.sent_at is not None and not grant.task.is_responded:
            self._recorder(grant, outcome, now)
        if grant.has_places and not grant.task.is_responded:
            self._limiters.give_back(grant)
        self._scheduler.give_back(grant, now)
        if self._state.is_reading:  # each free place may be a permit for start(): the dispatcher looks now
            self._state.wakeup.set()
        else:
            self._look_later(now)

    def _sent(self, grant: Grant, now: float) -> bool | float:
        """Note that a request goes to the wire, or tell that it must not now (:data:`~trawl.transport.base.OnSent`)."""
        if (
            self._session_lease is not None and self._session_lease.until <= now
        ):  # this process stood still: its cancel comes later
            return True
        if grant.sent_at is not None:
            return self._sent_again(grant, now)
        opens_at = -math.inf if grant.lane is None else grant.lane.opens_at(grant, now)
        if opens_at > now:
            # A short wait is spent at the wire, connected; for a longer one the places are better given back.
            return opens_at if opens_at <= now + MAX_LEAD else True
        self._scheduler.sent(grant, now, opens_at)
        self._count_sent(grant)
        if self._recorder is not None:
            self._recorder(grant, None, now)
        self._look_later(now)  # from a send, spacing counts
        return False

    def _look_later(self, now: float) -> None:
        """Have the dispatcher look when something may go; at once where somebody became ready, who has no timer."""
        scheduler = self._scheduler
        if (scheduler.queues.ready and scheduler.in_flight < scheduler.places) or scheduler.preparations.ready:
            self._state.wakeup.set()
        else:
            self._state.wakeup.wake_at(self._scheduler.next_event(now))

    def _sent_again(self, grant: Grant, now: float) -> bool:
        """Note that it goes again, instead of a send that met a dead connection; True: it must wait for another grant.

        A send counts for spacing and for quotas, whoever hears it; so a grant is good for one. Only where nothing is
        counted by sends may it go at once.
        """
        assert grant.lane is not None
        assert grant.sent_at is not None
        scopes = grant.lane.scopes
        add_wasted_send(scopes, grant.sent_at)
        if any(scope.held_until > now or scope.counts_sends for scope in scopes):
            return True
        for scope in scopes:
            scope.resent(now)
        self._count_sent(grant)
        return False

    def _count_sent(self, grant: Grant) -> None:
        self._stats.inc("request_count")
        if RequestSent in self._events.wanted:
            self._events.emit(RequestSent(grant.request, [scope for scope, _ in grant.scopes]))

    def parsed(self, grant: Grant, response: Response | None, now: float) -> float:
        """Note that the callback, or the errback, of a grant has ended at ``now``. Returns the seconds that it took."""
        task: RequestTask = grant.task
        if task.times is None or task.read_at is None:
            return 0.0
        seconds = now - task.read_at
        task.times = task.times.parsed(seconds)
        self._stats.times.parsing += seconds
        lane = grant.lane
        if lane is not None:
            add_parsing(lane.scopes, seconds)
        if response is not None:
            response.times = task.times
            if ResponseParsed in self._events.wanted:
                self._events.emit(ResponseParsed(response))
        return seconds

    def _time(self, grant: Grant, outcome: Outcome) -> None:
        """Note where the time of a send went, now that it has ended."""
        ended_at = outcome.ended_at
        sent_at = ended_at if outcome.sent_at is None else outcome.sent_at
        connecting = grant.prepared_for + sent_at - grant.granted_at
        times = Times(grant.queued, grant.throttled, connecting, ended_at - sent_at)
        grant.task.read_at, grant.task.times = ended_at, times
        self._stats.times.add(times)
        lane = grant.lane
        assert lane is not None
        add_times(lane.scopes, times)

    def _count(self, grant: Grant, outcome: Outcome) -> None:
        response = outcome.response
        if response is not None:
            response.times = grant.task.times
            self._stats.inc("response_count")
            self._stats.inc_status(response.status)
            is_plain = outcome.request.sink is None
            size = len(response.body) if is_plain else body_bytes(response)
            self._stats.inc("response_bytes", size)
            if self._tells:
                logger.debug(
                    "%r: %d, %d bytes; %s", outcome.request, response.status, size, times_words(response.times)
                )
            if ResponseReceived in self._events.wanted:
                self._events.emit(ResponseReceived(response))
        elif outcome.error is not None:
            self._stats.inc("download_error_count")
            self._stats.inc(f"download_error_count/{type(outcome.error).__name__}")
            if isinstance(outcome.error, AddressRefused) and not grant.passes_gate:  # robots.txt: see its pages
                self._stats.inc("private_addresses_refused")
