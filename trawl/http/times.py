"""Where the time of a request went, from the moment it was found to the end of its callback (C12).

Theory of operation. The instants are taken anyway, by those who need them; a :class:`Times` is what lies between two
of them, so that the five parts touch each other and add up to all the time there was::

    found    first in its line                         granted       sent          body read      callback over
      │  queued   │       throttled, queued, ...          │ connecting │   fetching   │    parsing     │
      └───────────┴───────────────────────────────────────┴────────────┴──────────────┴────────────────┘

*Throttled* is the time during which the request was the first in its line (of those with the same scopes and origin)
and a free place would not have helped it: the scope that it waited for was closed (delay, quota, backoff, hint, or its
concurrency taken), robots.txt of its origin was not read yet, or it had a delay of its own (meta ``delay``, a retry).
*Queued* is the rest of the wait: others of its line were before it, or it was the turn of another line, or all places
were taken. So what is queued is time that other requests took; the other four say what a request itself took.

Where this is not exact: whether a scope is closed is asked when there is a place for the request. A line that has come
to have its first while all places were taken is queued until one is free, and only then throttled. Of several lines
that wait for one scope with a quota all are throttled, also while it would let another of them through. A request that
comes last and goes first, by its priority, has the time that its line was held meanwhile, as far as it was there.
"""

from __future__ import annotations

import msgspec

__all__ = ["Times", "TimesTotal"]


class Times(msgspec.Struct, frozen=True, gc=False):
    """Where the time of one request went, in seconds; of one send: a retry or a redirect has its own.

    Attributes:
        queued: Waiting behind other requests, or for a place among ``CONCURRENT_REQUESTS``.
        throttled: First in its line, and kept by a scope, by robots.txt or by a delay of its own. Where several lines
            wait for one scope with a quota, also while that is open for another of them.
        connecting: From its grant to the wire: looking the name up, connecting, TLS, middleware that waits. 0.0 on a
            connection that was open.
        fetching: From the wire to the last byte of the body, or to the error.
        parsing: From there to the end of the callback, with all that it waits for: direct fetches, pipelines, feeds
            that are behind. 0.0 until the callback has ended.
    """

    queued: float = 0.0
    throttled: float = 0.0
    connecting: float = 0.0
    fetching: float = 0.0
    parsing: float = 0.0

    @property
    def total(self) -> float:
        """All of it, in seconds."""
        return self.queued + self.throttled + self.connecting + self.fetching + self.parsing

    def parsed(self, seconds: float) -> Times:
        """These times, with the callback over after ``seconds``."""
        return Times(self.queued, self.throttled, self.connecting, self.fetching, seconds)


class TimesTotal:
    """The times of many requests together. Hot, so mutable and slotted; the attributes of :class:`Times`, added up.

    Attributes:
        sends: How many requests.
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
        """Add a request whose body has been read; what its callback takes is added to :attr:`parsing` later."""
        self.sends += 1
        self.queued += times.queued
        self.throttled += times.throttled
        self.connecting += times.connecting
        self.fetching += times.fetching

    def mean(self) -> Times:
        """The times of one request, on average; all 0.0 where there was none."""
        sends = self.sends or 1
        parts = (self.queued, self.throttled, self.connecting, self.fetching, self.parsing)
        return Times(*[seconds / sends for seconds in parts])
