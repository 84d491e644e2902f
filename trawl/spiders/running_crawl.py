"""What a spider sees of its running crawl: protocols, so that this floor needs nothing of the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, overload

from trawl.blocking import Blocking
from trawl.events import Event, EventStream, EventT
from trawl.http import Request, Response
from trawl.middleware import Session
from trawl.observe import Stats
from trawl.throttling import Reason, ScopeReport

__all__ = ["RunningCrawl", "ThrottlingControl"]


class ThrottlingControl(Protocol):
    """Changes limits while the crawl runs."""

    def set(self, scope: str, **limits: Any) -> None:
        """Give a scope new limits (``concurrency``, ``delay``, ...); whoever waits notices at once."""
        ...


class RunningCrawl(Protocol):
    """The crawl that a spider runs in: ``spider.crawl``."""

    @property
    def stats(self) -> Stats:
        """The crawl's statistics."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """The crawl's settings by their upper-case names."""
        ...

    @property
    def blocking(self) -> Blocking:
        """Does what blocks: ``await crawl.blocking.run(function, argument)``, in a thread; simulations do it inline."""
        ...

    @property
    def throttling(self) -> ThrottlingControl:
        """Limits, to be changed while the crawl runs."""
        ...

    @property
    def elapsed(self) -> float:
        """Seconds since the crawl began."""
        ...

    @property
    def queued(self) -> int:
        """Admitted requests that have not been sent or are waiting to be sent again."""
        ...

    @property
    def in_flight(self) -> int:
        """Requests on the wire now."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether no request is pending, on the wire or in its callback: only ``start()`` may go on."""
        ...

    async def until_idle(self) -> None:
        """Return when no request is pending, on the wire or in its callback: for ``start()``."""
        ...

    def why(self, subject: Request | str) -> Reason | None:
        """Why a pending request, or a scope (by its id), waits; None when nothing holds it up."""
        ...

    def waiting(self, most: int = 5) -> Sequence[Any]:
        """What pending requests wait on, the largest groups first: each with ``count``, ``scope`` and ``reason``."""
        ...

    def report(self) -> Sequence[ScopeReport]:
        """What each scope did and what limited it, the busiest first."""
        ...

    @overload
    def events(self, *, most: int = ...) -> EventStream[Event]: ...

    @overload
    def events(self, *kinds: type[EventT], most: int = ...) -> EventStream[EventT]: ...

    def events(self, *kinds: type[Event], most: int = ...) -> EventStream[Any]:
        """What happens from now on, as values of :mod:`trawl.events`: a context manager and an async iterator."""
        ...

    async def fetch(self, request: Request) -> Response:
        """Send a request through the throttle and wait for its response."""
        ...

    def session(self, name: str, **options: Any) -> Session:
        """The session of this name; ``options`` are ``proxy``, ``headers`` and ``throttling``."""
        ...

    async def address_of(self, host: str) -> str | None:
        """The address that requests to a host go to, as text; None where it has none."""
        ...

    def shutdown(self, reason: str = "shutdown") -> None:
        """Send nothing new, let what is in flight end, and finish with ``reason``."""
        ...
