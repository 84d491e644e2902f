"""The time for which a scope gave no good answer, until it is given up (B20).

Theory of operation. The time begins with the first refusal after the last good answer, and ends after
``BACKOFF_GIVE_UP_AFTER``. Only time in which the scope could have answered counts. So the begin is moved along by

- the time that a server names in a header: the patience starts when that has passed, also if ``BACKOFF_MAX_DELAY``
  cuts the wait, so that the server is asked before. Obeying must not lose requests. The wait for one named time counts
  up to a day, and only ten times in a row may such a time pass without one good answer. A server that is asked before
  its time and names a later one, as with the same ``Retry-After`` in each response, has not broken its word: its times
  count up to a day after the first refusal. A response that names the time that was named before, as a countdown
  does, is not another one;
- time in which the scope was open and no request was sent: its quota, or another scope, kept all of them from it.

Intervals that double leave a gap before the end: the last one would reach far beyond it. An outage that was over in
time would go unnoticed, and pages of a healthy host would be lost. So the last request before the end is put off to the
end, and is the *last try*: never sooner than its backoff says, only later. It goes when the time has passed since the
first refused request was *sent*, so that its answer is there at the end. ::

    sent   refused        refused, in vain   would be next                 last try    end
     │─lead──│  since ─ ─ ─ ─ ─ ─│─ ─ ─ ─ ─ ─ ─ ─ ─ │─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ │─lead──│
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trawl.http import Response

__all__ = ["LONGEST_NAMED", "FailureTimer"]

LONGEST_NAMED = 86_400.0
"""Seconds. A longer wait that a server asks for, and that is cut, counts as this: daily quotas reset within a day."""

_MAX_NAMED = 10
"""Named times in a row that may pass without a good response and without counting."""

_SAME = 2.0
"""Seconds. Named times that are no further apart are one: countdowns are rounded, and responses take their time."""

_LONGEST_WINDOW = 60.0
"""Seconds. A limit that counts by windows serves nothing for so long, and may tell less."""

_MAX_LEAD = 0.1
"""A part of the time. A first refusal that was a timeout is no reason to try again long before the end."""


class FailureTimer:
    """The time without a good answer of one scope. Hot if many hosts fail, so mutable and slotted.

    Args:
        since: The instant from which time counts: that of the first refusal, in the simplest case.
        lead: Seconds that the first refusal took, from its send.

    Attributes:
        began_at: The instant of the first refusal.
        last: The response and the error of the last refused request; one of them is None, both if neither is known.
        since: From when time counts; moved along by what does not count.
        is_awaited: True if the last try is to come, or on its way.
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
        self.is_awaited: bool = False
        self.last: tuple[Response | None, Exception | None] = (None, None)
        self._lead = lead
        self.began_at: float = since
        self._open_at = since
        self._asked_until = -inf
        self._named_until = -inf  # by the last response that counted
        self._held_until = -inf
        self._named_count = 0
        self._is_moving = False  # it was asked before its time, and named a later one
        self._try_at = inf
        self._waits = 0
        self._is_paced = False

    def refused(self, granted_at: float, *, is_paced: bool = False) -> None:
        """Count one more refusal, of a request that was granted at ``granted_at``.

        Args:
            granted_at: An instant.
            is_paced: True if the request leaves gaps by itself; these count.
        """
        self._is_paced = is_paced
        if granted_at > self._open_at and not is_paced:
            self.since += granted_at - self._open_at
        if granted_at >= self._try_at:
            self.is_awaited = False

    def asked(self, now: float, until: float, *, held_until: float) -> None:
        """Start the patience anew at the time that a server names now.

        Args:
            now: The instant.
            until: The instant that it names.
            held_until: The instant until which the scope is held for it: earlier if the wait is cut.
        """
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
        """Return True if a request was refused before the time that was named, and ``until`` names the same time."""
        return now < self._named_until and until <= self._named_until + _SAME

    def unanswered_waits(self, now: float) -> int:
        """The times that were asked for, all obeyed, without a good answer after any: 0 in the first minute.

        A limit tells when it has room again, or has it within a minute, by which most are counted.
        """
        return self._waits if now - self.began_at >= _LONGEST_WINDOW else 0

    def quiet(self, until: float) -> None:
        """Note that the scope keeps itself closed until then; what passes afterwards without a send does not count."""
        self._open_at = max(self._open_at, until)

    def unasked(self, now: float, *, at_least: float) -> bool:
        """Return True if the scope was open for so many seconds without a request; that time is left out."""
        if now - self._open_at < at_least:
            return False
        self.since += now - self._open_at
        self._open_at = now
        return True

    def put_off(self, until: float, following: float, after: float) -> float:
        """Until when the scope is closed that would be until ``until``: to the end, if the next try would be too late.

        Where gaps that a request leaves by itself have led past the end, the last try comes as soon as it may.

        Args:
            until: An instant.
            following: Seconds that its refusal would close it for, at the most.
            after: Seconds after which the scope is given up.
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

    def due_at(self, after: float) -> float:
        """The instant at which ``after`` seconds have passed, and the last try is answered.

        If it is not made, the time is doubled.
        """
        return self.since + after * (2.0 if self.is_awaited else 1.0)
