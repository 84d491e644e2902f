"""A crawl's share of a job that several processes work on: partitions that arrive and leave, and the end.

Theory of operation. Each host's requests are sent by one process, whose session owns the partition of the host
(:mod:`trawl.frontier.parts`). Every decision about a send is therefore made as in a crawl of one process. One task
follows changes, and a second one releases partitions:

* A received partition brings requests, and the knowledge of hosts that its last owner stored.
* If a partition must be released, no more of its requests are leased, and its waiting requests return to the frontier.
  When none of its requests is in flight, it is released with the knowledge of its hosts.
* Requests that other processes have found for this process's hosts are leased like its own.
* One process reads ``start()``, chosen by the job's store.
* The crawl stays open until the job is finished, which only the store knows, so this process asks while nothing is open
  here. A process that leads the others also waits until they have left: their ``spider_idle`` may add requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
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
from trawl.http import Outcome, origin_of
from trawl.throttling import BROWSER

if TYPE_CHECKING:
    from trawl.engine.admission import Admission
    from trawl.engine.engine import Engine
    from trawl.engine.job import OpenJob
    from trawl.frontier import LaneKey, ScopeAmounts
    from trawl.frontier.job import SessionLease
    from trawl.frontier.parts import Change
    from trawl.frontier.redis.sessions import JobSession
    from trawl.http import Request
    from trawl.scheduler import Attempt, Prefetcher
    from trawl.transport import OnSent, Transport

__all__ = ["JobTransport", "SharedJobFollower"]

LOOK = 0.05
"""Seconds between two checks for requests in flight in partitions that must be released, or for other processes."""


class SharedJobFollower(Alone):
    """Follows the changes in a job that several processes share.

    Admission asks it which requests belong to other processes, and the prefetcher which lanes must not be leased.
    """

    def __init__(
        self, opened: OpenJob, session: JobSession, engine: Engine, admission: Admission, prefetcher: Prefetcher
    ) -> None:
        super().__init__(engine.context.state)
        assert isinstance(engine.job_state, JobState)
        self._job = opened.job
        self._outbox = opened.outbox
        self._deaths = opened.deaths
        self._stats = engine.context.stats
        self._session = session
        self._host_state = engine.job_state.host_state
        self._prefetcher = prefetcher
        self._leases = engine.leases
        self._gates = engine.gates
        self._start_requests = engine.start_requests
        self._throttle = engine.throttle
        prefetcher.shut_by(self.is_shut)
        admission.is_foreign = self.is_foreign
        self._losing: dict[int, None] = {}
        self._some_go = trio.Event()
        self._scope = trio.CancelScope()
        self._read_start: Callable[[], None] = lambda: None
        self._holds = False
        self._was_idle = False

    def begin(self, nursery: trio.Nursery, read_start: Callable[[], None]) -> None:
        """Keep the crawl open, and apply the changes so far. The pending counts already include them."""
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
        """Keep the crawl running until the job is finished, also after it was released."""
        if not self._holds:
            self._holds = True
            self._state.keepers += 1

    def stop(self) -> None:
        """Stop following changes, because the crawl has ended."""
        self._release()
        self._scope.cancel()

    async def others_left(self) -> None:
        """If this process leads the others, wait until they have left the job, so that their last items are stored."""
        while self.leads and not self._session.is_alone:  # noqa: ASYNC110 - the session polls too
            await trio.sleep(LOOK)

    def _release(self) -> None:
        if self._holds:
            self._holds = False
            self._state.keepers -= 1
            self._state.wakeup.set()

    def look(self) -> None:
        """If nothing is open here, check whether the job is finished. Called whenever the dispatcher looks."""
        state = self._state
        # One of the keepers belongs to this object: hold().
        is_idle = state.open <= 0 and state.keepers <= 1
        if is_idle and self._start_requests.has_failed:
            self._release()  # the job is not finished, and another process may read start() again
        if is_idle != self._was_idle:
            self._was_idle = is_idle
            self._session.ask_if_over(is_idle=is_idle)

    @property
    def is_alone(self) -> bool:
        """True if no other process is known to work on the job now."""
        return self._session.is_alone

    @property
    def leads(self) -> bool:
        """True if this process sends nothing itself, because it leads the processes that do."""
        return not self._session.works

    def is_shut(self, lane: LaneKey) -> bool:
        """Return True if nothing more of a lane may be sent, because it moves to another process."""
        return bool(self._losing) and part_of_lane(lane) in self._losing

    def is_foreign(self, request: Request, scopes: ScopeAmounts) -> bool:
        """Return True if another process must send a request with these scopes.

        Any process may send in shared scopes, so a host whose own scope is shared belongs to no single process.
        """
        own = [id for id, _ in scopes if id != BROWSER and not self._throttle.is_shared(id)]
        if not own and scopes:
            return False
        return not all(map(self._session.owns, {part_of(origin_of(request.url)), *[part_of(f"//{id}") for id in own]}))

    async def _run(self) -> None:
        """Follow changes until :meth:`stop`. Raises JobError if the job no longer belongs to this process."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._give_parts)
                while True:
                    await self._follow(await self._session.next_change())

    async def _follow(self, change: Change) -> None:
        if isinstance(change, PartsReceived):
            if change.unclean:
                await self._deaths.refresh()
            self._host_state.gained(change, trio.current_time())
            self._came(change)
        elif isinstance(change, RequestsReceived):
            self._came(change)
        elif isinstance(change, PartsRequired):
            self._lose(change)
        elif isinstance(change, ItemsReceived):
            self._outbox.others_gave(change.end)
        elif isinstance(change, StartReceived):
            await self._job.refresh()  # load how far another process read start()
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
                used = {*self._session.parts.leased(), *self._used_parts()}
                free = self._losing.keys() - used
                free -= self._gates.let_go(free, part_of)
                if free:
                    await self._give_back(free)
                if self._losing:
                    await trio.sleep(LOOK)
            self._some_go = trio.Event()

    def _used_parts(self) -> set[int]:
        """Return the partitions of hosts for which a direct fetch waits for its turn or is in flight."""
        attempts = [waiter.attempt for waiter in self._state.waiters if waiter.outcome is None]
        origins = {origin_of(attempt.request.url) for attempt in attempts}
        return {*map(part_of, origins), *[part_of(f"//{id}") for attempt in attempts for id, _ in attempt.scopes]}

    async def _put_back(self) -> None:
        """Return requests that were leased in advance to the frontier."""
        attempts = self._prefetcher.take_back(self._goes, trio.current_time())
        if attempts:
            self._state.wakeup.set()  # a scope may have been reserved for one of them
            await self._leases.give_back(attempts)

    def _goes(self, attempt: Attempt) -> bool:
        return attempt.is_page and self.is_shut(attempt.options.lease.lane)

    async def _give_back(self, parts: Collection[int]) -> None:
        """Release all free partitions together, because each call takes a round trip."""
        pending = await self._session.give_back(self._host_state.leave(parts, trio.current_time()))
        for part in parts:
            del self._losing[part]
        self._host_state.forget({part for part in parts if not self._session.owns(part)}, trio.current_time())
        self._state.ended(pending)


class JobTransport:
    """Sends only while the job surely belongs to this process. Requests wait before the send, and stop at the deadline.

    Requests that were stopped are sent again later.
    """

    def __init__(self, transport: Transport, lease: SessionLease) -> None:
        self._transport = transport
        self._lease = lease

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        """Send ``request`` once under the lease, or not at all if the lease ends first. A checkpoint."""
        outcome: Outcome | None = await self._lease.hold(partial(self._transport.send, request, on_sent))
        return Outcome(request, ended_at=trio.current_time()) if outcome is None else outcome

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()
