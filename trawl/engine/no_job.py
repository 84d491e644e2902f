"""A crawl without a job: what the engine asks of a job, with nothing stored and no other process.

The classes of :mod:`trawl.engine.job` and :mod:`trawl.engine.shared_job` derive from these. A crawl without a job loads
neither of the two modules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeAlias

import attrs
import trio

from trawl.engine.items import ItemSender

if TYPE_CHECKING:
    from trawl.engine.admission import Admission
    from trawl.engine.context import CrawlContext
    from trawl.engine.engine import Engine
    from trawl.engine.items import Processor, Writer
    from trawl.engine.job_items import JobItems
    from trawl.engine.limits import ItemLimit
    from trawl.engine.state import State
    from trawl.engine.worker import Worker
    from trawl.frontier.job import SessionLease
    from trawl.frontier.redis.sessions import JobSession
    from trawl.http import Request
    from trawl.robots import RobotsCache
    from trawl.scheduler import Grant, Prefetcher
    from trawl.throttling import Throttle
    from trawl.throttling.shared import Line
    from trawl.transport import Transport

__all__ = ["Alone", "NoJob", "NoJobState", "Vet"]

Vet: TypeAlias = "Callable[[Grant, float], str | None]"
"""Returns why a pending grant may not be sent at all at an event loop time; None if it may."""


@attrs.frozen(kw_only=True)
class NoJob:
    """No job: the crawl ends with its process.

    Attributes:
        is_durable: Pending requests outlive the process.
        keeps_given_up: Requests of hosts that are given up stay for the next run.
        line: The scopes that the job's processes share; None: it is in no server.
        session: This process's session of the job; None: no other process can work on it.
        lease: The time for which the job belongs to this process; None: there is no limit.
    """

    is_durable: bool = False
    keeps_given_up: bool = False
    line: Line | None = None
    session: JobSession | None = None
    lease: SessionLease | None = None

    @property
    def storing(self) -> Collection[Request]:
        """Requests that have ended or are replaced by a step that is not stored yet."""
        return ()

    def step_words(self, now: float) -> str:
        """Return the durations of the job's steps in words."""
        return ""

    @property
    def writers(self) -> Sequence[Writer]:
        """The tasks that move the job's items on."""
        return ()

    def wire(self, transport: Transport) -> Transport:
        """Return a transport that sends only while the job belongs to this process."""
        return transport

    def make_state(self, context: CrawlContext, throttle: Throttle) -> NoJobState:
        """Make what the crawl keeps in its job."""
        return NoJobState()

    def make_items(self, context: CrawlContext, processor: Processor, limit: ItemLimit | None) -> ItemSender | JobItems:
        """Make what takes the items of callbacks."""
        receivers, events = context.receivers, context.events
        return ItemSender(processor, context.spider, receivers, context.collected, context.stats, limit, events=events)

    def worker_class(self, plain: type[Worker]) -> Callable[..., Worker]:
        """Return the class of the worker: ``plain``."""
        return plain

    def vet(self, refusal: Vet) -> Vet:
        """Return a function that says why a grant may not be sent at all: ``refusal``."""
        return refusal

    def make_follower(self, engine: Engine, admission: Admission, prefetcher: Prefetcher) -> Alone:
        """Make what follows the other processes of the job."""
        return Alone(engine.context.state)


class NoJobState:
    """Nothing is kept of the crawl."""

    def __init__(self) -> None:
        self._started_at = trio.current_time()

    @property
    def robots(self) -> RobotsCache | None:
        """The stored responses to requests for robots.txt; None: none are stored."""
        return None

    @property
    def elapsed(self) -> float:
        """Seconds that all runs of the crawl have taken together."""
        return trio.current_time() - self._started_at

    @property
    def is_over(self) -> bool:
        """True if ``start()`` finished in an earlier run."""
        return False

    def restore(self) -> None:
        """Continue from what the last run kept."""

    def begin(self, nursery: trio.Nursery) -> None:
        """Start what stores the state during the crawl."""

    def has_backed_off(self) -> None:
        """Store soon what was learned: a scope has backed off."""

    async def end(self, items: Callable[[], Sequence[bytes]]) -> None:
        """Note that ``start()`` has finished, with its last items."""

    def last_word(self, reason: str) -> None:
        """Keep everything as it is at the end."""


class Alone:
    """This process has the crawl to itself."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def is_alone(self) -> bool:
        """True if no other process works on the job now, as far as is known."""
        return True

    def begin(self, nursery: trio.Nursery, read_start: Callable[[], None]) -> None:
        """Have ``start()`` read by ``read_start``, here or in another process, and follow what the others do."""
        self._state.reading_began()
        read_start()

    def look(self) -> None:
        """Ask whether the job is over if nothing is open here."""

    def hold(self) -> None:
        """Keep the crawl from ending until the job is over."""

    def stop(self) -> None:
        """Follow nothing any more: the crawl ends."""
