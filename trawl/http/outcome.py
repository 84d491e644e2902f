"""What became of one request on the wire, as data.

A transport never raises for what the network does: it returns an :class:`Outcome` that carries a response or an error,
and the instants that throttling, AutoThrottle and statistics count from. Middleware may add what should happen next
(:class:`Replace`, :class:`Drop`); the engine acts on it after the places are given back.

What the methods of requests mean (RFC 9110, 9).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from trawl.errors import DownloadError, IgnoreRequest
    from trawl.http.request import Request
    from trawl.http.response import Response

__all__ = ["SAFE_METHODS", "Drop", "Fetch", "Middleware", "Outcome", "Replace"]

SAFE_METHODS: frozenset[str] = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""The methods that ask for nothing to change: sent once more, they do no harm (RFC 9110, 9.2.1)."""


@attrs.frozen
class Replace:
    """The request is not done: this one takes its place in the frontier, in one atomic step.

    It is charged to its own scopes and obeys the robots.txt of its own origin, whatever the request before it had, and
    keeps its depth.

    Attributes:
        request: What is to be sent next (a redirect's target, or the same request again).
        delay: Not before this many seconds from now; holds up nobody else.
        reason: Why, as counted: ``"redirect"``, ``"retry"``, ``"backoff"``, ``"held"``, ``"diverted"``.
        is_new_target: Whether it is another page (a redirect's target) and no other try of the same one: it is looked
            up among the seen requests, and dropped where ``allowed_domains`` or a limit would drop a link to it.
    """

    request: Request
    delay: float = 0.0
    reason: str = "retry"
    is_new_target: bool = False


@attrs.frozen
class Drop:
    """The request ends here without a callback; an expected end, counted under its reason."""

    reason: str


@attrs.define
class Outcome:
    """What became of one send. All instants are seconds on the run's clock.

    Attributes:
        request: The request as it was sent, middleware's changes included.
        response: The whole response, or None.
        error: Why there is no response, or None.
        started_at: When connecting began (on a reused connection: the send).
        sent_at: When the request went to the wire; None if it never did.
        first_byte_at: When the headers had been read; None if they never were.
        ended_at: When the body had been read, or the error came.
        is_cached: Served from a cache: nothing was sent.
        is_trigger: It said "slow down", and so is to be sent again, whatever its status: set by the throttle.
        is_excused: A trigger that does not count as a retry (a 429, an outage): set by the throttle.
        is_hopeless: A trigger that comes again and again for this request alone, while its host serves others, so that
            it is not sent again: set by the throttle.
        pause: Seconds after which a trigger may be sent again at the earliest, where no scope holds it back: set by
            the throttle.
        then: What a middleware wants to happen next; None: the callback (or errback) gets it.
    """

    request: Request
    response: Response | None = None
    error: DownloadError | IgnoreRequest | None = None
    started_at: float = 0.0
    sent_at: float | None = None
    first_byte_at: float | None = None
    ended_at: float = 0.0
    is_cached: bool = False
    is_trigger: bool = False
    is_excused: bool = False
    is_hopeless: bool = False
    pause: float = 0.0
    then: Replace | Drop | None = None

    @property
    def latency(self) -> float | None:
        """Seconds from the start of connecting to the headers; None without them."""
        return None if self.first_byte_at is None else self.first_byte_at - self.started_at


Fetch = Callable[["Request"], Awaitable[Outcome]]
"""Sends one request, once, and tells what became of it. Raises nothing that the network can cause."""

Middleware = Callable[[Fetch], Fetch]
"""Takes the way on and returns a way that does something before, after or in place of it."""
