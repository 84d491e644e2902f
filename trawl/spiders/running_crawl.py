"""The interface of the running crawl for spiders: the part of :class:`trawl.engine.Crawl` that spiders may use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, overload

import attrs

from trawl.middleware import MiddlewareCrawl
from trawl.throttling import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    import trio

    from trawl.browser import BrowserPage
    from trawl.events import Event, EventStream, EventT
    from trawl.http import Request, Response
    from trawl.middleware import Session
    from trawl.observe import CrawlStatus
    from trawl.throttling import ScopeReport

__all__ = ["LimitSetter", "RunningCrawl", "Waiting"]


@attrs.frozen
class Waiting:
    """Pending requests that wait for the same limit.

    Attributes:
        count: Number of requests.
        reason: The limit for which the requests wait, until when, and the source of the limit.
    """

    count: int
    reason: Reason

    @property
    def scope(self) -> str:
        """The scope to which the limit belongs."""
        return self.reason.scope


class LimitSetter(Protocol):
    """Changes limits while the crawl runs."""

    def set(self, scope: str, /, **limits: Any) -> None:
        """Set new limits of a scope. See :meth:`trawl.engine.crawl.ThrottlingHandle.set`."""


class RunningCrawl(MiddlewareCrawl, Protocol):
    """A running crawl. :class:`trawl.engine.Crawl` has the full description of the methods."""

    @property
    def throttling(self) -> LimitSetter:
        """Object that changes limits while the crawl runs."""

    @property
    def cancel_scope(self) -> trio.CancelScope:
        """The cancel scope around all requests of the crawl."""

    @property
    def started_at(self) -> float:
        """Event loop time, in seconds, at which the crawl started."""

    @property
    def elapsed(self) -> float:
        """Seconds since the crawl started."""

    @property
    def queued(self) -> int:
        """Number of admitted requests that were not sent yet."""

    @property
    def in_flight(self) -> int:
        """Number of requests in flight."""

    @property
    def callbacks(self) -> int:
        """Number of running callbacks."""

    @property
    def is_idle(self) -> bool:
        """True if no request is pending, in flight or in its callback."""

    @property
    def reason(self) -> str | None:
        """The reason for which the crawl is ending; None if it is not ending."""

    async def until_idle(self) -> None:
        """Return when :attr:`is_idle` is True. For use in ``start()``. A checkpoint."""

    async def until_ending(self) -> None:
        """Return when the crawl starts to end. A checkpoint."""

    def why(self, subject: Request | str) -> Reason | None:
        """Return the reason why a request, a scope or a host must wait; None if it need not wait."""

    def waiting(self, most: int = 5) -> Sequence[Waiting]:
        """Return the limits for which pending requests wait, at most ``most`` groups, the largest first."""

    def status(self) -> CrawlStatus:
        """Return the latest status: figures, rates, waiting requests, errors and the estimated end."""

    def report(self) -> Sequence[ScopeReport]:
        """Return a report for each scope, with its requests and the limits that delayed them."""

    @overload
    def events(self, *, most: int = ...) -> EventStream[Event]: ...

    @overload
    def events(self, *kinds: type[EventT], most: int = ...) -> EventStream[EventT]: ...

    async def render(self, response: Response, **options: Any) -> Response:
        """Render a response in a browser, and return the rendered page. A checkpoint."""

    def open_page(self, response: Response, *, session: str | None = None) -> AbstractAsyncContextManager[BrowserPage]:
        """Open a response in a browser, and keep the page open while the block runs."""

    async def add(self, requests: Request | Iterable[Request]) -> None:
        """Add requests to the crawl from outside of callbacks. A checkpoint."""

    def stay_open(self) -> AbstractContextManager[None]:
        """Keep the crawl from ending while the block runs."""

    def session(self, name: str, *, throttling: Mapping[str, Any] | None = None, **options: Any) -> Session:
        """Return the session with this name, which is created if needed."""

    async def address_of(self, host: str) -> str | None:
        """Return the address of a host, to which requests are sent; None if the host has no address. A checkpoint."""

    def pause(self, *, is_paused: bool = True) -> None:
        """Stop sending new requests; with ``is_paused=False``, resume sending."""

    def shutdown(self, reason: str = "shutdown") -> None:
        """Send no new requests, finish the requests in flight, and end the crawl."""

    def cancel(self, reason: str = "cancelled") -> None:
        """End the crawl immediately and cancel the requests in flight."""

    def when_cancelled(self, hook: Callable[[], None]) -> None:
        """Call ``hook`` when the crawl is cancelled."""
