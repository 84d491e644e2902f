"""The dispatcher: one task that grants requests and starts their tasks.

Take a place first, then decide, then start, with no await between. The scheduler grants only requests that have a place
in every scope and among all, at the time ``now``, and the request's task starts in the same step. Between decisions the
dispatcher sleeps until the next time at which the scheduler's decision could change, or until a change. If user code
runs before the send, a request's task starts first, and takes its place after this code: at its send, or here.

The task that reads ``start()`` also grants, after each request that may be sent, so that neither task waits for the
other. It does so only if no step of a grant waits, because a cancel scope that the spider has open across its ``yield``
would cancel the attempt half-way. The tasks that it starts see the context variables of the dispatcher, not of
``start()``, and an internal error ends the crawl as it would here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING

import trio

from trawl.engine.admission import Admission
from trawl.engine.callbacks import BATCH
from trawl.engine.fetcher import ScopeLimiters
from trawl.engine.state import RequestTask
from trawl.engine.worker import REQUEST_TASK, Worker
from trawl.errors import DownloadError
from trawl.robots import MAX_STEPS
from trawl.scheduler import Attempt, Prefetcher, Refused
from trawl.scheduler.reasons import prepared_attempts

if TYPE_CHECKING:
    from trawl.engine.engine import Engine

__all__ = ["Dispatcher"]

MAX_REFUSED = 100
"""Number of refused requests started before other tasks run, because the robots.txt of an origin may exclude a million
links."""

Start = Callable[..., None]
"""Starts a task, as ``nursery.start_soon`` does."""


class Dispatcher:
    """Grants requests until the crawl is idle or ending."""

    def __init__(
        self, engine: Engine, admission: Admission, prefetcher: Prefetcher, limiters: ScopeLimiters, worker: Worker
    ) -> None:
        self._scheduler = engine.scheduler
        self._throttle = engine.throttle
        self._gates = engine.gates
        self._start_requests = engine.start_requests
        self._state = engine.context.state
        self._cache_lookup = engine.cache_lookup
        self._shared_job = engine.shared_job
        self._admission = admission
        self._prefetcher = prefetcher
        self._limiters = limiters
        self._worker = worker

    async def run(self, nursery: trio.Nursery) -> None:
        """Start one task in ``nursery`` for each granted request. Returns when none will follow or the crawl ends."""
        state = self._state
        while state.is_running():
            await self._grant(nursery, nursery.start_soon)
            until = self._next_look()
            with trio.CancelScope(deadline=until) as alarm:
                # One scope serves many waits until it is cancelled (see Wakeup.wait). Then the next scope is entered.
                while state.is_running():
                    await state.wakeup.wait(until, alarm)
                    if alarm.cancel_called:
                        break
                    await self._grant(nursery, nursery.start_soon)
                    until = self._next_look()

    def start_granter(self, nursery: trio.Nursery) -> Callable[[], Awaitable[None]] | None:
        """Return a function for the reader of ``start()`` to grant requests; None if a step of it might wait."""
        if self._cache_lookup.has_cache:  # cache lookups wait
            return None
        start_soon: Start = nursery.start_soon
        return partial(self._grant_between, nursery, partial(copy_context().run, start_soon))

    def let_go(self) -> None:
        """Wake prepared requests that wait for a place. They end without one, because nothing new is sent."""
        for attempt in prepared_attempts(self._scheduler):
            attempt.task.places.set()

    def _next_look(self) -> float:
        """Allow reading of ``start()`` while there is room. Returns when the scheduler's decision may change."""
        self._shared_job.look()
        now = trio.current_time()
        scheduler, state = self._scheduler, self._state
        if scheduler.pending_direct:
            self._throttle.warnings.waiting_direct(scheduler.pending_direct)
        if state.is_reading and state.may_page:
            pending, places = state.open - state.page_tasks, scheduler.places - scheduler.in_flight
            if not self._shared_job.is_alone and pending < BATCH:
                self._start_requests.allow(pending, BATCH)  # many are for other processes, which may be idle
            elif places > 0 and not scheduler.has_ready():
                self._start_requests.allow(pending, places)
        return min(scheduler.next_event(now), self._throttle.next_change(now), self._prefetcher.next_due())

    async def _grant_between(self, nursery: trio.Nursery, start_soon: Start) -> None:
        """Grant in the task that reads ``start()``, but raise internal errors outside the spider's code."""
        try:
            await self._grant(nursery, start_soon)
        except Exception as defect:
            start_soon(_raise, defect)

    async def _grant(self, nursery: trio.Nursery, start_soon: Start) -> None:
        state, scheduler, prefetcher = self._state, self._scheduler, self._prefetcher
        refused = 0
        now = trio.current_time()
        # Quota windows that have ended by now count for this decision.
        self._throttle.tick(now)
        while not state.is_ending:
            if prefetcher.is_due(now):
                now = await prefetcher.refill(now, trio.current_time)
                if not state.is_running():  # the crawl ended during refill()
                    return
            if self._cache_lookup.has_cache:
                self._cache_lookup.start(nursery, self._worker.run)
            # Inside the loop, because the leases above may have closed more gates.
            for origin, pause in self._gates.unasked():
                start_soon(self._admission.ask_robots, origin, pause)
            if self._gates.steps >= MAX_STEPS:  # lookups in rules took long: other tasks run first
                self._gates.steps = 0
                await trio.lowlevel.checkpoint()
                now = trio.current_time()
            verdict = scheduler.grant(now, pages=state.may_page)
            if verdict is None:
                return
            if isinstance(verdict, Refused):
                attempt = verdict.attempt
                if attempt.task is not None:  # a prepared request ends unsent, and is checked again at its next attempt
                    attempt.task.places.set()
                    continue
                state.task_began(is_page=attempt.is_page)
                start_soon(self._worker.refuse, attempt, verdict.reason, self._failure_of(attempt, verdict.reason))
                self._gone(attempt)
                refused += 1
                if refused == MAX_REFUSED:  # refusals need no places, so let other tasks run, then continue
                    state.wakeup.set()
                    return
                continue
            attempt = verdict
            # Raises if the scheduler has granted a place that does not exist, which checks its counters.
            if attempt.has_places:
                self._limiters.take(attempt)
            if attempt.task is not None:  # prepared, and waiting at its send
                attempt.task.places.set()
                continue
            attempt.task = RequestTask(attempt.request)
            state.task_began(is_page=attempt.is_page)
            start_soon(self._worker.run, attempt, name=REQUEST_TASK)
            self._gone(attempt)

    def _failure_of(self, attempt: Attempt, reason: str) -> DownloadError | None:
        """Return the error for which the host of an attempt was given up; None if it is refused for another reason."""
        if reason == "refused":
            return self._throttle.given_up.failure_of(attempt)
        return self._gates.failure_of(attempt) if reason.startswith("robots_") else None

    def _gone(self, attempt: Attempt) -> None:
        if attempt.is_page:
            self._prefetcher.granted(attempt.options.lease.lane)


async def _raise(defect: Exception) -> None:  # noqa: RUF029 - a task
    raise defect
