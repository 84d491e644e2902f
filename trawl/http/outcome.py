"""The result of one request as data: the response or error, the instants, and what a middleware wants next.

A transport never raises for a failure of the network: it returns an :class:`Outcome` with a response or an error, and
the instants that throttling, AutoThrottle and statistics count from. Middleware may add what should happen next
(:class:`Replace`, :class:`Drop`); the engine acts on it after the slots are given back.

:class:`Times` is the time between those instants (C12). Its five parts touch each other and add up to all the time::

    found    first in its lane                         granted       sent          body read      callback over
      │  queued   │       throttled, queued, ...          │ connecting │   fetching   │    parsing     │
      └───────────┴───────────────────────────────────────┴────────────┴──────────────┴────────────────┘

*Throttled* is the time during which the request was the first in its lane and a free place would not have helped it:
the scope that it waited for was closed (delay, quota, backoff, hint, or its concurrency taken), robots.txt of its
origin was not read yet, or it had a delay of its own (meta ``delay``, a retry). *Queued* is the rest of the wait: other
requests of its lane were before it, or another lane had its turn, or all places were taken. So the queued time is time
that other requests took; the other four parts are the request's own.

Limits of this: a scope is asked if it is closed only when there is a place for the request. A lane whose first request
came while all places were taken is queued until one is free, and only then throttled. Of several lanes that wait for
one scope with a quota all are throttled, also while it would let another of them through. A request that comes last and
goes first, by its priority, has the time that its lane was held meanwhile, as far as it was there.
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
"""The methods that ask for no change: sending them again does no harm (RFC 9110, 9.2.1)."""


@attrs.frozen
class Replace:
    """Another request takes the place of this one in the frontier, in one atomic step.

    It is charged to its own scopes and obeys the robots.txt of its own origin, whatever the first request had, and
    keeps the depth.

    Attributes:
        request: The request to send next (a redirect's target, or the same request again).
        delay: Seconds before it may be sent; other requests do not wait for it.
        reason: The reason, as counted: ``"redirect"``, ``"retry"``, ``"backoff"``, ``"held"``, ``"diverted"``.
        is_new_target: It is another page (a redirect's target), not another try of the same one: it is looked up among
            the seen requests, and dropped if ``allowed_domains`` or a limit would drop a link to it.
    """

    request: Request
    delay: float = 0.0
    reason: str = "retry"
    is_new_target: bool = False


@attrs.frozen
class Drop:
    """The request ends without a callback: an expected end, counted under its reason."""

    reason: str


@attrs.define
class Outcome:
    """The result of sending a request once. All instants are seconds on the run clock.

    User code may respond instead of the wire, or fail: such an outcome counts as a send at the instant at which its
    request entered the middleware.

    Attributes:
        request: The request as it was sent, middleware's changes included.
        response: The whole response, or None.
        error: The reason for the lack of a response, or None.
        started_at: Start of connecting (on a reused connection: of the send).
        sent_at: The request went to the wire; None if it never did.
        first_byte_at: The headers had been read; None if they never were.
        ended_at: The body had been read, or the error came.
        is_cached: Served from a cache: nothing was sent.
        is_heard: The throttle has heard of it: set by the engine.
        is_trigger: The answer said "slow down", so the request is sent again, whatever the status: set by the throttle.
        is_excused: A trigger that does not count as a retry (a 429, an outage): set by the throttle.
        is_hopeless: A trigger that comes again and again for this request alone, while its host serves others, so that
            it is not sent again: set by the throttle.
        pause: Minimum seconds before a trigger is sent again, if no scope holds it back: set by the throttle.
        then: A middleware's wish for what happens next; None: the callback (or errback) gets the outcome.
        received: Head and body of the response as they came, for an archive; the body is None if it went to a file.
            None: the crawl keeps no archive, or the transport can't tell.
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

    @property
    def is_held(self) -> bool:
        """True if it was not sent and has not failed: it was too early, and it waits for another grant."""
        return self.sent_at is None and self.response is None and self.error is None

    @property
    def latency(self) -> float | None:
        """Seconds from the start of connecting to the headers; None without them."""
        return None if self.first_byte_at is None else self.first_byte_at - self.started_at


Fetch = Callable[["Request"], Awaitable[Outcome]]
"""Sends a request once and returns its outcome. Failures of the network are outcomes, not exceptions."""

Middleware = Callable[[Fetch], Fetch]
"""Takes the next fetch and returns a fetch that does something before, after or instead of it."""


class Times(msgspec.Struct, frozen=True, gc=False):
    """The parts of the time of one request, in seconds; of one send: a retry or a redirect has its own.

    Attributes:
        queued: Waiting behind other requests, or for a place among ``CONCURRENT_REQUESTS``.
        throttled: First in its lane, and held by a scope, by robots.txt or by a delay of its own. If several lanes wait
            for one scope with a quota, also while that is open for another of them.
        connecting: From its grant to the wire: name lookup, connecting, TLS, middleware that waits. 0.0 on an open
            connection.
        fetching: From the wire to the last byte of the body, or to the error.
        parsing: From there to the end of the callback, with its waits: direct fetches, pipelines, feeds that are
            behind. 0.0 until the callback has ended.
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
        """Return these times, with the callback over after ``seconds``."""
        return Times(self.queued, self.throttled, self.connecting, self.fetching, seconds)


class TimesTotal:
    """The sums of the :class:`Times` of many requests. Hot, so mutable and slotted.

    Attributes:
        sends: The number of requests.
    """

    __slots__ = ("connecting", "fetching", "parsing", "queued", "sends", "throttled")

    def __init__(self) -> None:
        self.sends: int = 0
        self.queued: float = 0.0
        self.throttled: float = 0.0
        self.connecting: float = 0.0
        self.fetching: float = 0.0
        self.parsing: float = 0.0

    def add(self, times: Times) -> None:
        """Add a request whose body has been read; the time of its callback is added to :attr:`parsing` later."""
        self.sends += 1
        self.queued += times.queued
        self.throttled += times.throttled
        self.connecting += times.connecting
        self.fetching += times.fetching

    def mean(self) -> Times:
        """Return the mean times of a request; all 0.0 without requests."""
        sends = self.sends or 1
        parts = (self.queued, self.throttled, self.connecting, self.fetching, self.parsing)
        return Times(*[seconds / sends for seconds in parts])
