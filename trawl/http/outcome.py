"""The result of one request as data: the response or error, the times, and the next step requested by a middleware.

A failure of the network is an :class:`Outcome` with an error, never an exception. The engine executes the next step
(:class:`Replace`, :class:`Drop`) after the slots are released.

:class:`Times` has the seconds between these times. Its five parts are adjacent and add up to the whole duration::

    found    first in its lane                         granted       sent          body read      callback over
      │  queued   │       throttled, queued, ...          │ connecting │   fetching   │    parsing     │
      └───────────┴───────────────────────────────────────┴────────────┴──────────────┴────────────────┘

A scope is checked only when there is a place for the request. So if the first request of a lane arrives while no place
is free, the time until a place is free counts as queued, even if the scope is closed. If a request overtakes earlier
requests because of its priority, its throttled time is the time, since its own arrival, for which its lane was
throttled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import attrs
import msgspec

if TYPE_CHECKING:
    from trawl.errors import DownloadError, IgnoreRequest
    from trawl.http.request import Request
    from trawl.http.response import Response

__all__ = ["SAFE_METHODS", "Drop", "Fetch", "Middleware", "Outcome", "Replace", "Times", "TimesTotal"]

SAFE_METHODS: frozenset[str] = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""The methods that request no change on the server, so that a request may be sent again (RFC 9110, 9.2.1)."""


@attrs.frozen
class Replace:
    """Another request replaces this one in the frontier, in one atomic step.

    The new request is charged to its own scopes and obeys the robots.txt of its own origin. It has the depth of the old
    request.

    Attributes:
        request: The request to send next (a redirect's target, or the same request again).
        delay: Seconds before the request may be sent. Other requests do not wait for it.
        reason: The reason, which is also the name under which the step is counted: ``"redirect"``, ``"retry"``,
            ``"backoff"``, ``"deferred"``, ``"diverted"``.
        is_new_target: Whether the request is for another page (a redirect's target) instead of another attempt for the
            same page. A request for another page is dropped if it was seen before, or if ``allowed_domains`` or a limit
            would drop a link to it.
    """

    request: Request
    delay: float = 0.0
    reason: str = "retry"
    is_new_target: bool = False


@attrs.frozen
class Drop:
    """The request ends without a callback. This end is expected, and is counted under ``reason``.

    Attributes:
        reason: The statistic that counts the dropped request.
        failure: The reason for which a job lists the request as failed; None if the job does not list the request.
    """

    reason: str
    failure: str | None = None


@attrs.define
class Outcome:
    """The result of sending a request once. All times are event loop times in seconds.

    User code may return a response or fail, so that nothing is sent. Such an outcome counts as sent at the time at
    which the request entered the middleware.

    Attributes:
        request: The request as it was sent, including changes by middleware.
        response: The complete response; None if there is none.
        error: The reason why there is no response; None if there is a response.
        started_at: Start of connecting, or of the send on a reused connection.
        sent_at: Time of the send; None if the request was not sent.
        first_byte_at: Time at which the headers were read; None if no headers were read.
        ended_at: Time at which the body was read or the error occurred.
        is_cached: Whether the response came from a cache, so that no request was sent.
        is_heard: Whether the throttle has processed this outcome. Set by the engine.
        is_trigger: Whether the server has asked the crawl to slow down, so that the request is sent again, whatever the
            status code is. Set by the throttle.
        is_excused: Whether the outcome is a trigger that does not count as a retry (a 429, an outage). Set by the
            throttle.
        is_hopeless: Whether the request is not sent again, because it repeatedly gets the same trigger while its host
            serves other requests. Set by the throttle.
        pause: Minimum number of seconds before a request with a trigger is sent again. It only matters if no scope
            delays the request. Set by the throttle.
        then: The next step requested by a middleware; None if the callback (or errback) gets the outcome.
        received: Headers and body of the response as received, for an archive, even if an error ended the response
            early; None without an archive, or if the transport can't provide them. The body is None if it was written
            to a file.
        size: Bytes of the response as received, headers and body before decompression, even if an error ended it. If
            the transport does not count them, the bytes of the body.
    """

    request: Request
    response: Response | None = None
    error: DownloadError | IgnoreRequest | None = None
    started_at: float = 0.0
    sent_at: float | None = None
    first_byte_at: float | None = None
    ended_at: float = 0.0
    is_cached: bool = False
    is_heard: bool = False
    is_trigger: bool = False
    is_excused: bool = False
    is_hopeless: bool = False
    pause: float = 0.0
    then: Replace | Drop | None = None
    received: tuple[bytes, bytes | None] | None = None
    size: int = 0

    @property
    def is_deferred(self) -> bool:
        """True if the request was not sent because it was too early, and waits for another grant."""
        return self.sent_at is None and self.response is None and self.error is None

    @property
    def latency(self) -> float | None:
        """Seconds from the start of connecting to the headers; None if no headers were read."""
        return None if self.first_byte_at is None else self.first_byte_at - self.started_at


Fetch = Callable[["Request"], Awaitable[Outcome]]
"""Sends a request once and returns its outcome. Failures of the network are outcomes, not exceptions."""

Middleware = Callable[[Fetch], Fetch]
"""Takes the next layer's fetch, and returns a fetch that does its work before, after or instead of calling the next."""


class Times(msgspec.Struct, frozen=True, gc=False):
    """The parts of the duration of one send, in seconds. Each retry and each redirect is another send.

    Attributes:
        queued: Seconds of waiting for other requests, or for a place among ``CONCURRENT_REQUESTS``.
        throttled: Seconds as the head of its lane, waiting for a scope, for robots.txt or for its own delay. If several
            lanes wait for one scope with a quota, this includes the time while the scope is open for another lane.
        connecting: Seconds from the grant to the send, for name lookup, connecting, TLS and middleware that waits. 0.0
            on an open connection.
        fetching: Seconds from the send to the last byte of the body, or to the error.
        parsing: Seconds from the end of ``fetching`` to the end of the callback, including the time in which the
            callback waits for direct fetches, pipelines and slow feeds. 0.0 until the callback has ended.
    """

    queued: float = 0.0
    throttled: float = 0.0
    connecting: float = 0.0
    fetching: float = 0.0
    parsing: float = 0.0

    @property
    def total(self) -> float:
        """The sum of the parts, in seconds."""
        return self.queued + self.throttled + self.connecting + self.fetching + self.parsing

    def parsed(self, seconds: float) -> Times:
        """Return these times with the duration of the callback, in seconds."""
        return Times(self.queued, self.throttled, self.connecting, self.fetching, seconds)


@attrs.define(eq=False)
class TimesTotal:
    """The sums of the :class:`Times` of many requests. Mutable and slotted, for speed.

    Attributes:
        sends: The number of requests.
    """

    sends: int = 0
    queued: float = 0.0
    throttled: float = 0.0
    connecting: float = 0.0
    fetching: float = 0.0
    parsing: float = 0.0

    def add(self, times: Times) -> None:
        """Add a request whose body has been read. The duration of its callback is added to :attr:`parsing` later."""
        self.sends += 1
        self.queued += times.queued
        self.throttled += times.throttled
        self.connecting += times.connecting
        self.fetching += times.fetching

    def mean(self) -> Times:
        """Return the mean times of a request. Without requests, they are all 0.0."""
        sends = self.sends or 1
        parts = (self.queued, self.throttled, self.connecting, self.fetching, self.parsing)
        return Times(*[seconds / sends for seconds in parts])
