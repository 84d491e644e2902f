"""One throttling scope: its places, its times, and the decision when the next request may be sent.

:meth:`Scope.earliest_at` decides when a request may be granted, and :meth:`Scope.opens_at` decides again, just before
the send, when it may be written. :meth:`ScopeState.apply <trawl.throttling.policy.ScopeState.apply>` computes the
limits that they read (configured, AutoThrottle, rampup, robots.txt, backoff). Holds (:meth:`Scope.hold`) come from
responses, in :mod:`trawl.throttling.outcomes`.

Theory of operation. A request *takes* the scope, is *sent*, and *gives* its place back when the body is read. Delays
count sends, not takes: the next time counts from the send. A request that needs time before its send (middleware, a new
connection) takes the scope earlier by its *lead*, the time that other requests needed, and waits just before the send
for its time. The requests behind it may do the same, as many as can be sent within a lead. Without a lead, a scope with
a delay is closed from a take until that request is sent or has failed before its send. ::

             take                            opens_at, sent                         give
      open ───────► closed (on the way to the wire) ──► closed until sent + delay - lead ──► open
        ▲                     │ give, never sent: nothing was used
        └─────────────────────┘

If user code runs before the send, a page is *prepared* first, which takes nothing. :meth:`Scope.prepares_at` decides
when, so that the page is ready on time and enough pages are ahead of it. When the user code has run, the page is a
request like any other. But user code may also respond itself. So a scope is careful until user code has awaited
something and then sent a request after all: a preparation starts only when a request could be sent in addition to the
requests ahead, and counts as a send until it is known not to be one. If user code awaits nothing, this costs nothing.

The result of these methods is a time. At or before ``now`` means that the request may be sent. A later time means not
before then. ``inf`` means that only another request's *sent* or *give* can change the result. Policies, hints and the
user change a limit by setting the effective attributes and reporting the scope as changed. No cached value here becomes
stale by that.

One random number is drawn for each send and kept until that send. The effective jitter turns it into a factor, which
multiplies the effective delays, so that every change applies to a waiting request. A delay that a server requests, or
that was found by refusals, is a *floor*: only the lengthening part of the jitter applies to it.

A *rate* is a maximum, so its sends follow a grid of times that are 1/rate apart (:attr:`Scope.grid_step`). Each send
happens at its grid time plus a random offset (:meth:`Scope.offset`), at most one step later. Two intervals therefore
can't both be short, because the send after a late one is only as early as the grid. ::

    grid    |---------|---------|---------|---------|       t seconds hold at most t * rate + 2 sends,
    sends      x         x  x                x x             because each send is at most one step behind its instant

``_behind`` stores how far the latest send was behind its grid time. It is the offset plus the lateness that the next
sends compensate. Lateness of more than one step, or with another cause than the rate, moves the grid.

Length: one object contains everything that the decision reads. With two objects, each limit would need a call between
them for every request.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, Any

from trawl.throttling.limits import EXACT, Limits, RandomStream, Slots, lengthening
from trawl.throttling.quota import PageBudget, Quota
from trawl.throttling.reasons import LimitName, MinCounter, Reason, Waits

if TYPE_CHECKING:
    from trawl.throttling.common import ScopeHolder

__all__ = ["CONFIGURED", "MAX_LEAD", "MIN_LEAD", "Scope"]

logger: logging.Logger = logging.getLogger("trawl.throttling")

MAX_LEAD = 5.0
"""Seconds. Maximum time that a request is granted before it may be sent, and that it waits just before its send."""

MAX_PREPARATION = 30.0
"""Seconds. Maximum time that a page is prepared before it may be granted."""

MIN_LEAD = 0.0001
"""Seconds. A shorter way to the send is not worth an earlier grant, because it is a thousandth of a delay of 0.1 s."""

AWAITED = 0.01
"""Seconds. User code that takes less before a send does not end caution, because caution costs no more than this."""

QUICK, PATIENT = 32.0, 512.0
"""Divisors for the decrease of a lead and of a preparation. A page prepared too early holds nothing."""

MAX_AHEAD = 64
"""Maximum number of requests of a scope with a delay that are between grant and send."""

CONFIGURED = "configuration"
"""The source of a limit unless a policy set it."""


class Scope:
    """The state of one scope. Used for every request, so mutable and slotted.

    Args:
        id: Its id.
        limits: The configured limits, copied to the effective limits.
        seed: The run's seed, for the random draws.

    Attributes:
        id: Its id.
        limits: The configured limits.
        concurrency: Effective maximum of requests in flight; ``inf`` for no limit.
        delay: Effective seconds between two sends, before jitter.
        delay_per_slot: Effective seconds between two sends of a slot, before jitter.
        floor: The part of ``delay`` in seconds that robots.txt requests or backing off requires, so that no interval is
            shorter; 0.0 for none.
        jitter: Effective bounds of the random factor on both delays.
        lead: Measured seconds from a request's grant to its send. With a delay, it is granted this much earlier.
        preparation: Measured seconds of a page's middleware before its send. It is prepared this much earlier.
        quota: The quota; None if there is none.
        pages: The page budget; None if there is none.
        in_flight: Number of requests that hold a place.
        ahead: Number of requests that are being prepared and not overdue, or are prepared and wait for this scope.
        prepared: Number of pages among them that are prepared.
        ahead_amount: Expected amount of the requests that are ahead.
        unsent: Number of requests that hold a place and are not sent yet.
        reserved: Expected amount of these requests, even without a quota, because one may be set before they are sent.
        step: Number of backoff steps. Each send remembers the number at its attempt.
        grants: Number of times that the scope was taken.
        last_sent: Event loop time of the latest send; ``-inf`` before the first.
        last_prepared: Start of the latest preparation that may still count as a send; ``-inf`` if there is none.
        caution: Number of requests that user code must still send, each after awaiting something, before it is assumed
            never to respond; ``inf`` after a response of user code; -1 if no user code is known.
        held_until: Time before which nothing is sent, whatever the delays are.
        hold_reason: The reason of that hold.
        hint: The longest hold that a server has requested; None if there was none.
        delay_limit: The name of the delay in explanations: ``"backoff"`` or ``"robots"`` if these set it.
        delay_source: The source of the effective delay.
        floor_source: The source of the floor, if it is not the effective delay.
        concurrency_source: The source of the effective concurrency.
        quota_source: The source of the quota and of all other configured limits, such as the page budget.
        lanes: Number of lanes with pending requests that need the scope.
        gated: Number of these lanes that wait for a robots.txt.
        waits: The waiting times of its requests, by limit.
        state: The state of its policies.
        holders: The crawls that share it; empty if it belongs to one crawl.
    """

    __slots__ = (
        "_amounts",
        "_applied_at",
        "_behind",
        "_drawn",
        "_gated_at",
        "_gated_for",
        "_planned",
        "_refilled_at",
        "_seed",
        "_slots",
        "_stream",
        "ahead",
        "ahead_amount",
        "caution",
        "concurrency",
        "concurrency_source",
        "delay",
        "delay_limit",
        "delay_per_slot",
        "delay_source",
        "floor",
        "floor_source",
        "gated",
        "grants",
        "held_until",
        "hint",
        "hold_reason",
        "holders",
        "id",
        "in_flight",
        "jitter",
        "lanes",
        "last_prepared",
        "last_sent",
        "lead",
        "limits",
        "pages",
        "preparation",
        "prepared",
        "quota",
        "quota_source",
        "reserved",
        "state",
        "step",
        "unsent",
        "waits",
    )

    def __init__(self, id: str, limits: Limits, *, seed: int | str = 0) -> None:
        self.id: str = id
        self.in_flight: int = 0
        self.ahead: int = 0
        self.prepared: int = 0
        self.ahead_amount: float = 0.0
        self.unsent: int = 0
        self.reserved: float = 0.0
        self.step: int = 0
        self.grants: int = 0
        self.last_sent: float = -inf
        self.last_prepared: float = -inf
        self.caution: float = -1.0
        self.lead: float = 0.0
        self.preparation: float = 0.0
        self.held_until: float = -inf
        self.hold_reason: Reason | None = None
        self.hint: Reason | None = None
        self.delay_limit: LimitName = "delay"
        self.delay_source: str = CONFIGURED
        self.floor_source: str = ""
        self.concurrency_source: str = CONFIGURED
        self.quota_source: str = CONFIGURED
        self.lanes: int = 0
        self.gated: int = 0
        self.waits: Waits = Waits()
        self.state: Any = None
        self.holders: tuple[ScopeHolder, ...] = ()
        self.quota: Quota | None = None
        self.pages: PageBudget | None = None
        self._seed = seed
        self._stream: RandomStream | None = None
        self._drawn: float | None = None
        self._planned = -inf
        self._refilled_at = -inf  # when its quota last let a waiting request go
        self._gated_at = inf
        self._gated_for = 0.0
        self._amounts: MinCounter | None = None  # made when an amount is named, because few scopes have a quota
        self._slots: Slots | None = None  # made when a second slot is needed, because most hosts have one
        self.apply_limits(limits)

    def apply_limits(self, limits: Limits, now: float = -inf) -> None:
        """Apply ``limits`` at ``now``. Requests in flight, spent amounts and holds stay. Policies apply on top."""
        behind = self._behind_under(limits, now)
        self.limits: Limits = limits
        self._applied_at: float = now
        self._behind = behind
        self.concurrency: float = limits.concurrency
        self.delay: float = limits.delay
        self.floor: float = 0.0
        self.delay_per_slot: float = limits.delay_per_slot
        self.jitter: tuple[float, float] = limits.jitter
        if self.pages is not None:
            self.pages.limit = limits.pages
        elif limits.pages < inf:
            self.pages = PageBudget(limits.pages)
        if limits.quota == inf:
            self.quota = None
        elif self.quota is None:
            self.quota = Quota(limits.quota, limits.window, sliding=limits.sliding, reserved=self.reserved)
            # Waiting lanes are ordered by turn, and must now be ordered by share.
            self.quota.is_late = self.lanes > 0
        else:
            self.quota.apply_limits(limits.quota, limits.window, sliding=limits.sliding, now=now)

    # -- the decision

    def earliest_at(self, now: float, amount: float = 1.0) -> float:
        """Return when a request of ``amount`` may be granted.

        Returns:
            The earliest time; at or before ``now``: at once; ``inf``: only a released place or a send can change this.
        """
        if self.in_flight >= self.concurrency:
            return inf
        # When a request in flight ends, the scheduler is notified and calls this again.
        if self.pages is not None and self.pages.is_awaited:
            return inf
        at = self.held_until
        if self.delay > 0.0:
            at = max(at, self._spaced_at() - self.lead)
        if self.delay_per_slot > 0.0:
            at = max(at, self._slot_ready_at() - self.lead)
        if self.quota is not None:
            refilled = self.quota.ready_at(now, amount)
            # For the waiting times, because after the grant the quota no longer knows this time.
            if now < refilled < inf:
                self.waits.refills[amount] = refilled
            at = max(at, refilled)
        return at

    def reason(self, now: float, amount: float = 1.0) -> Reason:
        """Explain the result of :meth:`earliest_at`. The ``limit`` is empty if the scope is open at ``now``."""
        if limit := self.full:
            return Reason(self.id, limit, inf, self.concurrency_source if limit == "concurrency" else self.quota_source)
        refilled = -inf if self.quota is None else self.quota.ready_at(now, amount)
        lead = self.lead
        limit, at = self._last_to_open(refilled, lead)
        if at <= now:
            return Reason(self.id, "", at, "")
        if refilled == at:
            return Reason(self.id, "quota", at, self.quota_source)
        if self.held_until == at and self.hold_reason is not None:
            return self.hold_reason
        if limit == "delay_per_slot":
            # Backoff does not change it.
            source = self.delay_source if self.delay_limit == "delay" else self.quota_source
        else:
            source = self._spacing()[1]
        until = at + lead
        if self.unsent and self.delay > 0.0 and until < inf and limit != "delay_per_slot":
            # This time is a plan, because the previous request may be sent sooner than usual.
            until = min(until, max(self.last_sent + self.interval(), now) + self.unsent * self.shortest)
        return Reason(self.id, limit, until, source)

    @property
    def full(self) -> str:
        """The limit that lets no request through until something is released; "" if there is none."""
        if self.in_flight >= self.concurrency:
            return "concurrency"
        return "pages" if self.pages is not None and self.pages.is_awaited else ""

    def is_tight(self) -> bool:
        """Return True if one more request could delay others, by a delay, quota, budget or the last place."""
        return (
            self.concurrency - self.in_flight <= 1
            or self.delay > 0.0
            or self.delay_per_slot > 0.0
            or self.quota is not None
            or self.pages is not None
        )

    @property
    def counts_sends(self) -> bool:
        """True if a send delays later ones, by a delay or by its part of the quota."""
        return self.delay > 0.0 or self.delay_per_slot > 0.0 or self.quota is not None

    @property
    def longest(self) -> float:
        """The longest possible interval, in seconds."""
        return max(max(self.delay, self.delay_per_slot) * self.jitter[1], self.floor)

    @property
    def shortest(self) -> float:
        """The shortest possible interval, in seconds, without the rest of slots."""
        return max(self.delay * self.jitter[0], self.floor)

    @property
    def usual(self) -> float:
        """The mean interval, in seconds, without the rest of slots."""
        return max(self.delay * (self.jitter[0] + self.jitter[1]) / 2.0, self.floor)

    @property
    def grid_step(self) -> float:
        """Seconds between two grid times for the sends of a rate; 0.0 while no grid applies.

        No grid applies without a rate, while backing off, and under a delay that a server requests.
        """
        if not self.limits.is_rate or self.floor > 0.0 or self.delay_limit != "delay":
            return 0.0
        return self.delay * (self.jitter[0] + self.jitter[1]) / 2.0

    def offset(self) -> float:
        """Return the drawn seconds from the next grid time to its send: at most one step; 0.0 without a grid."""
        low, high = self.jitter
        return self.delay * (self._factor(self.jitter) - low) / 2.0 if high > low and self.grid_step > 0.0 else 0.0

    def interval(self) -> float:
        """Return the drawn seconds from the latest send to the next one, without the rest of slots."""
        if (step := self.grid_step) > 0.0:
            return max(step - self._behind, 0.0) + self.offset()
        interval = self.delay * self._factor(self.jitter)
        if self.floor <= 0.0:
            return interval
        return max(interval, self.floor * self._factor(lengthening(self.jitter)))

    def is_shut(self, now: float, amount: float, patience: float) -> bool:
        """Return True if more than contention delays a request: a hold, the quota, or a long backed-off delay.

        A backed-off delay is long if more than ``patience`` seconds of it remain.
        """
        return (
            self.held_until > now
            or (self.quota is not None and self.quota.ready_at(now, amount) > now)
            or (
                self.delay_limit == "backoff" and self.delay > 0.0 and self.last_sent + self.interval() > now + patience
            )
        )

    def quiet_for(self, now: float) -> float:
        """Return the seconds for which a refused request that does not take this scope should wait."""
        return max(self.held_until - now, self.delay, self.delay_per_slot)

    def is_idle(self, now: float) -> bool:
        """Return True if forgetting the scope at ``now`` loses nothing important, apart from its policies' state."""
        return (
            not self.in_flight
            and not self.ahead
            and not self.lanes
            and self.held_until <= now
            and (self.quota is None or not self.quota.spent(now))
            and self.last_sent + self.longest <= now
        )

    # -- lanes that need the scope

    def need(self, amount: float | None, now: float) -> None:
        """Count a lane that needs the scope from ``now`` on, with the amount of its requests; None if unnamed."""
        if not self.lanes and not self.ahead:
            self.waits.needed_at = now
        self.lanes += 1
        if amount is not None:
            if self._amounts is None:
                self._amounts = MinCounter()
            self._amounts.add(amount)
        if self.gated or self._gated_at < inf:
            self._count_gated(now)

    def need_no_more(self, amount: float | None, now: float) -> None:
        """Stop counting such a lane."""
        self.lanes -= 1
        if amount is not None and self._amounts is not None:
            self._amounts.remove(amount)
        if self.gated or self._gated_at < inf:
            self._count_gated(now)

    @property
    def min_amount(self) -> float:
        """The smallest amount of a pending request; 1.0 if a request names none."""
        if self._amounts is None or not self._amounts.count:
            return 1.0
        least = self._amounts.least
        return least if self._amounts.count == self.lanes else min(least, 1.0)

    def wait_at_gate(self, now: float) -> None:
        """Count one of its lanes that waits for a robots.txt from ``now`` on."""
        self.gated += 1
        self._count_gated(now)

    def leave_gate(self, now: float) -> None:
        """Stop counting such a lane."""
        self.gated -= 1
        self._count_gated(now)

    def gated_for(self, now: float) -> float:
        """Return the seconds until ``now`` in which all pending requests waited for a robots.txt."""
        return self._gated_for + max(0.0, now - self._gated_at)

    def _count_gated(self, now: float) -> None:
        if 0 < self.lanes == self.gated:
            self._gated_at = min(self._gated_at, now)
        elif self._gated_at < inf:
            self._gated_for = self.gated_for(now)
            self._gated_at = inf
            self.waits.needed_at = now

    # -- the life of a request

    def add_ahead(self, amount: float = 1.0) -> None:
        """Count a request as ahead, because its middleware runs or has run and it holds no place."""
        self.ahead += 1
        self.ahead_amount += amount

    def drop_ahead(self, amount: float = 1.0) -> None:
        """Stop counting such a request, because it takes the scope or has ended."""
        self.ahead -= 1
        # Exactly 0.0 without such requests, because a sum of floats keeps a rounding error.
        self.ahead_amount = self.ahead_amount - amount if self.ahead else 0.0

    @property
    def is_careful(self) -> bool:
        """True if user code may respond to its requests, so each may count as sent when its preparation starts."""
        return self.caution > 0.0

    def start_preparing(self, now: float) -> None:
        """Record the start of a preparation at ``now`` that may count as a send."""
        if self.ahead > 1:  # the previous one may have used the draw
            self._drawn = None
        self.last_prepared = now

    def release(self, started_at: float) -> None:
        """Record that the preparation that started at that time does not count as a send.

        If it was the latest, earlier preparations delay nothing either, because it started an interval after them.
        """
        if self.last_prepared == started_at:
            self.last_prepared = -inf

    def let_through_one(self, took: float) -> bool:
        """Learn that user code let a request through in ``took`` seconds. Returns True if caution ends here."""
        if took > MIN_LEAD or self.preparation:
            self.preparation = _followed(self.preparation, min(took, MAX_PREPARATION), PATIENT)
        if self.caution <= 0.0 or took < AWAITED:
            return False
        self.caution -= 1.0
        return self.caution == 0.0

    def responded(self) -> None:
        """Record that user code responded to a request, so it may do so again."""
        self.caution = inf

    @property
    def patience(self) -> float:
        """Seconds for which a preparation delays others, because it may hang or work as long as a browser."""
        return MAX_PREPARATION if self.is_careful else MAX_LEAD + self.early

    @property
    def early(self) -> float:
        """Seconds by which a page is prepared before it may be granted.

        In a careful scope only the time to connect counts, and after a response of user code not even that.
        """
        if self.is_careful:
            return self.lead if self.caution < inf else 0.0
        return self.preparation + self.lead

    def prepares_at(self, now: float, amount: float = 1.0) -> float:
        """Return when a page of ``amount`` may be prepared, so that its middleware has run on time.

        If as many pages are ahead as may be sent soon, one more page would only become outdated. The limits are: one
        more than there are places, so that a page with hanging middleware does not block the only place; with a delay
        or a rest of slots, as many as are sent within the time to the send; with a quota, as much as one window allows;
        and no page that would wait behind another for a place.

        Returns:
            The earliest time; at or before ``now``: at once; ``inf``: another page must be sent or end first.
        """
        ahead, quota = self.ahead, self.quota
        if self.pages is not None and (self.pages.is_awaited or self.pages.is_awaited_with(ahead)):
            return inf
        is_careful = self.is_careful
        at = self._preparation_at()
        if quota is None or amount <= 0.0:
            return at
        refilled = quota.ready_at(now, amount)
        if now < refilled < inf:  # as in earliest_at()
            self.waits.refills[amount] = refilled
        if ahead:
            if amount + self.ahead_amount > quota.quota:
                return inf
            refilled = quota.ready_at(now, amount + self.ahead_amount)
        return max(at, refilled if is_careful else refilled - self.early)

    def _preparation_at(self) -> float:
        """Return when to prepare a request so that it is ready on time, without regard to quota and page budget.

        A careful scope prepares only what could be sent in addition to the requests ahead, as in :meth:`earliest_at`.
        """
        ahead, concurrency, is_careful, early = self.ahead, self.concurrency, self.is_careful, self.early
        at, is_full = self.held_until, self.in_flight + ahead >= concurrency
        if is_full and (is_careful or self.preparation <= 0.0 or (self.prepared > 0 and self.in_flight >= concurrency)):
            return inf
        if self.delay > 0.0:
            # After the first response of user code, requests in its middleware are spaced by their entry instead.
            before = self.unsent + (ahead if self.caution < inf else self.prepared)
            if before and self._is_covered(before, self.shortest):
                return inf
            at = max(at, self._next_at() - early)
        if self.delay_per_slot > 0.0:
            rest = self.delay_per_slot * (self.jitter[0] + self.jitter[1]) / 2.0
            if is_full and ahead and self._is_covered(self.unsent + ahead, rest / concurrency):
                return inf
            rested = self._slot_ready_at(ahead if is_careful else 0)
            if is_careful or rested < inf:
                at = max(at, rested - early)
        elif self.delay <= 0.0 and ahead > concurrency:
            return inf
        return at

    def is_far(self, at: float, now: float) -> bool:
        """Return True if ``at`` is so late that requests prepared for it are prepared again later."""
        return now + MAX_LEAD + self.preparation + self.lead < at < inf

    def _is_covered(self, ahead: int, interval: float) -> bool:
        """Return True if the requests ahead fill the time until a request prepared now would be ready."""
        covered, early = ahead * interval, self.early
        is_enough = covered >= early if self.jitter == EXACT else covered > early  # the next interval may be short
        return early <= 0.0 or is_enough or ahead >= MAX_AHEAD

    def take(self, now: float, amount: float = 1.0) -> int:
        """Take the scope for a request that may be granted. Returns the number of its slot, from 1."""
        limit, opened_at = self._last_to_open(self.waits.refilled(now, amount) if self.waits.refills else -inf, 0.0)
        self.waits.taken(now, limit, opened_at)
        if limit == "quota":
            self._refilled_at = opened_at
        self.grants += 1
        # Before it counts as unsent, because _spaced_at() reads that count.
        if self.lead > 0.0 and self.delay > 0.0:
            self._planned = max(now + self.lead, self._spaced_at())
        self.unsent += 1
        self.reserved += amount
        if self.pages is not None:
            self.pages.under_way += 1
        if self.quota is not None:
            self.quota.reserve(amount)
        self.in_flight += 1
        at = now + self.lead
        if self._slots is not None:
            return self._slots.take(at, self.concurrency, self._rest())
        # The only slot, which has rested, so the scope's own times are enough.
        if self.in_flight == 1 and (self.delay_per_slot <= 0.0 or self.last_sent + self._rest() <= at):
            return 1
        self._slots = Slots()
        # The existing slot, number 1, made the last send.
        self._slots.open(is_busy=self.in_flight > 1, sent_at=self.last_sent)
        return self._slots.take(at, self.concurrency, self._rest())

    def opens_at(self, slot: int, now: float, amount: float = 1.0) -> float:
        """Return when the request in ``slot`` may be written, decided again just before the send.

        Returns:
            The earliest time; at or before ``now``: at once; ``inf``: it needs another attempt, because the scope was
            closed since its attempt.
        """
        if (
            self.held_until > now
            # Above the limit, not at it, because the request itself is in flight.
            or self.in_flight > self.concurrency
            or (self.quota is not None and self.quota.stops(amount, now))
        ):
            return inf
        # Both times have passed. They are part of the result because lateness counts from it (:meth:`_behind_at`).
        at = max(self.held_until, self._refilled_at)
        if self.delay > 0.0:
            at = max(at, self._next_at())
        return max(at, self._rested_at(slot)) if self.delay_per_slot > 0.0 else at

    def sent(
        self,
        slot: int,
        now: float,
        amount: float = 1.0,
        granted_at: float = inf,
        due_at: float = -inf,
    ) -> None:
        """Record the send of the request in ``slot``. Delays, rest and the quota's window count from here.

        ``due_at`` is the time at which its other scopes, holds and quotas allowed it.
        """
        self.unsent -= 1
        took = now - granted_at
        is_responded = took <= 0.0 and self.caution == inf
        if self.delay + self.delay_per_slot > 0.0 and (took > MIN_LEAD or self.lead) and not is_responded:
            self.lead = _followed(self.lead, min(took, MAX_LEAD), QUICK)
        # Exactly 0.0 without such requests, because a sum of floats keeps a rounding error.
        self.reserved = self.reserved - amount if self.unsent else 0.0
        self.waits.sent(now, self.last_sent)
        # Before last_sent changes, because lateness is relative to the interval that ends with this send.
        if self.limits.is_rate:  # a late response of user code was not late itself
            self._behind = self.offset() if is_responded else self._behind_at(now, due_at)
        self.last_sent = max(self.last_sent, now)
        if self.last_prepared <= now:  # otherwise a later preparation has used the draw
            self._drawn = None
            if self.last_prepared == now:
                self.last_prepared = -inf
        if self._slots is not None:
            self._slots.sent(slot, now)
        if self.quota is not None:
            self.quota.charge(amount, now)
            if logger.isEnabledFor(logging.DEBUG) and self.quota.spent(now) > self.quota.quota - amount:
                left = self.quota.quota - self.quota.spent(now)
                logger.debug("%s: its quota of %g is spent, %.3g is left", self.id, self.quota.quota, max(left, 0.0))

    def _behind_at(self, now: float, due_at: float) -> float:
        """Return the seconds by which a send at ``now`` is behind its grid time, at most one step.

        The bound is GCRA's (ITU-T I.371) with a tolerance of one interval. Only lateness of a pending request counts,
        not its wait for another scope, a hold or a quota (until ``due_at``). It also counts only while the user's own
        rate applies: not while backing off or under a Crawl-delay, and not if one of these starts before that send.
        """
        if (step := self.grid_step) <= 0.0:
            self._applied_at = inf
            return 0.0
        due = max(self.last_sent + self.interval(), due_at)
        is_late = max(self.waits.needed_at, self._applied_at) <= due < now
        if self._applied_at == inf:  # the wait before this send had another cause than the rate
            self._applied_at = now
        return min(self.offset() + self._lateness(now - due if is_late else 0.0), step)

    def _lateness(self, late: float) -> float:
        """Return the part of ``late`` seconds that the next sends compensate."""
        return late

    def _behind_under(self, limits: Limits, now: float) -> float:
        """Return the value of :attr:`_behind` under ``limits`` that apply from ``now``.

        If a rate is raised, the remaining part of the current step shrinks as the steps do, so that the maximum also
        holds across the change. If it is lowered, the next step counts from the latest send.
        """
        if not (limits.is_rate and -inf < self.last_sent <= now and (step := self.grid_step) > 0.0):
            return 0.0
        new_step = limits.delay * (limits.jitter[0] + limits.jitter[1]) / 2.0
        passed = min((now - self.last_sent + self._behind) / step, 1.0)
        return min(self.last_sent - now + passed * new_step, 0.0)

    def resent(self, now: float) -> None:
        """Count a second attempt at ``now``, after a send over a dead connection, if no limit counts sends."""
        self.last_sent = now

    def draw(self, drawn: float | None = None) -> float:
        """Draw the number for the next send, from 0 to 1, or use ``drawn``, which another scope drew for it."""
        if drawn is None:
            if self._stream is None:
                self._stream = RandomStream(self._seed, self.id)
            drawn = self._stream.draw()
        self._drawn = drawn
        return drawn

    def written(self, slot: int, sent_at: float, now: float) -> None:
        """Count the send of ``slot`` at ``sent_at`` from ``now``, the end of its write, as the server does.

        If another request was sent since, its time counts. A rate compensates for the time of the write too.
        """
        if self.last_sent == sent_at:
            self.last_sent = now
            if (step := self.grid_step) > 0.0:
                self._behind = min(self._behind + self._lateness(now - sent_at), step)
        if self._slots is not None:
            self._slots.written(slot, sent_at, now)
        if self.quota is not None:
            self.quota.written(sent_at, now)

    def give(self, slot: int, *, was_sent: bool = True, amount: float = 1.0) -> None:
        """Release a place after the body was read or the request has failed.

        A request that was never sent also releases its interval and its amount.
        """
        self.in_flight -= 1
        if not was_sent:
            self.unsent -= 1
            self.reserved = self.reserved - amount if self.unsent else 0.0
            if self.quota is not None:
                self.quota.release(amount)
        if self._slots is not None:
            self._slots.give(slot)

    # -- changes by policies

    def hold(self, until: float, reason: Reason) -> None:
        """Send nothing before ``until``. The latest of several holds applies."""
        if until > self.held_until:
            self.held_until = until
            self.hold_reason = reason
        if reason.limit == "hint" and (self.hint is None or until > self.hint.until):
            self.hint = reason

    def lift(self, *, but_hints: bool = False) -> None:
        """End the hold. With ``but_hints`` a server's hold stays, even one behind a longer hold."""
        if not but_hints:
            self.hint = None
        self.hold_reason = self.hint
        self.held_until = -inf if self.hint is None else self.hint.until

    def correct(self, difference: float, now: float, sent_at: float | None = None) -> None:
        """Correct the quota by ``difference`` (negative: a refund) for a request sent at ``sent_at``.

        Without a quota this has no effect.
        """
        if self.quota is not None:
            self.quota.correct(difference, now, sent_at)

    def set_remaining(self, remaining: float, now: float) -> None:
        """Set the remaining quota in the current window. Without a quota this has no effect."""
        if self.quota is not None:
            self.quota.set_remaining(remaining, now)

    # -- for a job that continues in another process

    def resting(self, now: float) -> tuple[float, ...]:
        """Return the last sends of the slots that still rest at ``now``."""
        rest = self.delay_per_slot * self.jitter[1]
        if rest <= 0.0 or self._slots is None:
            return ()
        return tuple([at for at in self._slots.sent_at if at + rest > now])

    def restore(self, sent_at: float, slots: tuple[float, ...] = ()) -> None:
        """Restore the sends of an earlier run: the latest send, and the sends of resting slots, in event loop time."""
        self.last_sent = max(self.last_sent, sent_at)
        if slots and not self.in_flight:
            self._slots = Slots()
            for at in slots:
                self._slots.open(is_busy=False, sent_at=at)

    # -- inside

    def _last_to_open(self, refilled: float, lead: float) -> tuple[str, float]:
        """Return the name and the time of the last one to open among the holds, the delays and the quota.

        :meth:`earliest_at` computes the same times without the names, for speed.

        Args:
            refilled: Time at which the quota has or had room; ``-inf`` if it does not delay the request.
            lead: Seconds by which a request may be granted before its delays end.
        """
        limit, at = "", self.held_until
        if self.hold_reason is not None:
            limit = self.hold_reason.limit
        if self.delay > 0.0 and (spaced := self._spaced_at() - lead) > at:
            limit, at = self._spacing()[0], spaced
        if self.delay_per_slot > 0.0 and (rested := self._slot_ready_at() - lead) > at:
            limit, at = "delay_per_slot", rested
        if at <= refilled != -inf:
            limit, at = "quota", refilled
        return limit, at

    def _spacing(self) -> tuple[LimitName, str]:
        """Return the limit that separates two sends, and its source: a floor if the drawn delay is shorter."""
        if self.floor_source and self.delay * self._factor(self.jitter) < self.interval():
            return "robots", self.floor_source
        return self.delay_limit, self.delay_source

    def _factor(self, jitter: tuple[float, float]) -> float:
        """Return the factor of the interval before the next send, drawn when first needed and kept until that send."""
        low, high = jitter
        if low == high == 1.0:
            return 1.0
        drawn = self.draw() if self._drawn is None else self._drawn
        return low + (high - low) * drawn

    def _rest(self) -> float:
        return self.delay_per_slot * self._factor(self.jitter) if self.delay_per_slot > 0.0 else 0.0

    def _spaced_at(self) -> float:
        """Return the planned time of the next send by delay alone; ``inf`` while it depends on an earlier send.

        Behind requests between grant and send it is a plan that uses the shortest possible interval, and only as far
        ahead as one more request may be granted.
        """
        if not self.unsent:
            return self._next_at()
        step = self.shortest
        if self.lead <= 0.0 or self.unsent * step > self.lead or self.unsent >= MAX_AHEAD:
            return inf
        return max(self._next_at(), self._planned + step)

    def _next_at(self) -> float:
        """Return the time of the next send by delay alone, after all sends and preparations that may count as sends."""
        at = self.last_sent + self.interval()
        return at if self.last_prepared == -inf else max(at, self.last_prepared + (self.grid_step or self.interval()))

    def _rested_at(self, slot: int) -> float:
        """Return when a taken slot will have rested, by the draw at its attempt; ``-inf`` if no slot is taken."""
        if not slot:
            return -inf
        if self._slots is None:
            return self.last_sent + self._rest()
        return max(self._slots.rested_at(slot), self._slots.last_sent(slot) + self.delay_per_slot * self.jitter[0])

    def _slot_ready_at(self, ahead: int = 0) -> float:
        if self._slots is not None:
            return self._slots.ready_at(self.concurrency, self._rest(), ahead)
        # A second slot may be opened, or the only one is busy, which earliest_at() has checked.
        if self.concurrency - ahead > 1 or self.in_flight:
            return -inf
        return self.last_sent + self._rest()


def _followed(lead: float, took: float, patience: float) -> float:
    """Return the new lead after a request needed ``took`` seconds. It rises quickly and falls slowly.

    The first request counts fully. After that, the lead rises by half of the difference, so that one slow lookup does
    not bring several requests forward. It falls by ``1 / patience`` of the difference, so that if the times vary, most
    requests are ready before their send time. With an eighth, a tenth of a rate was lost.
    """
    followed = lead + (took - lead) / (2.0 if took > lead else patience) if lead else took
    if abs(took - followed) < MIN_LEAD:
        followed = took
    return 0.0 if followed < MIN_LEAD else followed
