"""A crawl without a job: the interface of a job, with nothing stored and no other process.

The classes of the modules ``job``, ``callback_deaths`` and ``shared_job``, which such a crawl does not load, derive
from these.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import attrs
import trio

from trawl.engine.items import ItemSender
from trawl.robots import RobotsCache

if TYPE_CHECKING:
    from trawl.engine.admission import Admission
    from trawl.engine.context import CrawlContext
    from trawl.engine.crawl import Watcher
    from trawl.engine.engine import Engine
    from trawl.engine.items import Processor, Writer
    from trawl.engine.job_items import JobItems
    from trawl.engine.limits import CrawlLimits, ItemLimit
    from trawl.engine.state import State
    from trawl.engine.worker import Worker
    from trawl.frontier.job import SessionLease
    from trawl.frontier.redis.sessions import JobSession
    from trawl.http import Fetch, Request
    from trawl.scheduler import Attempt, Prefetcher
    from trawl.throttling import Throttle
    from trawl.throttling.shared import SharedScopeClient
    from trawl.transport import Transport

__all__ = ["Alone", "EndlessLease", "NoDeaths", "NoJob", "NoJobState", "Vet"]

T = TypeVar("T")

Vet: TypeAlias = "Callable[[Attempt, float], str | None]"
"""Returns why a pending attempt may not be sent at all at an event loop time; None if it may."""


class NoDeaths:
    """No record of running user code."""

    def leave(self, attempt: Attempt) -> None:
        """Record that the code of a page does not run any more. A second call does nothing."""

    def dropped(self, host: str) -> None:
        """Forget the deaths of the pages of a host, because its pages were removed."""

    def around(self, send: Fetch) -> Fetch:
        """Return a fetch that calls ``send``, during which the middleware around it does not run."""
        return send

    def next_of_start(self, started: AsyncIterator[T]) -> Awaitable[T]:
        """Return the next output of ``start()``, and record that it runs."""
        return anext(started)


class EndlessLease:
    """The lease of a process that owns its pending requests without a time limit."""

    until: float = math.inf  # event loop time, in seconds, at which it may end

    def why(self, now: float) -> str:
        """Return why requests wait for the lease: they never do."""
        return ""


@attrs.frozen(kw_only=True)
class NoJob:
    """No job: the crawl ends with its process."""

    is_durable: bool = False  # True if pending requests outlive the process
    keeps_given_up: bool = False  # True if requests of hosts that are given up stay for the next run
    resume_words: str = "crawl.pause(is_paused=False)"
    line: SharedScopeClient | None = None  # the scopes shared by the job's processes; None: the job is not in a server
    session: JobSession | None = None  # this process's session; None: no other process can work on the job
    deaths: NoDeaths = attrs.field(factory=NoDeaths)
    lease: SessionLease | EndlessLease = attrs.field(factory=EndlessLease)
    storing: Collection[Request] = ()  # requests that a step ends or replaces; the step is not stored yet
    writers: Sequence[Writer] = ()  # the tasks that write the job's items

    @property
    def is_shared(self) -> bool:
        """True if other processes can work on the job."""
        return self.session is not None

    def watchers(self, *, is_simulated: bool) -> list[Watcher]:
        """Return the tasks that communicate with observers of the job."""
        return []

    def share(self, limits: CrawlLimits) -> None:
        """Let the limits of the crawl hold for all processes of the job."""

    def other_owner(self, host: str) -> str:
        """Return the process that sends to a host; "" if it is this one."""
        return ""

    def step_words(self, now: float) -> str:
        """Return the durations of the job's steps in words."""
        return ""

    def wire(self, transport: Transport) -> Transport:
        """Return a transport that sends only while the job belongs to this process."""
        return transport

    def make_state(self, context: CrawlContext, throttle: Throttle) -> NoJobState:
        """Make the object that stores the crawl's state in the job."""
        return NoJobState()

    def make_items(self, context: CrawlContext, processor: Processor, limit: ItemLimit) -> ItemSender | JobItems:
        """Make the object that takes the items of callbacks."""
        output, stats, events = context.output, context.stats, context.events
        return ItemSender(processor, context.spider, output.receivers, output.collected, stats, limit, events=events)

    def worker_class(self, plain: type[Worker]) -> Callable[..., Worker]:
        """Return the class of the worker: ``plain``."""
        return plain

    def vet(self, refusal: Vet) -> Vet:
        """Return a function that says why an attempt may not be sent at all: ``refusal``."""
        return refusal

    def make_follower(self, engine: Engine, admission: Admission, prefetcher: Prefetcher) -> Alone:
        """Make the object that follows the other processes of the job."""
        return Alone(engine.context.state)


class _NoRobots(RobotsCache):
    """Stores no robots.txt response."""

    def store(self, origin: str, status: int, body: bytes, expires_at: float) -> None:
        """Store nothing."""


class NoJobState:
    """The state of a crawl without a job, which is not stored."""

    def __init__(self) -> None:
        self.robots: RobotsCache = _NoRobots()
        self._started_at = trio.current_time()

    @property
    def elapsed(self) -> float:
        """Seconds that all runs of the crawl have taken together."""
        return trio.current_time() - self._started_at

    @property
    def is_over(self) -> bool:
        """True if ``start()`` finished in an earlier run."""
        return False

    def restore(self) -> None:
        """Restore the state that the last run stored."""

    def begin(self, nursery: trio.Nursery) -> None:
        """Start the task that stores the state during the crawl."""

    def has_backed_off(self) -> None:
        """Store the state soon, because a scope has backed off."""

    async def end(self, items: Callable[[], Sequence[bytes]]) -> None:
        """Record that ``start()`` has finished, with its last items."""

    def last_word(self, reason: str) -> None:
        """Store everything as it is at the end."""


class Alone:
    """The only process of a crawl."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def is_alone(self) -> bool:
        """True if no other process is known to work on the job now."""
        return True

    @property
    def leads(self) -> bool:
        """True if this process sends nothing itself, because it leads the processes that do."""
        return False

    def begin(self, nursery: trio.Nursery, read_start: Callable[[], None]) -> None:
        """Start ``read_start``, here or in another process, and follow the other processes."""
        self._state.reading_began()
        read_start()

    def look(self) -> None:
        """If nothing is open here, check whether the job is finished."""

    def hold(self) -> None:
        """Keep the crawl running until the job is finished."""

    def stop(self) -> None:
        """Stop following the other processes, because the crawl ends."""

    async def others_left(self) -> None:
        """If this process leads the others, wait until they have left the job, so that their last items are stored."""
