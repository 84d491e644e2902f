"""A crawl's share of a job that several processes work on: what comes to it, what goes from it, and the end.

Theory of operation. Each host's requests are sent by one process, that of the session that owns the part of the job
which the host is in (:mod:`trawl.frontier.parts`). So everything that decides on a send is as in a crawl by itself. One
task hears what changes, and a second one gives parts back:

* Parts that are gained bring requests, and what their last owner has learned of their hosts.
* Of a part that is to be given back nothing more is leased, and its requests that wait are put back. When nothing of it
  is under way any more, pages, direct fetches and robots.txt, it is given back with what was learned.
* Requests that others have found, and stored with us, are leased as our own.
* One process reads ``start()``: the one that is told so.
* The crawl is held open while the job is not over: others may find requests for us. Only the job's store knows when
  nothing is left; it is asked while nothing is open here.

A crawl by itself has an :class:`~trawl.engine.no_job.Alone` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import trio

from trawl.engine.job import JobState
from trawl.engine.no_job import Alone
from trawl.frontier.parts import (
    ItemsReceived,
    JobFinished,
    PartsReceived,
    PartsRequired,
    RequestsReceived,
    StartReceived,
    part_of,
    part_of_lane,
)
from trawl.http import origin_of
from trawl.scheduler import pending_pages

if TYPE_CHECKING:
    from trawl.engine.admission import Admission
    from trawl.engine.engine import Engine
    from trawl.engine.job import OpenJob
    from trawl.frontier import LaneKey, ScopeAmounts
    from trawl.frontier.parts import Change
    from trawl.frontier.redis.sessions import JobSession
    from trawl.http import Request
    from trawl.scheduler import Grant, Prefetcher

__all__ = ["SharedJobFollower"]

LOOK = 0.05
"""Seconds between two looks whether something of a part that is to be given back is still under way."""


class SharedJobFollower(Alone):
    """Follows what changes in a job that several processes share.

    Args:
        opened: The job.
        session: This process's session of it.
        engine: The crawl.
        admission: Asks which requests are for other processes.
        prefetcher: Is told of lanes, and asks which are lost.
    """

    def __init__(
        self, opened: OpenJob, session: JobSession, engine: Engine, admission: Admission, prefetcher: Prefetcher
    ) -> None:
        super().__init__(engine.context.state)
        assert isinstance(engine.job_state, JobState)
        self._job = opened.job
        self._outbox = opened.outbox
        self._stats = engine.context.stats
        self._session = session
        self._host_state = engine.job_state.host_state
        self._scheduler = engine.scheduler
        self._prefetcher = prefetcher
        self._leases = engine.leases
        self._gates = engine.gates
        self._start_requests = engine.start_requests
        self._throttle = engine.throttle
        self._cache_lookup = engine.cache_lookup
        prefetcher.shut_by(self.is_shut)
        admission.is_foreign = self.is_foreign
        self._losing: dict[int, None] = {}
        self._some_go = trio.Event()
        self._scope = trio.CancelScope()
        self._read_start: Callable[[], None] = _nothing
        self._holds = False
        self._was_idle = False

    def begin(self, nursery: trio.Nursery, read_start: Callable[[], None]) -> None:
        """Hold the crawl open, and take note of what has changed so far, which what is pending here shows already.

        Args:
            nursery: Runs the task that follows further changes.
            read_start: Starts the task that reads ``start()``.
        """
        self._read_start = read_start
        self.hold()
        for change in self._session.changes_so_far():
            if isinstance(change, PartsReceived):
                self._host_state.gained(change, trio.current_time())
            elif isinstance(change, PartsRequired):
                self._lose(change)
            elif isinstance(change, StartReceived):
                self._begin_start()
        if not self._session.is_alone:
            self._stats.set("shared/joined", True)
        nursery.start_soon(self._run)

    def hold(self) -> None:
        """Keep the crawl from ending until the job is over, again where it was."""
        if not self._holds:
            self._holds = True
            self._state.keepers += 1

    def stop(self) -> None:
        """Hear no more: the crawl has come to its end."""
        self._release()
        self._scope.cancel()

    def _release(self) -> None:
        if self._holds:
            self._holds = False
            self._state.keepers -= 1
            self._state.wakeup.set()

    def look(self) -> None:
        """Ask whether the job is over, where nothing is open here. Called whenever the dispatcher looks."""
        state = self._state
        # One of the keepers is this one's own: hold().
        is_idle = state.open <= 0 and state.keepers <= 1
        if is_idle and self._start_requests.has_failed:
            self._release()  # it is not over, and others may read start() again
        if is_idle != self._was_idle:
            self._was_idle = is_idle
            self._session.ask_if_over(is_idle=is_idle)

    @property
    def is_alone(self) -> bool:
        """No other process works on the job now, as far as is known."""
        return self._session.is_alone

    def is_shut(self, lane: LaneKey) -> bool:
        """Tell if nothing of a lane is to be sent any more: it goes to another process."""
        return bool(self._losing) and part_of_lane(lane) in self._losing

    def is_foreign(self, request: Request, scopes: ScopeAmounts) -> bool:
        """Tell if a request, with its scopes, is for another process to send.

        Shared scopes are granted to all. A host whose own scope is one is anybody's too.
        """
        own = [id for id, _ in scopes if not self._throttle.is_shared(id)]
        if not own and scopes:
            return False
        return not all(map(self._session.owns, {part_of(origin_of(request.url)), *[part_of(f"//{id}") for id in own]}))

    async def _run(self) -> None:
        """Follow what changes, until :meth:`stop`.

        Raises:
            JobError: The job is this process's no more.
        """
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._give_parts)
                while True:
                    await self._follow(await self._session.next_change())

    async def _follow(self, change: Change) -> None:
        if isinstance(change, PartsReceived):
            self._host_state.gained(change, trio.current_time())
            self._came(change)
        elif isinstance(change, RequestsReceived):
            self._came(change)
        elif isinstance(change, PartsRequired):
            self._lose(change)
        elif isinstance(change, ItemsReceived):
            self._outbox.others_gave(change.end)
        elif isinstance(change, StartReceived):
            await self._job.refresh()  # how far another process came with it
            self._begin_start()
        elif isinstance(change, JobFinished):
            self._outbox.others_gave(self._job.outbox_end)
            self._release()

    def _came(self, change: PartsReceived | RequestsReceived) -> None:
        self._state.admitted(change.pending)
        self._prefetcher.restored(change.lanes)
        self._state.wakeup.set()

    def _lose(self, change: PartsRequired) -> None:
        self._losing.update(dict.fromkeys(change.parts))
        self._some_go.set()

    def _begin_start(self) -> None:
        self._state.reading_began()
        self._read_start()

    async def _give_parts(self) -> None:
        while True:
            await self._some_go.wait()
            while self._losing:
                await self._put_back()
                used = {*self._session.leased_parts(), *self._used_parts()}
                free = self._losing.keys() - used
                free -= self._gates.let_go(free, part_of)
                if free:
                    await self._give_back(free)
                if self._losing:
                    await trio.sleep(LOOK)
            self._some_go = trio.Event()

    def _used_parts(self) -> set[int]:
        """Return the parts to whose hosts a direct fetch waits for its turn or is on its way."""
        grants = [waiter.grant for waiter in self._state.waiters if waiter.grant is not None and waiter.outcome is None]
        origins = {origin_of(grant.request.url) for grant in grants}
        return {*map(part_of, origins), *[part_of(f"//{id}") for grant in grants for id, _ in grant.scopes]}

    async def _put_back(self) -> None:
        """Put what was leased ahead back where it came from."""
        now = trio.current_time()
        grants = [grant for grant in pending_pages(self._scheduler) if self._goes(grant)]
        for grant in grants:
            self._scheduler.withdraw(grant, now)
        grants += self._cache_lookup.take_out(self._goes)
        if grants:
            await self._leases.put_back(grants)

    def _goes(self, grant: Grant) -> bool:
        return grant.lease is not None and self.is_shut(grant.lease.lane)

    async def _give_back(self, parts: Collection[int]) -> None:
        """Give back all that are free at once: one after the other they would take as many round trips."""
        pending = await self._session.give_back(self._host_state.leave(parts, trio.current_time()))
        for part in parts:
            del self._losing[part]
        self._host_state.forget({part for part in parts if not self._session.owns(part)}, trio.current_time())
        self._state.left(pending)


def _nothing() -> None:
    """Do nothing."""
