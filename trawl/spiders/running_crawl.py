"""The running crawl, as a spider sees it: the part of :class:`trawl.engine.Crawl` that spiders may use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, overload

import attrs

from trawl.middleware import MiddlewareCrawl
from trawl.throttling import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    import trio

    from trawl.events import Event, EventStream, EventT
    from trawl.http import Request
    from trawl.middleware import Session
    from trawl.throttling import ScopeReport

__all__ = ["LimitSetter", "RunningCrawl", "Waiting"]


@attrs.frozen
class Waiting:
    """Requests that wait on the same thing.

    Attributes:
        count: How many.
        reason: On what, until when, and where that comes from.
    """

    count: int
    reason: Reason

    @property
    def scope(self) -> str:
        """The scope whose limit it is."""
        return self.reason.scope


class LimitSetter(Protocol):
    """Changes limits while the crawl runs."""

    def set(self, scope: str, **limits: Any) -> None:
        """Give a scope new limits: see :meth:`trawl.engine.crawl.ThrottlingHandle.set`."""


class RunningCrawl(MiddlewareCrawl, Protocol):
    """A crawl while it runs. The methods are described at :class:`trawl.engine.Crawl`."""

    @property
    def throttling(self) -> LimitSetter:
        """Limits, to be changed while the crawl runs."""

    @property
    def cancel_scope(self) -> trio.CancelScope:
        """Around everything that is sent."""

    @property
    def started_at(self) -> float:
        """When it started, on the run clock, in seconds."""

    @property
    def elapsed(self) -> float:
        """Seconds since the crawl started."""

    @property
    def queued(self) -> int:
        """Admitted requests that have not been sent."""

    @property
    def in_flight(self) -> int:
        """Requests on the wire now."""

    @property
    def callbacks(self) -> int:
        """Callbacks that run now."""

    @property
    def is_idle(self) -> bool:
        """True if nothing is pending, on the wire or in its callback."""

    @property
    def reason(self) -> str | None:
        """The reason for which the crawl is ending; None while it is not."""

    async def until_idle(self) -> None:
        """Return when :attr:`is_idle` holds, for ``start()``. A checkpoint."""

    async def until_ending(self) -> None:
        """Return when the crawl is ending. A checkpoint."""

    def why(self, subject: Request | str) -> Reason | None:
        """Explain the wait of a request, a scope or a host."""

    def waiting(self, most: int = 5) -> Sequence[Waiting]:
        """Return the limits that pending requests wait on, the largest groups first."""

    def report(self) -> Sequence[ScopeReport]:
        """Report for each scope its requests and what limited them."""

    @overload
    def events(self, *, most: int = ...) -> EventStream[Event]: ...

    @overload
    def events(self, *kinds: type[EventT], most: int = ...) -> EventStream[EventT]: ...

    async def add(self, requests: Request | Iterable[Request]) -> None:
        """Put requests into the crawl from outside. A checkpoint."""

    def stay_open(self) -> AbstractContextManager[None]:
        """Keep the crawl from ending while the block runs."""

    def session(self, name: str, *, throttling: Mapping[str, Any] | None = None, **options: Any) -> Session:
        """Return the session of this name, made if it is missing."""

    async def address_of(self, host: str) -> str | None:
        """Return the address that requests to a host go to; None: it has none. A checkpoint."""

    def pause(self, *, is_paused: bool = True) -> None:
        """Send nothing new until the crawl is continued."""

    def shutdown(self, reason: str = "shutdown") -> None:
        """Send nothing new, let what is in flight finish, and end."""

    def cancel(self, reason: str = "cancelled") -> None:
        """End at once."""

    def when_cancelled(self, hook: Callable[[], None]) -> None:
        """Call ``hook`` when the crawl is cancelled."""
