"""The time for which a scope gave no good response, until it is given up.

The time starts with the first refusal after the last good response, and ends after ``BACKOFF_GIVE_UP_AFTER``. Only time
in which the scope could have responded counts. So the start is moved forward by

- the time that a server names in a header, even if ``BACKOFF_MAX_DELAY`` cuts the wait, because obeying a server must
  not lose requests: up to a day, and for ten such times in a row without a good response. A server that gets a request
  before its time and then names a later one, as with the same ``Retry-After`` in each response, has not failed to
  respond at a named time. Its times count up to a day after the first refusal;
- time in which the scope was open and no request was sent, because its quota or another scope delayed all of them.

Intervals that double leave a gap before the end, so that the scope would miss an outage that ended in time. Therefore
the last request before the end is delayed as the *last attempt*. It is sent when the time has passed since the first
refused request was *sent*, so that its response arrives by the end. ::

    sent    refused           refused again        would be next     last attempt     end
     │─lead──│  since ─ ─ ─ ─ ─ ─│─ ─ ─ ─ ─ ─ ─ ─ ─ │─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ │─lead──│
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trawl.http import Response

__all__ = ["LONGEST_NAMED", "FailureTimer", "RecentOutcomes"]

LONGEST_NAMED = 86_400.0
"""Seconds. If a longer wait is cut, it counts as this long, because daily quotas reset within a day."""

_MAX_NAMED = 10  # number of named times in a row that may pass without a good response and without counting

_SAME = 2.0
"""Seconds. Named times at most this far apart are the same, because countdowns are rounded and responses take time."""

_LONGEST_WINDOW = 60.0  # seconds; a limit that counts by windows may serve nothing for this long, without naming a time

_MAX_LEAD = 0.1
"""Part of the time. If the first refusal was a timeout, the last attempt is still not made long before the end."""


class FailureTimer:
    """The time without a good response of one scope. Hot if many hosts fail, so mutable and slotted.

    Args:
        since: Event loop time from which the time counts: in the simplest case, of the first refusal.
        lead: Seconds from the send of the first refused request to its refusal.
    """

    __slots__ = (
        "_asked_until",
        "_held_until",
        "_is_moving",
        "_is_paced",
        "_lead",
        "_named_count",
        "_named_until",
        "_open_at",
        "_try_at",
        "_waits",
        "began_at",
        "is_awaited",
        "last",
        "since",
    )

    def __init__(self, since: float, lead: float = 0.0) -> None:
        self.since: float = since
        self.is_awaited: bool = False  # True while the last attempt is pending or in flight
        # The response and the error of the last refused request; one of them is None, or both if unknown.
        self.last: tuple[Response | None, Exception | None] = (None, None)
        self._lead = lead
        self.began_at: float = since  # event loop time of the first refusal
        self._open_at = since
        self._asked_until = -inf
        self._named_until = -inf  # by the last response that counted
        self._held_until = -inf
        self._named_count = 0
        self._is_moving = False  # the server got a request before its named time, and named a later one
        self._try_at = inf
        self._waits = 0
        self._is_paced = False

    def refused(self, granted_at: float, *, is_paced: bool = False) -> None:
        """Count one more refusal. The gaps between requests that are rare by themselves (``is_paced``) count."""
        self._is_paced = is_paced
        if granted_at > self._open_at and not is_paced:
            self.since += granted_at - self._open_at
        if granted_at >= self._try_at:
            self.is_awaited = False

    def asked(self, now: float, until: float, *, held_until: float) -> None:
        """Restart the timer at the time ``until`` that a server names. ``held_until`` is earlier if the wait is cut."""
        if now >= self._asked_until:
            self._waits += 1
        if now >= self._held_until and until > self._named_until + _SAME:
            self._named_count += 1
            self._is_moving |= now < self._named_until
            self._named_until = until
        self._held_until = max(self._held_until, held_until)
        if self._is_moving:
            until = min(until, self.began_at + LONGEST_NAMED)
        if self._is_moving or self._named_count <= _MAX_NAMED:
            self._asked_until = max(self._asked_until, until)
            self.since = max(self.since, until)

    def is_early(self, now: float, until: float) -> bool:
        """Return True if a request was refused before the named time, and ``until`` names the same time again."""
        return now < self._named_until and until <= self._named_until + _SAME

    def unanswered_waits(self, now: float) -> int:
        """Return the number of named times that were waited for without a good response; 0 in the first minute.

        A server with a limit names the time of its next free request, or allows one within a minute, the usual window.
        """
        return self._waits if now - self.began_at >= _LONGEST_WINDOW else 0

    def quiet(self, until: float) -> None:
        """Record that the scope is closed until ``until``. Time after that without a send does not count."""
        self._open_at = max(self._open_at, until)

    def unasked(self, now: float, *, at_least: float) -> bool:
        """Return True if the scope was open for ``at_least`` seconds without a request, and skip that time."""
        if now - self._open_at < at_least:
            return False
        self.since += now - self._open_at
        self._open_at = now
        return True

    def put_off(self, until: float, following: float, after: float) -> float:
        """Return when the scope opens: at ``until``, or at the end if the attempt after that would be too late.

        A refusal of that attempt would close it for ``following`` seconds. It is given up after ``after`` seconds. If
        the gaps between rare requests led past the end, the last attempt is made as early as possible.
        """
        last_at = self.since + after - min(self._lead, after * _MAX_LEAD)
        if until > self.since + after:
            if not self._is_paced:
                return until
        elif until + self._lead + following <= last_at:
            return until
        self._try_at = max(until, last_at)
        self.is_awaited = True
        return self._try_at

    def await_attempt(self, at: float, after: float) -> None:
        """Count an attempt that its sender makes at ``at`` as the last one, unless the end comes before it."""
        if at <= self.since + after:
            self._try_at, self.is_awaited = at, True

    def due_at(self, after: float) -> float:
        """Return when ``after`` seconds have passed, or twice as many while the last attempt is pending."""
        return self.since + after * (2.0 if self.is_awaited else 1.0)


class RecentOutcomes:
    """The latest triggers and good responses of one scope. Hot, so mutable and slotted."""

    __slots__ = ("escalated_at", "failure_timer", "good_at", "passed_at", "refused", "trigger_source", "triggered_at")

    def __init__(self) -> None:
        self.trigger_source: str = ""  # the last trigger, in words
        self.escalated_at: float = -inf  # event loop time of the last incident
        self.triggered_at: float = -inf  # event loop time of the last trigger
        self.good_at: float = -inf  # event loop time of the last good response
        # Event loop time of the last good response to a request that had been refused before.
        self.passed_at: float = -inf
        # Timer of the time without a good response; None if nothing was refused since the last one.
        self.failure_timer: FailureTimer | None = None
        # The request that was refused since the last good response, except requests known to fail by themselves: "" for
        # none, "*" for several.
        self.refused: str = ""
