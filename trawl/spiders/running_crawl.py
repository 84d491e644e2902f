"""Protocols of the running crawl as a spider sees it, so that spiders do not depend on the engine."""

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
        """Give a scope new limits (``concurrency``, ``delay``, ...), effective at once."""
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
        """Runs blocking work in a thread (a simulation: inline): ``await crawl.blocking.run(function, argument)``."""
        ...

    @property
    def throttling(self) -> ThrottlingControl:
        """Changes limits while the crawl runs."""
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
        """True if no request is pending, on the wire or in its callback: only ``start()`` may go on."""
        ...

    async def until_idle(self) -> None:
        """Wait in ``start()`` until no request is pending, on the wire or in its callback."""
        ...

    def why(self, subject: Request | str) -> Reason | None:
        """Return the reason why a pending request, or a scope (by id), waits; None if it does not."""
        ...

    def waiting(self, most: int = 5) -> Sequence[Any]:
        """Group pending requests by what they wait on, largest first: ``count``, ``scope`` and ``reason`` of each."""
        ...

    def report(self) -> Sequence[ScopeReport]:
        """Return a report of each scope and of what limited it, the busiest first."""
        ...

    @overload
    def events(self, *, most: int = ...) -> EventStream[Event]: ...

    @overload
    def events(self, *kinds: type[EventT], most: int = ...) -> EventStream[EventT]: ...

    def events(self, *kinds: type[Event], most: int = ...) -> EventStream[Any]:
        """Return the events from now on (:mod:`trawl.events`) as a context manager and an async iterator."""
        ...

    async def fetch(self, request: Request) -> Response:
        """Send a request through the throttle and return its response. A checkpoint."""
        ...

    def session(self, name: str, **options: Any) -> Session:
        """Return the session of this name; ``options`` are ``proxy``, ``headers`` and ``throttling``."""
        ...

    async def address_of(self, host: str) -> str | None:
        """Return the IP address that requests to a host go to, or None."""
        ...

    def shutdown(self, reason: str = "shutdown") -> None:
        """Send nothing new, let requests in flight finish, and end with ``reason``."""
        ...
