"""The dispatcher: one task that grants requests and starts their tasks.

Place first, then decide, then start, with no await between: the scheduler grants only what has a place in every scope
and among all, at the instant ``now``, and the request's task is started in the same step. Between decisions the
dispatcher sleeps under a cancel scope whose deadline is the next instant at which the scheduler could answer otherwise;
a change wakes it. Where a user's own code runs before the send, a request's task starts first, and its place is taken
when that has run: at its send, or here if it has to wait.

The task that reads ``start()`` decides too, after each request that may go, so that neither waits for a turn of the
other. It does so only where no step of that waits: a cancel scope that the spider has open across its ``yield`` would
cancel it half-way. What it starts sees the context variables of the dispatcher, not those that ``start()`` has set, and
a defect met there ends the crawl as it would here.

Only the engine uses it: the loop stands apart from the objects that it runs.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial

import trio

from trawl.engine.admission import Admission
from trawl.engine.cache_lookup import NoCache
from trawl.engine.callbacks import BATCH
from trawl.engine.fetcher import ScopeLimiters
from trawl.engine.no_job import Alone
from trawl.engine.robots_gate import RobotsGates
from trawl.engine.start_requests import StartRequests
from trawl.engine.state import RequestTask, State
from trawl.engine.worker import REQUEST_TASK, Worker
from trawl.errors import DownloadError
from trawl.robots import MAX_STEPS
from trawl.scheduler import Grant, Prefetcher, Refused, Scheduler
from trawl.scheduler.reasons import prepared_grants
from trawl.throttling import Throttle

__all__ = ["Dispatcher"]

MAX_REFUSED = 100
"""Refused requests whose tasks are started before they are let run: an origin may forbid all of a million links."""

Start = Callable[..., None]
"""Starts a task, as ``nursery.start_soon`` does."""


class Dispatcher:
    """Grants what may go, until the crawl is idle or ending."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        prefetcher: Prefetcher,
        throttle: Throttle,
        gates: RobotsGates,
        admission: Admission,
        limiters: ScopeLimiters,
        worker: Worker,
        start_requests: StartRequests,
        state: State,
        cache_lookup: NoCache,
        shared_job: Alone,
    ) -> None:
        self._scheduler = scheduler
        self._prefetcher = prefetcher
        self._throttle = throttle
        self._gates = gates
        self._admission = admission
        self._limiters = limiters
        self._worker = worker
        self._start_requests = start_requests
        self._state = state
        self._cache_lookup = cache_lookup
        self._shared_job = shared_job

    async def run(self, nursery: trio.Nursery) -> None:
        """Start one task in ``nursery`` for each request that may go; return when none will come or the crawl ends."""
        state = self._state
        while state.is_running():
            await self._grant(nursery, nursery.start_soon)
            until = self._next_look()
            with trio.CancelScope(deadline=until) as alarm:
                # One scope for many waits, until it has gone off (see Wakeup.wait); then the next one is entered.
                while state.is_running():
                    await state.wakeup.wait(until, alarm)
                    if alarm.cancel_called:
                        break
                    await self._grant(nursery, nursery.start_soon)
                    until = self._next_look()

    def start_granter(self, nursery: trio.Nursery) -> Callable[[], Awaitable[None]] | None:
        """Return what the reader of ``start()`` calls to grant in its own task; None where a step of that may wait."""
        if self._cache_lookup.has_cache:  # looking up waits
            return None
        start_soon: Start = nursery.start_soon
        return partial(self._grant_between, nursery, partial(copy_context().run, start_soon))

    def let_go(self) -> None:
        """The crawl sends nothing new: let those go on without a place that are prepared and wait for one."""
        for grant in prepared_grants(self._scheduler):
            grant.task.places.set()

    def _next_look(self) -> float:
        """Let ``start()`` be read while there is room; return when the scheduler may answer otherwise."""
        self._shared_job.look()
        # look() may have ended the crawl: its job is over.
        if not self._state.is_running():
            return math.inf
        now = trio.current_time()
        scheduler, state = self._scheduler, self._state
        self._throttle.warnings.waiting_direct(scheduler.pending_direct)
        if state.is_reading and state.may_page:
            pending, places = state.open - state.page_tasks, scheduler.places - scheduler.in_flight
            if not self._shared_job.is_alone and pending < BATCH:
                self._start_requests.allow(pending, BATCH)  # much of it is for others, who may have nothing to do
            elif places > 0 and not scheduler.has_ready():
                self._start_requests.allow(pending, places)
        return min(scheduler.next_event(now), self._throttle.next_change(now), self._prefetcher.next_due())

    async def _grant_between(self, nursery: trio.Nursery, start_soon: Start) -> None:
        """Grant in the task that reads ``start()``; what fails is not the spider's failure."""
        try:
            await self._grant(nursery, start_soon)
        except Exception as defect:
            start_soon(_raise, defect)

    async def _grant(self, nursery: trio.Nursery, start_soon: Start) -> None:
        state, scheduler, prefetcher = self._state, self._scheduler, self._prefetcher
        refused = 0
        now = trio.current_time()
        # Windows that are over by now count for this decision already.
        self._throttle.tick(now)
        while not state.is_ending:
            if prefetcher.are_wanted or prefetcher.next_due() <= now:
                await prefetcher.refill(trio.current_time)
                if not state.is_running():  # since then
                    return
                now = trio.current_time()
            self._cache_lookup.start(nursery, self._worker.run)
            # In the loop: what was leased above may have closed further gates.
            for origin, pause in self._gates.unasked():
                start_soon(self._admission.ask_robots, origin, pause)
            if self._gates.steps >= MAX_STEPS:  # lookups in rules were long: other tasks run first
                self._gates.steps = 0
                await trio.lowlevel.checkpoint()
                now = trio.current_time()
            verdict = scheduler.grant(now, pages=state.may_page)
            if verdict is None:
                return
            if isinstance(verdict, Refused):
                grant = verdict.grant
                if grant.task is not None:  # it was prepared: it ends unsent, and is vetted again with its next grant
                    grant.task.places.set()
                    continue
                state.task_began(is_page=grant.is_page)
                start_soon(self._worker.refuse, grant, verdict.reason, self._failure_of(grant, verdict.reason))
                self._gone(grant)
                refused += 1
                if refused == MAX_REFUSED:  # no place limits them: the dispatcher goes on behind them
                    state.wakeup.set()
                    return
                continue
            grant = verdict
            # It raises where the scheduler has granted a place that there is not: the check on its counters.
            if grant.has_places:
                self._limiters.take(grant)
            if grant.task is not None:  # it was prepared before, and waits at its send
                grant.task.places.set()
                continue
            grant.task = RequestTask(grant.request)
            state.task_began(is_page=grant.is_page)
            start_soon(self._worker.run, grant, name=REQUEST_TASK)
            self._gone(grant)

    def _failure_of(self, grant: Grant, reason: str) -> DownloadError | None:
        """Return the error for which the host of a grant was given up; None if it is refused for another reason."""
        if reason == "refused":
            return self._throttle.given_up.failure_of(grant)
        return self._gates.failure_of(grant) if reason.startswith("robots_") else None

    def _gone(self, grant: Grant) -> None:
        if grant.lease is not None:
            self._prefetcher.granted(grant.lease.lane)


async def _raise(defect: Exception) -> None:  # noqa: ASYNC124 - a task
    raise defect
