"""The limits of a scope: each is one rule that says when a request may be prepared, granted or sent.

A request passes up to three steps. If user code runs before its send, it is *prepared*, which takes nothing. It is
*granted*, which gives it a place in every scope. It is *sent*. At each step the scope calls the same method of every
limit in force, and the latest time counts. The limit that returned it is the reason for the wait.

Times are event loop times in seconds. A limit that is open returns the time since which it has been open (``-inf`` if
it was never closed), so that the measured waits need no second source. A closed limit returns the time at which it
opens; ``inf`` if only the send or the end of another request can open it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, ClassVar

from trawl.throttling.limits import EXACT, Jitter
from trawl.throttling.reasons import Reason
from trawl.throttling.traffic import MAX_AHEAD

if TYPE_CHECKING:
    from trawl.http import Outcome
    from trawl.throttling.scope import Scope
    from trawl.throttling.traffic import Traffic

__all__ = ["NUMBERED", "Bandwidth", "Concurrency", "Hold", "Limit", "NumberLimit", "Rate", "SlotRest", "Spacing"]

PATIENCE = 30.0  # seconds; a place is not reserved for a request that can't be sent within this time

MAX_OFFSET = 2.0
"""Seconds. The largest offset from the grid of a shared rate, because a token is valid for a few seconds."""


class Limit:
    """One limit of a scope. Used for every request, so mutable and slotted. Only its scope calls it."""

    __slots__ = ("name", "source")

    # True if `earliest_at` subtracts the lead, because the limit sets the time of the send, not of the grant.
    leads: ClassVar[bool] = False
    # True if each send uses the limit, even a send over a dead connection. So the request needs another grant before it
    # is sent again.
    counts_sends: ClassVar[bool] = False
    # True if the waits for it count in the report's allowed rate. False if it waits for the end of another request,
    # because responses take any time.
    spaces: ClassVar[bool] = True
    hears_sends: ClassVar[bool] = False  # True if the scope calls `taken`, `sent` and `written`
    hears_ends: ClassVar[bool] = False  # True if the scope calls `ended`
    hears_responses: ClassVar[bool] = False  # True if the scope calls `heard`

    def __init__(self, name: str) -> None:
        self.name: str = name  # name in an explanation
        self.source: str = ""  # the source of the limit, in words

    def prepares_at(self, scope: Scope, now: float, amount: float) -> float:
        """Return when one more request may be prepared, in addition to the requests ahead."""
        return self.earliest_at(scope, now, amount)

    def earliest_at(self, scope: Scope, now: float, amount: float) -> float:
        """Return when a request of ``amount`` may be granted."""
        raise NotImplementedError

    def opens_at(self, scope: Scope, slot: int, now: float, amount: float) -> float:
        """Return when the granted request in ``slot`` may be written; ``inf`` if it needs another grant."""
        return -inf

    def taken(self, scope: Scope, now: float, amount: float) -> None:
        """Record that a request was granted at ``now``."""

    def sent(self, scope: Scope, now: float, amount: float, due_at: float) -> None:
        """Record that it is sent at ``now``, and might have been sent at ``due_at``; ``inf`` if user code responded.

        The traffic still has the send before it.
        """

    def written(self, scope: Scope, sent_at: float, now: float) -> None:
        """Record the end of the write that started at ``sent_at``, before the traffic counts from ``now``."""

    def ended(self, scope: Scope, now: float, amount: float, was_sent: bool) -> None:
        """Record that its body was read or that it failed. Its place is still taken."""

    def heard(self, outcome: Outcome, now: float) -> None:
        """Record the response or the error of a request, once, before :meth:`ended`. ``now`` never decreases.

        ``outcome.size`` is the size as received, or the size of the body if the transport does not count bytes.
        """

    def reason(self, scope: Scope, now: float, until: float) -> Reason:
        """Explain that it is closed at ``now`` and until that time, for sends."""
        return Reason(scope.id, self.name, until, self.source)

    def delays(self, scope: Scope, now: float, until: float, amount: float, wanted: float, ahead: int) -> bool:
        """Return True if a request of ``amount`` that is granted now could delay one of ``wanted`` beyond ``until``.

        ``ahead`` other requests get their places before.
        """
        return until <= now + PATIENCE

    def is_idle(self, scope: Scope, now: float) -> bool:
        """Return True if forgetting it at ``now`` loses nothing important."""
        return True


class Concurrency(Limit):
    """The maximum number of requests in flight."""

    __slots__ = ("limit", "opened_at")

    spaces: ClassVar[bool] = False
    hears_ends: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__("concurrency")
        self.limit: float = inf  # `inf` for no limit
        self.opened_at: float = -inf  # time at which a place was last released while all were taken

    def prepares_at(self, scope: Scope, now: float, amount: float) -> float:
        """Return ``inf`` if enough requests are ahead.

        These are one more than there are places, so that a page with hanging middleware does not block the only place.
        With a delay, the delay decides. No page is prepared that would wait behind another for a place. A careful scope
        prepares only what could be sent in addition to the requests ahead.
        """
        traffic = scope.traffic
        is_full = traffic.in_flight + traffic.ahead >= self.limit
        is_behind = traffic.prepared > 0 and traffic.in_flight >= self.limit
        if is_full and (scope.is_careful or traffic.preparation <= 0.0 or is_behind):
            return inf
        return inf if traffic.ahead > self.limit and not scope.is_spaced else -inf

    def earliest_at(self, scope: Scope, now: float, amount: float) -> float:
        """Return when a place was free; ``inf`` without a free place."""
        return inf if scope.traffic.in_flight >= self.limit else self.opened_at

    def opens_at(self, scope: Scope, slot: int, now: float, amount: float) -> float:
        """Return ``inf`` if the limit was lowered below the number of requests in flight, which contains this one."""
        return inf if scope.traffic.in_flight > self.limit else -inf

    def ended(self, scope: Scope, now: float, amount: float, was_sent: bool) -> None:
        """Record when a place is released for a request that may have waited for it."""
        if scope.traffic.in_flight >= self.limit:
            self.opened_at = now

    def delays(self, scope: Scope, now: float, until: float, amount: float, wanted: float, ahead: int) -> bool:
        """Return True if there is no second free place, because nobody knows when a place is released."""
        return self.limit - scope.traffic.in_flight - ahead <= 1 and until <= now + PATIENCE


class Interval(Limit):
    """A time between two sends, multiplied by a random factor that is drawn for each send."""

    __slots__ = ("jitter", "seconds")

    leads: ClassVar[bool] = True
    counts_sends: ClassVar[bool] = True

    def __init__(self, name: str, seconds: float, jitter: Jitter) -> None:
        super().__init__(name)
        self.seconds: float = seconds  # time, before jitter
        self.jitter: Jitter = jitter  # the bounds of the random factor

    def interval(self, traffic: Traffic) -> float:
        """Return the drawn seconds from the latest send to the next one."""
        low, high = self.jitter
        return self.seconds if low == high == 1.0 else self.seconds * (low + (high - low) * traffic.drawn)

    def delays(self, scope: Scope, now: float, until: float, amount: float, wanted: float, ahead: int) -> bool:
        """Return True if the longest possible interval ends after ``until``."""
        return until < now + self.seconds * self.jitter[1]

    def is_idle(self, scope: Scope, now: float) -> bool:
        """Return True if the longest possible interval has passed."""
        return scope.traffic.last_sent + self.seconds * self.jitter[1] <= now


class Spacing(Interval):
    """The time between two sends. A scope has up to two: the delay, and a floor, whose jitter only lengthens it."""

    __slots__ = ("step",)

    def __init__(self) -> None:
        super().__init__("delay", 0.0, EXACT)
        self.step: float = 0.0  # seconds between two grid times for the sends of a rate; 0.0 while no grid applies

    def set(self, seconds: float, jitter: Jitter, *, is_slowed: bool = False) -> None:
        """Change the time and its jitter. The scope ``is_slowed`` while it backs off or has a floor."""
        self.seconds: float = seconds
        self.jitter: Jitter = jitter

    def offset(self, traffic: Traffic) -> float:
        """Return the drawn seconds from the next grid time to its send: at most one step; 0.0 without a grid."""
        return 0.0

    def next_at(self, traffic: Traffic) -> float:
        """Return the time of the next send, after all sends and preparations that may count as sends."""
        interval = self.interval(traffic)
        at = traffic.last_sent + interval
        return at if traffic.last_prepared == -inf else max(at, traffic.last_prepared + (self.step or interval))

    def prepares_at(self, scope: Scope, now: float, amount: float) -> float:
        """Return when the request can be ready on time; ``inf`` if as many are ahead as are sent until then.

        Until user code is known to respond or not, only one request is in its middleware at a time. After the first
        response, these requests are spaced by their entry instead.
        """
        traffic = scope.traffic
        if traffic.ahead and 0.0 < traffic.caution < inf:
            return inf
        before = traffic.unsent + (traffic.ahead if traffic.caution < inf else traffic.prepared)
        if before and scope.is_covered(before, self.seconds * self.jitter[0]):
            return inf
        return self.next_at(traffic) - scope.early

    def earliest_at(self, scope: Scope, now: float, amount: float) -> float:
        """Return the time of the next send, less the lead; ``inf`` while it depends on an earlier send.

        Behind requests between grant and send it is a plan that uses the shortest possible interval, and only as far
        ahead as one more request may be granted.
        """
        traffic = scope.traffic
        lead = traffic.lead
        if not traffic.unsent:
            return self.next_at(traffic) - lead
        step = self.seconds * self.jitter[0]
        if lead <= 0.0 or traffic.unsent * step > lead or traffic.unsent >= MAX_AHEAD:
            return inf
        return max(self.next_at(traffic), traffic.planned + step) - lead

    def opens_at(self, scope: Scope, slot: int, now: float, amount: float) -> float:
        """Return the time of the next send."""
        return self.next_at(scope.traffic)

    def reason(self, scope: Scope, now: float, until: float) -> Reason:
        """Explain the wait. A time behind unsent requests is a plan, and the previous one may be sent sooner."""
        traffic = scope.traffic
        if traffic.unsent and until < inf:
            step = self.seconds * self.jitter[0]
            until = min(until, max(traffic.last_sent + self.interval(traffic), now) + traffic.unsent * step)
        return Reason(scope.id, self.name, until, self.source)


class Rate(Spacing):
    """The delay of a scope with a rate. A rate is a maximum, so its sends follow a grid of times that are 1/rate apart.

    Each send happens at its grid time plus a random offset, at most one step later. Two intervals therefore can't both
    be short, because the send after a late one is only as early as the grid. ::

        grid    |---------|---------|---------|---------|       t seconds hold at most t * rate + 2 sends,
        sends      x         x  x                x x             because each send is at most one step late

    Lateness of more than one step, or with another cause than the rate, moves the grid. No grid applies while backing
    off, and under a delay that a server requests.

    Args:
        since: The event loop time since which it is configured.
        is_shared: True if other processes send too, so that lateness is unknown.
    """

    __slots__ = ("applied_at", "behind", "is_shared", "spread")

    hears_sends: ClassVar[bool] = True

    def __init__(self, since: float, *, is_shared: bool) -> None:
        super().__init__()
        self.spread: float = 0.0  # the largest offset of a send from its grid time, in seconds
        # Seconds by which the latest send was behind its grid time: the offset, plus the lateness that the next sends
        # compensate.
        self.behind: float = 0.0
        # Time since which the rate applies, because lateness counts only from then; `inf` if it does not apply.
        self.applied_at: float = since
        self.is_shared: bool = is_shared

    def replace(self, before: Spacing, seconds: float, jitter: Jitter, traffic: Traffic, now: float) -> None:
        """Continue the grid of another rate, which is replaced at ``now``.

        If a rate is raised, the remaining part of the current step shrinks as the steps do, so that the maximum also
        holds across the change. If it is lowered, the next step counts from the latest send.
        """
        if isinstance(before, Rate) and before.step > 0.0 and -inf < traffic.last_sent <= now:
            passed = min((now - traffic.last_sent + before.behind) / before.step, 1.0)
            new_step = seconds * (jitter[0] + jitter[1]) / 2.0
            self.behind = min(traffic.last_sent - now + passed * new_step, 0.0)

    def set(self, seconds: float, jitter: Jitter, *, is_slowed: bool = False) -> None:
        """Change the time and its jitter. While the scope ``is_slowed`` (backoff, Crawl-delay), no grid applies."""
        super().set(seconds, jitter)
        low, high = jitter
        self.step: float = 0.0 if is_slowed else seconds * (low + high) / 2.0
        self.spread = min(seconds * (high - low) / 2.0, MAX_OFFSET if self.is_shared else inf)

    def offset(self, traffic: Traffic) -> float:
        """Return the drawn seconds from the next grid time to its send: at most one step; 0.0 without a grid."""
        return self.spread * traffic.drawn if self.spread > 0.0 and self.step > 0.0 else 0.0

    def interval(self, traffic: Traffic) -> float:
        """Return the drawn seconds from the latest send to the next one."""
        if self.step <= 0.0:
            return super().interval(traffic)
        return max(self.step - self.behind, 0.0) + self.offset(traffic)

    def sent(self, scope: Scope, now: float, amount: float, due_at: float) -> None:
        """Record by how many seconds a send is behind its grid time, at most one step.

        The bound is GCRA's (ITU-T I.371) with a tolerance of one interval. Only lateness of a pending request counts,
        not its wait for another scope, a hold or a quota (until ``due_at``). It also counts only while the user's own
        rate applies: not while backing off or under a Crawl-delay, and not if one of these starts before that send.
        """
        if self.step <= 0.0:
            self.applied_at, self.behind = inf, 0.0
            return
        traffic = scope.traffic
        due = max(traffic.last_sent + self.interval(traffic), due_at)
        is_late = max(scope.waits.needed_at, self.applied_at) <= due < now and not self.is_shared
        if self.applied_at == inf:  # the wait before this send had another cause than the rate
            self.applied_at = now
        self.behind = min(self.offset(traffic) + (now - due if is_late else 0.0), self.step)

    def written(self, scope: Scope, sent_at: float, now: float) -> None:
        """Compensate for the time of the write, if no other request was sent since."""
        if self.step > 0.0 and not self.is_shared and scope.traffic.last_sent == sent_at:
            self.behind = min(self.behind + now - sent_at, self.step)


class SlotRest(Interval):
    """The time between two sends of one slot."""

    __slots__ = ("places",)

    def __init__(self, seconds: float, jitter: Jitter, places: Concurrency) -> None:
        super().__init__("delay_per_slot", seconds, jitter)
        self.places: Concurrency = places  # its limit is the number of slots

    def rested_at(self, traffic: Traffic, ahead: int = 0) -> float:
        """Return when a slot will have rested, after ``ahead`` other requests; ``inf`` if all slots are busy."""
        if traffic.slots is not None:
            return traffic.slots.ready_at(self.places.limit, self.interval(traffic), ahead)
        # A second slot may be opened, or the only one is busy, which the concurrency has checked.
        if self.places.limit - ahead > 1 or traffic.in_flight:
            return -inf
        return traffic.last_sent + self.interval(traffic)

    def prepares_at(self, scope: Scope, now: float, amount: float) -> float:
        """Return when the request can be ready on time; ``inf`` if as many are ahead as are sent until then."""
        traffic = scope.traffic
        if traffic.ahead and traffic.in_flight + traffic.ahead >= self.places.limit:
            interval = self.seconds * (self.jitter[0] + self.jitter[1]) / 2.0 / self.places.limit
            if scope.is_covered(traffic.unsent + traffic.ahead, interval):
                return inf
        rested_at = self.rested_at(traffic, traffic.ahead if scope.is_careful else 0)
        return rested_at - scope.early if rested_at < inf or scope.is_careful else -inf

    def earliest_at(self, scope: Scope, now: float, amount: float) -> float:
        """Return when a slot will have rested, less the lead."""
        return self.rested_at(scope.traffic) - scope.traffic.lead

    def opens_at(self, scope: Scope, slot: int, now: float, amount: float) -> float:
        """Return when a taken slot will have rested, by the draw at its grant; ``-inf`` if no slot is taken."""
        traffic = scope.traffic
        if not slot:
            return -inf
        if traffic.slots is None:
            return traffic.last_sent + self.interval(traffic)
        return max(traffic.slots.rested_at(slot), traffic.slots.last_sent(slot) + self.seconds * self.jitter[0])


class Hold(Limit):
    """No send before a time, whatever the delays are. The latest of several holds applies."""

    __slots__ = ("because", "hint", "until")

    def __init__(self) -> None:
        super().__init__("")
        self.until: float = -inf  # nothing is sent before this time; `-inf` without a hold
        self.because: Reason | None = None  # the reason of the hold that ends then
        self.hint: Reason | None = None  # the longest hold that a server has requested; None if there was none

    def hold(self, until: float, reason: Reason) -> None:
        """Let nothing through before ``until``."""
        if until > self.until:
            self.until, self.because = until, reason
            self.name: str = reason.limit
        if reason.limit == "hint" and (self.hint is None or until > self.hint.until):
            self.hint = reason

    def lift(self, *, but_hints: bool) -> None:
        """End the hold. With ``but_hints`` a server's hold stays, even one behind a longer hold."""
        if not but_hints:
            self.hint = None
        self.because = self.hint
        self.until, self.name = (-inf, "") if self.hint is None else (self.hint.until, "hint")

    def earliest_at(self, scope: Scope, now: float, amount: float) -> float:
        """Return the end of the hold."""
        return self.until

    def opens_at(self, scope: Scope, slot: int, now: float, amount: float) -> float:
        """Return the end of a hold that has passed; ``inf`` during the hold."""
        return inf if self.until > now else self.until

    def reason(self, scope: Scope, now: float, until: float) -> Reason:
        """Return the reason of the hold."""
        return self.because if self.because is not None else super().reason(scope, now, until)

    def delays(self, scope: Scope, now: float, until: float, amount: float, wanted: float, ahead: int) -> bool:
        """Return False, because a hold is the same for all."""
        return False

    def is_idle(self, scope: Scope, now: float) -> bool:
        """Return True after the hold."""
        return self.until <= now


class NumberLimit(Limit):
    """A limit that needs nothing but its number. :data:`NUMBERED` has all of them, and the scope makes them."""

    __slots__ = ("number",)

    key: ClassVar[str] = ""
    """Its key in ``THROTTLING_SCOPES``, which is also its name."""

    def __init__(self, number: float) -> None:
        super().__init__(self.key)
        self.number: float = number  # number in `THROTTLING_SCOPES`

    def stored(self, now: float) -> tuple[float, ...]:
        """Return the event loop times until which its records count, for a job to store. Past times are dropped."""
        return ()

    def restore(self, times: tuple[float, ...], now: float) -> None:
        """Add such records of an earlier run to its own. Some of the times may have passed."""

    def usual_rate(self) -> float:
        """Return the sends per second that it allows for average requests; ``inf`` if unknown."""
        return inf

    def copy(self) -> NumberLimit:
        """Return a limit with the same state, for the preview of another number."""
        return type(self)(self.number)


class Bandwidth(NumberLimit):
    """The average number of bytes per second. After a response, nothing is sent until its bytes are paid for.

    The time counts from the send, so that the time in which the bytes arrive pays for them too. Requests that are in
    flight together may receive more before the limit closes, and the pause after them is longer. Bytes of a request
    that a middleware cancels while they arrive are not paid for, because nobody has counted them.
    """

    __slots__ = ("paid_at", "responses", "total")

    key: ClassVar[str] = "bandwidth"
    hears_responses: ClassVar[bool] = True

    def __init__(self, number: float) -> None:
        super().__init__(number)
        self.paid_at: float = -inf  # time at which all bytes so far are paid for
        self.total: int = 0  # bytes of all responses
        self.responses: int = 0  # number of these responses

    def earliest_at(self, scope: Scope, now: float, amount: float) -> float:
        """Return the time at which all bytes are paid for."""
        return self.paid_at

    def opens_at(self, scope: Scope, slot: int, now: float, amount: float) -> float:
        """Return that time, because bytes may have arrived since the grant."""
        return self.paid_at

    def heard(self, outcome: Outcome, now: float) -> None:
        """Add the time that pays for the bytes, also of a response that broke off."""
        sent_at = now if outcome.sent_at is None else outcome.sent_at
        self.paid_at = max(self.paid_at, sent_at) + outcome.size / self.number
        self.total += outcome.size
        self.responses += 1

    def stored(self, now: float) -> tuple[float, ...]:
        """Return the time at which all bytes are paid for."""
        return (self.paid_at,)

    def restore(self, times: tuple[float, ...], now: float) -> None:
        """Restore that time."""
        self.paid_at = max((self.paid_at, *times))

    def usual_rate(self) -> float:
        """Return the responses of average size that may be received per second."""
        return self.number * self.responses / self.total if self.total else inf

    def copy(self) -> Bandwidth:
        """Return a limit with the same state."""
        copied = Bandwidth(self.number)
        copied.paid_at, copied.total, copied.responses = self.paid_at, self.total, self.responses
        return copied

    def is_idle(self, scope: Scope, now: float) -> bool:
        """Return True if all bytes are paid for."""
        return self.paid_at <= now


NUMBERED: tuple[type[NumberLimit], ...] = (Bandwidth,)  # the limits that need nothing but their number
