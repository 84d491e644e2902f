"""The fetcher: the innermost fetch. One attempt, one send, one outcome for the throttle.

Between the grant and the send, only the connection is awaited, and connecting makes no delay longer: a scope with a
delay grants a request earlier, by the time that other requests needed to connect, and the connected request waits for
its send time. With user middleware, requests are prepared without places and get them here
(:meth:`~trawl.scheduler.scheduler.Scheduler.prepared`). If a scope closes between the grant and the send, the request
releases its places and waits for another grant, while its connection is left to the next request. The same happens if
its kept connection was dead and its scopes count sends, because repeating it is another send. When the body has been
read, the throttle processes the outcome first and the places are released second, in one step without a send between,
so the request that takes the place already obeys the backoff. Both happen before any callback, so that a callback may
wait for a direct fetch at concurrency 1.

Besides the scheduler's counters, each scope in use has a :class:`trio.CapacityLimiter`, which would raise if the
scheduler were wrong. It is acquired on behalf of the attempt without waiting, made at a scope's first send, and deleted
when the scope has nothing in flight (838 bytes per scope; a crawl may know 100,000). A few limiters are kept, because
making one for each page of a delayed host costs more than all other work with it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from itertools import chain, repeat
from typing import TYPE_CHECKING

import trio

from trawl.engine.admission import Admission
from trawl.engine.robots_gate import RobotsWaiter
from trawl.engine.state import RequestTask, current_attempt
from trawl.errors import AddressRefused
from trawl.events import RequestSent, ResponseParsed, ResponseReceived
from trawl.http import Outcome, Replace, Request, Response, Times, body_bytes
from trawl.http.notes import note, notes_of
from trawl.observe import times_words
from trawl.scheduler import Attempt
from trawl.throttling import BROWSER, Scope
from trawl.throttling.reasons import ScopeTotals, add_parsing, add_wasted_send
from trawl.throttling.scope import MAX_LEAD

if TYPE_CHECKING:
    from trawl.engine.engine import Engine

__all__ = ["Fetcher", "Recorder", "ScopeLimiters"]

MAX_KEPT = 256
"""Maximum number of limiters while limiters without requests in flight are kept."""


class ScopeLimiters:
    """Capacity limiters of the scopes with requests in flight, and of a few others."""

    def __init__(self) -> None:
        self._limiters: dict[str, trio.CapacityLimiter] = {}

    def take(self, attempt: Attempt) -> None:
        """Take one place in each scope for ``attempt``.

        Raises trio.WouldBlock if the scheduler granted more than the limits allow, which is a bug in trawl.
        """
        assert attempt.lane is not None
        for scope in attempt.lane.scopes:
            limiter = self._limiters.get(scope.id)
            if limiter is None:
                limiter = self._limiters[scope.id] = trio.CapacityLimiter(_tokens(scope))
            elif limiter.total_tokens != scope.effective.concurrency:
                limiter.total_tokens = _tokens(scope)
            limiter.acquire_on_behalf_of_nowait(attempt)

    def give_back(self, attempt: Attempt, *, is_rest: bool = False) -> None:
        """Release the places of ``attempt``: all except that in the scope ``browser``, or (``is_rest``) only that."""
        assert attempt.lane is not None
        for scope in attempt.lane.scopes:
            if (scope.id == BROWSER) is is_rest:
                limiter = self._limiters[scope.id]
                limiter.release_on_behalf_of(attempt)
                if len(self._limiters) > MAX_KEPT and not limiter.borrowed_tokens:
                    del self._limiters[scope.id]

    def resize(self, scope: Scope) -> None:
        """Apply a scope's changed concurrency. Requests in flight stay."""
        limiter = self._limiters.get(scope.id)
        if limiter is not None:
            limiter.total_tokens = _tokens(scope)


def _tokens(scope: Scope) -> int | float:
    if scope.effective.concurrency == math.inf:
        return math.inf
    return max(1, int(scope.effective.concurrency))  # Trio accepts no other float


logger: logging.Logger = logging.getLogger("trawl.engine")

_NONE = Times()

Recorder = Callable[[Attempt, "Outcome | None", float], None]
"""Called with each send (outcome None) and its end, at the event loop time; for simulations and tests."""


class _Write:
    """Called by the transport at both ends of a write. Scopes count from the later end."""

    __slots__ = ("_attempt", "_began", "_began_at", "asked_at", "needs_new_connection", "opens_at")

    def __init__(self, began: Callable[[Attempt, float], bool | float], attempt: Attempt) -> None:
        self._began = began
        self._attempt = attempt
        self._began_at = -math.inf
        self.asked_at: float | None = None  # event loop time since which it waits at the send
        self.opens_at: float = -math.inf  # event loop time until which it waits
        self.needs_new_connection: bool = notes_of(attempt.request).needs_new_connection

    def __call__(self) -> bool | float:
        """Called before a write. Return True if it must not happen, or the time before which it must not happen."""
        self._began_at = now = trio.current_time()
        if self.asked_at is not None:
            self._attempt.waited(now - self.asked_at)
            self.asked_at = None
        answer = self._began(self._attempt, now)
        if answer and answer is not True:
            self.asked_at, self.opens_at = now, answer
        return answer

    @property
    def charges(self) -> list[tuple[int, float, str]]:
        """Slot (0 for none), amount and name of each scope that is charged."""
        scopes, slots = self._attempt.scopes, chain(self._attempt.slots, repeat(0))
        pairs = zip(scopes, slots, strict=False)
        return [(slot, 1.0 if amount is None else amount, scope) for (scope, amount), slot in pairs]

    @property
    def sent_at(self) -> float | None:
        """Event loop time of the send; None if the request was not sent."""
        return self._attempt.times.sent_at

    def written(self) -> None:
        """Called after the request, or the next part of it, was written."""
        now = trio.current_time()
        attempt = self._attempt
        if attempt.lane is not None and now > self._began_at:
            attempt.lane.written(attempt, self._began_at, now)
            self._began_at = now


class Fetcher:
    """Sends granted requests, and releases their places."""

    def __init__(self, engine: Engine, admission: Admission, limiters: ScopeLimiters) -> None:
        context = engine.context
        self._transport = context.network.transport
        self._recorder = context.network.recorder
        self._session_lease = context.open_job.lease
        self._deaths = context.open_job.deaths
        self._events = context.events
        self._stats = context.stats
        self._state = context.state
        self._admission = admission
        self._scheduler = engine.scheduler
        self._throttle = engine.throttle
        self._limiters = limiters
        self._limits = engine.limits
        self._may_respond = bool(context.middleware_stack.settings.downloader_middlewares)
        self._tells = logger.isEnabledFor(logging.DEBUG)

    async def send(self, request: Request) -> Outcome:
        """Send the request of the current attempt, once. A checkpoint.

        Raises RuntimeError if the attempt was already used. A middleware that wants to retry returns ``Replace``.
        """
        attempt = current_attempt.get()
        if attempt is None or attempt.task.is_used:
            raise RuntimeError(
                f"{request!r}: one attempt is good for one send; to send again, return then=Replace(...)"
            )
        task: RequestTask = attempt.task
        task.is_used = True  # before the first await, because a middleware may call it from two tasks at once
        if self._admission.is_in_doubt(attempt, request):
            stopped = await self._admission.objection(attempt, request)
            if stopped is not None:
                await trio.lowlevel.checkpoint()
                self.give_back(attempt, stopped)
                return stopped
        if task.responder is not None:
            outcome: Outcome = await task.responder(request)
            task.read_at, task.times = outcome.ended_at, _NONE
            self._count(attempt, outcome)
            return outcome
        write = _Write(self._sent, attempt)
        try:
            if not attempt.has_places and not await self._places(attempt):
                return self._deferred(attempt, Outcome(request))
            outcome = await self._transport.send(request, write)
        except BaseException:  # cancelled by a timeout in a middleware: the attempt can't send again
            self.give_back(attempt)
            raise
        # Not written, because a scope closed before the send. Wait for another grant, and release the lead time.
        if outcome.sent_at is None and outcome.is_deferred:
            if attempt.lane is not None and trio.current_time() < write.opens_at:  # a transport that does not wait
                attempt.lane.forget_lead()
            return self._deferred(attempt, outcome)
        if write.needs_new_connection:  # not any more; a middleware may have made this request
            note(attempt.request, needs_new_connection=False)
            note(request, needs_new_connection=False)
        await self._hear(attempt, outcome)
        return outcome

    async def respond(self, attempt: Attempt, outcome: Outcome) -> None:
        """Process the response of user code to an unsent request, as if it had come from the server. May wait.

        It counts as sent when it entered the middleware, or, if it needs a token of the job's store, when it gets it
        here. Outcomes of a send or of the cache were already processed.
        """
        task: RequestTask = attempt.task
        then = outcome.then
        # Until a proxy is ready.
        is_put_off = isinstance(then, Replace) and then.delay > 0.0 and outcome.response is None
        if task.is_used or not attempt.is_under_way or is_put_off or not self._may_respond:
            return
        task.is_used = task.is_responded = True
        if self._scheduler.needs_token(attempt):
            attempt.has_fetched = True  # makes it wait without a limit
            self._deaths.leave(attempt)  # its middleware has ended
            await self._places(attempt)
        now = trio.current_time()
        outcome.started_at = outcome.sent_at = attempt.times.granted_at
        outcome.ended_at = now
        task.skips_limiters = not attempt.has_places
        self._scheduler.responded(attempt, now)
        self._state.wakeup.set()
        await self._hear(attempt, outcome)

    async def _hear(self, attempt: Attempt, outcome: Outcome) -> None:
        """Pass the outcome of a send to limits, statistics and the throttle, and release its places."""
        if outcome.response is not None:
            # Count the page before its places are released, so that no page too many is granted.
            self._limits.answered(attempt)
        ended_at, before = outcome.ended_at, attempt.times
        sent_at = ended_at if outcome.sent_at is None else outcome.sent_at
        connecting = before.prepared_for + sent_at - before.granted_at
        times = Times(before.queued, before.throttled, connecting, ended_at - sent_at)
        attempt.task.read_at, attempt.task.times = ended_at, times
        self._stats.times.add(times)
        size = self._count(attempt, outcome)
        outcome.size = outcome.size or size
        now = trio.current_time()
        assert attempt.lane is not None
        for scope in attempt.lane.scopes:
            totals: ScopeTotals = scope.state.totals
            totals.responded(outcome, times, size)
            if scope.hear_responses:
                scope.heard(outcome, now)
        outcome.is_heard = True
        try:
            # Nearly always at once, because only a user's manager is awaited.
            if not self._throttle.record_outcome_nowait(attempt, outcome, now):
                await self._throttle.record_outcome(attempt, outcome, now)
                now = trio.current_time()
        except Exception:  # from a user's manager
            now = trio.current_time()
            logger.exception("%r: the throttling manager failed on its outcome", outcome.request)
            self._stats.inc("throttling_errors")
        if isinstance(attempt.options.waiter, RobotsWaiter):
            await attempt.options.waiter.read(outcome.response)
            now = trio.current_time()
        # The throttle comes first, so that the request that takes the place already obeys the backoff.
        self.give_back(attempt, outcome, now)

    def _deferred(self, attempt: Attempt, outcome: Outcome) -> Outcome:
        """End an attempt without a send, because a scope closed or the crawl ends. The request waits again."""
        if attempt.times.sent_at is not None:
            # The kept connection was dead, so the next attempt needs a new one.
            note(attempt.request, needs_new_connection=True)
        outcome.then = Replace(attempt.request, reason="deferred")
        self.give_back(attempt, outcome)
        return outcome

    async def _places(self, attempt: Attempt) -> bool:
        """Wait for the places of an attempt whose middleware has run; False if it gets none, unsent. A checkpoint.

        It gets none if the crawl is ending, or if a scope closed for longer than a request waits at its send.
        """
        if self._state.is_ending:
            return False
        now = trio.current_time()
        if self._scheduler.prepared(attempt, now, pages=self._state.may_page):
            if attempt.has_places:
                self._limiters.take(attempt)
            self._look_later(now)  # fewer tasks are ahead, so another may be prepared
            return attempt.has_places
        attempt.task.places = places = trio.Event()
        self._state.wakeup.set()
        await places.wait()
        return attempt.has_places

    def give_back(self, attempt: Attempt, outcome: Outcome | None = None, now: float | None = None) -> None:
        """Release the places of an attempt, if it has any. A request that was never sent also releases its spacing."""
        if not attempt.is_under_way:
            return
        now = trio.current_time() if now is None else now
        if self._recorder is not None and attempt.times.sent_at is not None and not attempt.task.is_responded:
            self._recorder(attempt, outcome, now)
        if attempt.has_places and not attempt.task.skips_limiters:
            self._limiters.give_back(attempt)
        self._scheduler.give_back(attempt, now)
        if self._state.is_reading:  # start() may use each free place, so the dispatcher must look now
            self._state.wakeup.set()
        else:
            self._look_later(now)

    def give_back_rest(self, attempt: Attempt) -> None:
        """Release the place in the scope ``browser`` that ``attempt`` keeps, because the page is closed."""
        now = trio.current_time()
        if not attempt.task.skips_limiters:
            self._limiters.give_back(attempt, is_rest=True)
        self._scheduler.give_back_rest(attempt, now)
        self._look_later(now)

    def _sent(self, attempt: Attempt, now: float) -> bool | float:
        """Record the send of a request, or return when it may be sent (:data:`~trawl.transport.base.OnSent`)."""
        if self._session_lease.until <= now:  # this process was paused, and its cancellation comes later
            return True
        if attempt.times.sent_at is not None:
            return self._sent_again(attempt, now)
        opens_at = -math.inf if attempt.lane is None else attempt.lane.opens_at(attempt, now)
        if opens_at > now:
            # Wait at the send for a short time. For a longer time, releasing the places is better.
            return opens_at if opens_at <= now + MAX_LEAD else True
        self._scheduler.sent(attempt, now, opens_at)
        self._count_sent(attempt)
        if self._recorder is not None:
            self._recorder(attempt, None, now)
        self._look_later(now)  # delays count from a send
        return False

    def _look_later(self, now: float) -> None:
        """Wake the dispatcher when the next request may be sent, or at once if requests are ready without a timer."""
        scheduler = self._scheduler
        if (scheduler.queues.ready and scheduler.in_flight < scheduler.places) or scheduler.preparations.ready:
            self._state.wakeup.set()
        else:
            self._state.wakeup.wake_at(self._scheduler.next_event(now))

    def _sent_again(self, attempt: Attempt, now: float) -> bool:
        """Record another attempt after a send that met a dead connection; True if it must wait for another grant.

        A send counts for delays and quotas even if it fails, so one attempt allows one send. The second attempt may
        follow at once only if no scope counts sends and all scopes are still open.
        """
        assert attempt.lane is not None
        assert attempt.times.sent_at is not None
        scopes = attempt.lane.scopes
        add_wasted_send(scopes, attempt.times.sent_at)
        if any(scope.counts_sends for scope in scopes) or attempt.lane.opens_at(attempt, now) > now:
            return True
        for scope in scopes:
            scope.resent(now)
        self._count_sent(attempt)
        if self._recorder is not None:
            self._recorder(attempt, None, now)  # the end of the send on the dead connection
            self._recorder(attempt, None, now)
        return False

    def _count_sent(self, attempt: Attempt) -> None:
        self._stats.inc("request_count")
        if RequestSent in self._events.wanted:
            self._events.emit(RequestSent(attempt.request, [scope for scope, _ in attempt.scopes]))

    def parsed(self, attempt: Attempt, response: Response | None, now: float) -> float:
        """Record that the callback or errback of an attempt ended at ``now``. Returns its duration in seconds."""
        task: RequestTask = attempt.task
        if task.times is None:
            return 0.0
        seconds = now - task.read_at
        task.times = task.times.parsed(seconds)
        self._stats.times.parsing += seconds
        lane = attempt.lane
        if lane is not None:
            add_parsing(lane.scopes, seconds)
        if response is not None:
            response.times = task.times
            if ResponseParsed in self._events.wanted:
                self._events.emit(ResponseParsed(response, *attempt.last_limit))
        return seconds

    def _count(self, attempt: Attempt, outcome: Outcome) -> int:
        """Count an outcome in the statistics, and return the bytes of its body."""
        response, size = outcome.response, 0
        if response is not None:
            response.times = attempt.task.times
            if attempt.is_sub_request:
                self._stats.inc("browser/response_count")
            else:
                self._stats.inc("response_count")
                self._stats.inc_status(response.status)
                if (latency := outcome.latency) is not None:
                    self._stats.add_latency(latency)
            is_plain = outcome.request.sink is None
            size = len(response.body) if is_plain else body_bytes(response)
            self._stats.inc("response_bytes", size)
            if self._tells:
                logger.debug(
                    "%r: %d, %d bytes; %s", outcome.request, response.status, size, times_words(response.times)
                )
            if ResponseReceived in self._events.wanted:
                was_sent = not outcome.is_cached and not attempt.task.is_responded
                self._events.emit(ResponseReceived(response, was_sent))
        elif outcome.error is not None:
            self._stats.inc("download_error_count")
            self._stats.inc(f"download_error_count/{type(outcome.error).__name__}")
            # robots.txt is counted for its pages.
            if isinstance(outcome.error, AddressRefused) and not attempt.options.passes_gate:
                self._stats.inc("private_addresses_refused")
        return size
