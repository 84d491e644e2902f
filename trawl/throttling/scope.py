"""One throttling scope: its places, its times, and the decision when the next request may be sent.

A scope's delay is decided in :meth:`Scope.gate`; :meth:`Scope.opens_at` decides once more, right at the wire, when the
request may be written. The limits that it reads are put together in
:meth:`ScopeState.apply <trawl.throttling.policy.ScopeState.apply>` (configured, AutoThrottle, rampup, robots.txt,
backoff); holds (:meth:`Scope.hold`) come from an answer, in :mod:`trawl.throttling.outcomes`.

Theory of operation. A request *takes* the scope, goes to the wire (*sent*), and *gives* its place back when the body is
read. Spacing counts sends, not takes: the next instant counts from the send. A request that takes its time to the wire
(middleware, a new connection) takes the scope earlier by its *lead*, the time that others took, and waits at the wire
for its instant; so may those behind it, as many as come to the wire within a lead. Without one, a scope with a delay is
closed from a take until that request is sent, or fails before it was. ::

             take                            opens_at, sent                         give
      open ───────► closed (on the way to the wire) ──► closed until sent + delay - lead ──► open
        ▲                     │ give, never sent: nothing was used
        └─────────────────────┘

Where a user's own code runs before the send, a page is *prepared* first, which takes nothing: :meth:`Scope.prepares_at`
says when, so that it is prepared at its instant, and that enough are ahead of it. When that code has run it is a
request like any other. But that code may respond itself. While it may, the scope is careful: a preparation starts only
when a request could be sent, beside what is ahead, and counts as one until it is known that it is none.

The answer is an instant: at or before ``now`` means go, later means not before then, ``inf`` means that only another
request's *sent* or *give* can help. Policies, hints and the user change a limit by setting the attributes in force and
reporting the scope as changed; nothing is cached here that such a change would leave stale.

One number is drawn for each send and lasts until it; it becomes a factor by the jitter in force and multiplies the
delays in force, so that a request which waits feels every change (A20). A delay that a server asks for, or that was
learned by being refused, is a *floor*: of the jitter only the part that lengthens applies to it.

A *rate* is a ceiling, so its sends follow a grid of instants that are 1/rate apart (:attr:`Scope.grid_step`). Each send
goes at its instant plus an offset that is drawn (:meth:`Scope.offset`), at most one step later. Two intervals therefore
can't both be short: the send after a late one is only as early as the grid. ::

    grid    |---------|---------|---------|---------|       t seconds hold at most t * rate + 2 sends,
    sends      x         x  x                x x             because each send is at most one step behind its instant

The scope remembers how far its latest send was behind its instant (``_behind``): the offset, and lateness that is made
up for. Lateness of more than one step, or that is not the rate's, moves the grid.

Length: one object has all that the decision reads; in two, each limit would be asked for across them, in the hot path.
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
"""Seconds. A request is granted at most so much before it may be sent, and waits at the wire for at most so long."""

MAX_PREPARATION = 30.0
"""Seconds. A page is prepared at most so much before it may be granted."""

MIN_LEAD = 0.0001
"""Seconds. Below it the way to the wire is not worth an earlier grant: of a delay of 0.1 s it is a thousandth."""

QUICK, PATIENT = 32.0, 512.0
"""The part of the difference by which a lead, and a preparation, become shorter each time: what is prepared too early
holds nothing."""

MAX_AHEAD = 64
"""Maximum number of requests of a scope with a delay that are on their way to the wire at once."""

CONFIGURED = "configuration"
"""The source of a limit unless a policy set it."""


class Scope:
    """The state of one scope: hot, so mutable and slotted.

    Args:
        id: Its name.
        limits: The configured limits; copied to those in force.
        seed: The run's seed, for the draws.

    Attributes:
        id: Its name.
        limits: The configuration.
        concurrency: Requests in flight at most, now; ``inf`` for no limit.
        delay: Seconds between two sends, now, before jitter.
        delay_per_slot: Seconds between two sends of a slot, now, before jitter.
        floor: The part of ``delay`` that is somebody else's wish (robots.txt) or backing off: no interval is drawn
            shorter than it. Seconds; 0.0 for none.
        jitter: The range of the factor for both delays, now.
        lead: Seconds that a request takes from its grant to the wire, as measured: with spacing it is granted so much
            earlier.
        preparation: Seconds that the middleware of a page takes before its send, as measured: it is prepared so much
            earlier.
        quota: The quota, or None.
        pages: The page budget, or None.
        in_flight: Requests that have taken a place and not given it back.
        ahead: Requests that are being prepared and not overdue, or are prepared and wait for this scope.
        prepared: The pages among them that are prepared.
        ahead_amount: The amount that those that are ahead are expected to use.
        unsent: Requests that have a place and are not on the wire yet.
        reserved: The amount these are expected to use, also without a quota: one may be set before they are sent.
        step: The number of backoff steps; each send remembers the one it was granted under (B19).
        grants: The number of times it was taken.
        last_sent: The instant of the latest send; ``-inf`` before the first.
        last_prepared: When the latest preparation started that may count as a send yet; ``-inf``: there is none.
        caution: Requests that user code is yet to let through before it is taken to respond to none; ``inf`` once it
            has responded to one; -1: there is none, as far as is known.
        held_until: No send before this instant, whatever the delays say.
        hold_reason: The reason of that hold.
        hint: The longest hold that a server has asked for; None: none has.
        delay_limit: The name of the delay in an explanation: ``"backoff"`` or ``"robots"`` where these set it.
        delay_source: The source of the delay in force.
        floor_source: The source of the floor, if it is not the delay in force.
        concurrency_source: The source of the concurrency in force.
        quota_source: The source of the quota, and of everything else that is as configured, such as the page budget.
        lanes: Lanes with something pending that need it.
        gated: Those of them that wait for a robots.txt.
        waits: The time that its requests waited, by limit.
        state: What the policies learned of this scope.
        holders: The crawls that have it in common; empty where it is of one alone.
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
        self._refilled_at = -inf  # when its quota last let something go that waited for it
        self._gated_at = inf
        self._gated_for = 0.0
        self._amounts: MinCounter | None = None  # made when an amount is named: few scopes have a quota
        self._slots: Slots | None = None  # made when a second slot is needed: most hosts have one
        self.apply_limits(limits)

    def apply_limits(self, limits: Limits, now: float = -inf) -> None:
        """Put ``limits`` in force at ``now``; what is in flight, spent and held stays. Policies add theirs on top."""
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
            # Lanes that wait already stand by turn, and are to stand by share.
            self.quota.is_late = self.lanes > 0
        else:
            self.quota.apply_limits(limits.quota, limits.window, sliding=limits.sliding, now=now)

    # -- the decision

    def gate(self, now: float, amount: float = 1.0) -> float:
        """Decide when a request of ``amount`` may go.

        Returns:
            The earliest instant; at or before ``now``: it may go; ``inf``: only a give-back or a send helps.
        """
        if self.in_flight >= self.concurrency:
            return inf
        # When one of those under way has ended, the scheduler is told, and asks again.
        if self.pages is not None and self.pages.is_awaited:
            return inf
        at = self.held_until
        if self.delay > 0.0:
            at = max(at, self._spaced_at() - self.lead)
        if self.delay_per_slot > 0.0:
            at = max(at, self._slot_ready_at() - self.lead)
        if self.quota is not None:
            refilled = self.quota.ready_at(now, amount)
            # For the account of waits: when it goes, the quota tells nothing of this instant any more.
            if now < refilled < inf:
                self.waits.refills[amount] = refilled
            at = max(at, refilled)
        return at

    def reason(self, now: float, amount: float = 1.0) -> Reason:
        """Explain the answer of :meth:`gate`; its ``limit`` is empty if the scope is open at ``now``."""
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
            source = self.delay_source if self.delay_limit == "delay" else self.quota_source  # backoff leaves it alone
        else:
            source = self._spacing()[1]
        until = at + lead
        if self.unsent and self.delay > 0.0 and until < inf and limit != "delay_per_slot":
            # A plan: the one before it may come to the wire sooner than usual.
            until = min(until, max(self.last_sent + self.interval(), now) + self.unsent * self.shortest)
        return Reason(self.id, limit, until, source)

    @property
    def full(self) -> str:
        """The limit that lets no request through until something is given back; "" for none."""
        if self.in_flight >= self.concurrency:
            return "concurrency"
        return "pages" if self.pages is not None and self.pages.is_awaited else ""

    def is_tight(self) -> bool:
        """Return True if one more could be in another's way: it has spacing or a quota, or one place is left."""
        return (
            self.concurrency - self.in_flight <= 1
            or self.delay > 0.0
            or self.delay_per_slot > 0.0
            or self.quota is not None
            or self.pages is not None
        )

    @property
    def counts_sends(self) -> bool:
        """True if a send keeps later ones waiting: by spacing, or by what it uses of the quota."""
        return self.delay > 0.0 or self.delay_per_slot > 0.0 or self.quota is not None

    @property
    def longest(self) -> float:
        """The longest interval that may be drawn, in seconds."""
        return max(max(self.delay, self.delay_per_slot) * self.jitter[1], self.floor)

    @property
    def shortest(self) -> float:
        """The shortest interval that may be drawn, in seconds, the rest of slots left out."""
        return max(self.delay * self.jitter[0], self.floor)

    @property
    def usual(self) -> float:
        """The mean of the intervals that may be drawn, in seconds, the rest of slots left out."""
        return max(self.delay * (self.jitter[0] + self.jitter[1]) / 2.0, self.floor)

    @property
    def grid_step(self) -> float:
        """Seconds between two instants of the grid that the sends of a rate follow; 0.0 while no grid is in force.

        None is in force without a rate, while backing off, and under a delay that a server asks for.
        """
        if not self.limits.is_rate or self.floor > 0.0 or self.delay_limit != "delay":
            return 0.0
        return self.delay * (self.jitter[0] + self.jitter[1]) / 2.0

    def offset(self) -> float:
        """Seconds from the next instant of the grid to its send, as drawn: at most one step; 0.0 without a grid."""
        low, high = self.jitter
        return self.delay * (self._factor(self.jitter) - low) / 2.0 if high > low and self.grid_step > 0.0 else 0.0

    def interval(self) -> float:
        """Seconds from the latest send to the next one, as drawn for that, the rest of slots left out."""
        if (step := self.grid_step) > 0.0:
            return max(step - self._behind, 0.0) + self.offset()
        interval = self.delay * self._factor(self.jitter)
        if self.floor <= 0.0:
            return interval
        return max(interval, self.floor * self._factor(lengthening(self.jitter)))

    def is_shut(self, now: float, amount: float, patience: float) -> bool:
        """Return True if more than contention is in the way: a hold, the quota, or a long backed-off delay.

        A backed-off delay is long when over ``patience`` seconds of it are left.
        """
        return (
            self.held_until > now
            or (self.quota is not None and self.quota.ready_at(now, amount) > now)
            or (
                self.delay_limit == "backoff" and self.delay > 0.0 and self.last_sent + self.interval() > now + patience
            )
        )

    def quiet_for(self, now: float) -> float:
        """Seconds for which a request that passes it by, and was refused, is to leave it alone."""
        return max(self.held_until - now, self.delay, self.delay_per_slot)

    def is_idle(self, now: float) -> bool:
        """Return True if forgetting it loses nothing that matters at ``now``, its policies' state left out."""
        return (
            not self.in_flight
            and not self.ahead
            and not self.lanes
            and self.held_until <= now
            and (self.quota is None or not self.quota.spent(now))
            and self.last_sent + self.longest <= now
        )

    # -- lanes that need it

    def need(self, amount: float | None, now: float) -> None:
        """Count a lane that needs it from ``now`` on, with the amount that its requests name; None: none."""
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
        """Count such a lane no more."""
        self.lanes -= 1
        if amount is not None and self._amounts is not None:
            self._amounts.remove(amount)
        if self.gated or self._gated_at < inf:
            self._count_gated(now)

    @property
    def min_amount(self) -> float:
        """The least amount that a pending request asks of it; 1.0 where one names none."""
        if self._amounts is None or not self._amounts.count:
            return 1.0
        least = self._amounts.least
        return least if self._amounts.count == self.lanes else min(least, 1.0)

    def wait_at_gate(self, now: float) -> None:
        """Count a lane of its own that waits for a robots.txt from ``now`` on."""
        self.gated += 1
        self._count_gated(now)

    def leave_gate(self, now: float) -> None:
        """Count such a lane no more."""
        self.gated -= 1
        self._count_gated(now)

    def gated_for(self, now: float) -> float:
        """Seconds, until ``now``, for which everything that was pending waited for a robots.txt."""
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
        """Count a request as ahead: its middleware runs, or has run, and it waits here; it holds nothing."""
        self.ahead += 1
        self.ahead_amount += amount

    def drop_ahead(self, amount: float = 1.0) -> None:
        """Count it no more: it takes the scope, or ends before."""
        self.ahead -= 1
        # Exactly 0.0 where none is left: a sum of floats keeps a rest.
        self.ahead_amount = self.ahead_amount - amount if self.ahead else 0.0

    @property
    def is_careful(self) -> bool:
        """True if user code may respond to its requests: each may count as sent when its preparation starts."""
        return self.caution > 0.0

    def start_preparing(self, now: float) -> None:
        """Note that a preparation starts at ``now`` which may count as a send."""
        if self.ahead > 1:  # the one before may have used the draw
            self._drawn = None
        self.last_prepared = now

    def release(self, started_at: float) -> None:
        """Note that the preparation that started at that instant counts as no send.

        If it was the latest, those before it keep nothing off either: it started an interval behind them.
        """
        if self.last_prepared == started_at:
            self.last_prepared = -inf

    def let_through_one(self, took: float) -> bool:
        """Learn from a request that user code let through in so many seconds. True: it is careful no more."""
        if took > MIN_LEAD or self.preparation:
            self.preparation = _followed(self.preparation, min(took, MAX_PREPARATION), PATIENT)
        if self.caution <= 0.0:
            return False
        self.caution -= 1.0
        return self.caution == 0.0

    def responded(self) -> None:
        """Note that user code responded to a request: it may do so again."""
        self.caution = inf

    @property
    def patience(self) -> float:
        """Seconds for which a preparation keeps others from starting: it may hang, or work as a browser does."""
        return MAX_PREPARATION if self.is_careful else MAX_LEAD + self.early

    @property
    def early(self) -> float:
        """Seconds by which a page is prepared before it may be granted."""
        return self.preparation + self.lead

    def prepares_at(self, now: float, amount: float = 1.0) -> float:
        """Decide when a page of ``amount`` may be prepared, so that its middleware has run at its instant.

        When as many are ahead as may go soon, one more would only get old. That is one more than there are places, so
        that one whose middleware hangs keeps no other from the only one; with a delay, or a rest of its slots, as many
        as are sent within the time that it takes to the wire; of a quota what one window lets through; and none that
        waits behind another for a place.

        Returns:
            The earliest instant; at or before ``now``: it may now; ``inf``: another has to be sent, or to end.
        """
        ahead, quota = self.ahead, self.quota
        if self.pages is not None and (self.pages.is_awaited or self.pages.is_awaited_with(ahead)):
            return inf
        is_careful = self.is_careful
        at = self._careful_at() if is_careful else self._early_at()
        if quota is None or amount <= 0.0:
            return at
        refilled = quota.ready_at(now, amount)
        if now < refilled < inf:  # as in gate()
            self.waits.refills[amount] = refilled
        if ahead:
            if amount + self.ahead_amount > quota.quota:
                return inf
            refilled = quota.ready_at(now, amount + self.ahead_amount)
        return max(at, refilled if is_careful else refilled - self.early)

    def _early_at(self) -> float:
        """Return when a page may be prepared, quota and page budget left out, to have it prepared at its instant."""
        ahead, concurrency, early = self.ahead, self.concurrency, self.early
        at, is_full = self.held_until, self.in_flight + self.ahead >= self.concurrency
        if is_full and (self.preparation <= 0.0 or (self.prepared > 0 and self.in_flight >= concurrency)):
            return inf
        if self.delay > 0.0:
            if self.unsent + ahead and self._is_covered(self.unsent + ahead, self.shortest):
                return inf
            at = max(at, self._next_at() - early)
        if self.delay_per_slot > 0.0:
            rest = self.delay_per_slot * (self.jitter[0] + self.jitter[1]) / 2.0
            if is_full and ahead and self._is_covered(self.unsent + ahead, rest / concurrency):
                return inf
            if (rested := self._slot_ready_at()) < inf:
                at = max(at, rested - early)
        elif self.delay <= 0.0 and ahead > concurrency:
            return inf
        return at

    def _careful_at(self) -> float:
        """Return when a request may be prepared, quota and page budget left out, if that may count as a send.

        As :meth:`gate` does, beside what is ahead. Until it is known that user code responds, one at a time: else it
        would lose half of a rate if it only awaits something.
        """
        at = self.held_until
        if self.in_flight + self.ahead >= self.concurrency:
            return inf
        if self.delay > 0.0:
            if self.unsent or self.prepared or (self.ahead and self.caution < inf):
                return inf
            at = max(at, self._next_at())
        return at if self.delay_per_slot <= 0.0 else max(at, self._slot_ready_at(self.ahead))

    def is_far(self, at: float, now: float) -> bool:
        """Return True if ``at`` is so far away that what is prepared for it is prepared again later."""
        return now + MAX_LEAD + self.early < at < inf

    def _is_covered(self, ahead: int, interval: float) -> bool:
        """Return True if as many are ahead as are sent until one that is prepared now is there."""
        covered, early = ahead * interval, self.early
        is_enough = covered >= early if self.jitter == EXACT else covered > early  # the next may be short
        return early <= 0.0 or is_enough or ahead >= MAX_AHEAD

    def take(self, now: float, amount: float = 1.0) -> int:
        """Take the scope for a request that :meth:`gate` lets through. Returns the number of its slot, from 1."""
        limit, opened_at = self._last_to_open(self.waits.refilled(now, amount) if self.waits.refills else -inf, 0.0)
        self.waits.taken(now, limit, opened_at)
        if limit == "quota":
            self._refilled_at = opened_at
        self.grants += 1
        # Before it counts as unsent, which _spaced_at() looks at.
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
        # The only slot, and it has rested: the scope's own times do for it.
        if self.in_flight == 1 and (self.delay_per_slot <= 0.0 or self.last_sent + self._rest() <= at):
            return 1
        self._slots = Slots()
        # The slot that there was so far, number 1, is the one that sent last.
        self._slots.open(is_busy=self.in_flight > 1, sent_at=self.last_sent)
        return self._slots.take(at, self.concurrency, self._rest())

    def opens_at(self, slot: int, now: float, amount: float = 1.0) -> float:
        """Decide once more, at the wire, when the request in ``slot`` may be written.

        Returns:
            The earliest instant; at or before ``now``: it may be written; ``inf``: it needs another grant, because the
            scope was closed since its own.
        """
        if (
            self.held_until > now
            # Above, not at the limit: it is in flight itself.
            or self.in_flight > self.concurrency
            or (self.quota is not None and self.quota.stops(amount, now))
        ):
            return inf
        # Both have passed; they are part of the answer because lateness counts from it (:meth:`_late_by`).
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
        """Note that the request in ``slot`` went to the wire: spacing, rest and the quota's window count from here.

        Its other scopes, holds and quotas let it through from ``due_at`` on.
        """
        self.unsent -= 1
        took = now - granted_at
        is_responded = took <= 0.0 and self.caution == inf
        if self.delay + self.delay_per_slot > 0.0 and (took > MIN_LEAD or self.lead) and not is_responded:
            self.lead = _followed(self.lead, min(took, MAX_LEAD), QUICK)
        # Exactly 0.0 where none is left: a sum of floats keeps a rest.
        self.reserved = self.reserved - amount if self.unsent else 0.0
        self.waits.sent(now, self.last_sent)
        # Before last_sent moves: it is late against the interval that ends with this send.
        if self.limits.is_rate:  # what user code responded late was not late itself
            self._behind = self.offset() if is_responded else self._behind_at(now, due_at)
        self.last_sent = max(self.last_sent, now)
        if self.last_prepared <= now:  # else what was prepared since has used it
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
        """Return the seconds by which a send at ``now`` is behind its instant of the grid: at most one step.

        The bound is GCRA's (ITU-T I.371) with a tolerance of one interval. Only lateness of a pending request counts,
        not its wait for another scope, a hold or a quota (until ``due_at``), and only where the rate is the user's own:
        not while backing off or under a Crawl-delay, nor where these begin before that send.
        """
        if (step := self.grid_step) <= 0.0:
            self._applied_at = inf
            return 0.0
        due = max(self.last_sent + self.interval(), due_at)
        is_late = max(self.waits.needed_at, self._applied_at) <= due < now
        if self._applied_at == inf:  # the wait before this send was not the rate's
            self._applied_at = now
        return min(self.offset() + self._lateness(now - due if is_late else 0.0), step)

    def _lateness(self, late: float) -> float:
        """Return what is made up for of ``late`` seconds."""
        return late

    def _behind_under(self, limits: Limits, now: float) -> float:
        """Return what :attr:`_behind` is under ``limits`` that are put in force at ``now``.

        Where a rate is raised, the rest of the step that runs shrinks as the steps do, so that the ceiling holds over
        the change as well. Where it is lowered, the next step counts from the latest send.
        """
        if not (limits.is_rate and -inf < self.last_sent <= now and (step := self.grid_step) > 0.0):
            return 0.0
        new_step = limits.delay * (limits.jitter[0] + limits.jitter[1]) / 2.0
        passed = min((now - self.last_sent + self._behind) / step, 1.0)
        return min(self.last_sent - now + passed * new_step, 0.0)

    def resent(self, now: float) -> None:
        """Count a request that goes again, at ``now``, where its first send was in vain and no limit counts sends."""
        self.last_sent = now

    def draw(self, drawn: float | None = None) -> float:
        """Draw the number for the next send, from 0 to 1; or take ``drawn``, which another scope drew for it."""
        if drawn is None:
            if self._stream is None:
                self._stream = RandomStream(self._seed, self.id)
            drawn = self._stream.draw()
        self._drawn = drawn
        return drawn

    def written(self, slot: int, sent_at: float, now: float) -> None:
        """Count what ``slot`` sent at ``sent_at`` from ``now``, when its write has ended: a server sees the later one.

        Where another request was sent since, that one's time counts. A rate makes up for the time of the write too.
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
        """Free a place: the body is read, or there will be none.

        What was never sent gives its spacing and its amount back.
        """
        self.in_flight -= 1
        if not was_sent:
            self.unsent -= 1
            self.reserved = self.reserved - amount if self.unsent else 0.0
            if self.quota is not None:
                self.quota.release(amount)
        if self._slots is not None:
            self._slots.give(slot)

    # -- what policy moves

    def hold(self, until: float, reason: Reason) -> None:
        """Let nothing through before ``until``; the latest of several holds wins."""
        if until > self.held_until:
            self.held_until = until
            self.hold_reason = reason
        if reason.limit == "hint" and (self.hint is None or until > self.hint.until):
            self.hint = reason

    def lift(self, *, but_hints: bool = False) -> None:
        """End the hold; with ``but_hints`` what a server has asked for still holds, also behind a longer hold."""
        if not but_hints:
            self.hint = None
        self.hold_reason = self.hint
        self.held_until = -inf if self.hint is None else self.hint.until

    def correct(self, difference: float, now: float, sent_at: float | None = None) -> None:
        """Correct the quota by ``difference`` (negative: a refund) for a request sent at ``sent_at``.

        Without a quota it has no effect.
        """
        if self.quota is not None:
            self.quota.correct(difference, now, sent_at)

    def set_remaining(self, remaining: float, now: float) -> None:
        """Set what is left of the quota in the window that runs; without a quota, no effect."""
        if self.quota is not None:
            self.quota.set_remaining(remaining, now)

    # -- for a job that goes on in another process

    def resting(self, now: float) -> tuple[float, ...]:
        """Return the last sends of the slots that still rest at ``now``."""
        rest = self.delay_per_slot * self.jitter[1]
        if rest <= 0.0 or self._slots is None:
            return ()
        return tuple([at for at in self._slots.sent_at if at + rest > now])

    def restore(self, sent_at: float, slots: tuple[float, ...] = ()) -> None:
        """Count the sends of an earlier run: the latest, and those of slots that rest; instants on the run clock."""
        self.last_sent = max(self.last_sent, sent_at)
        if slots and not self.in_flight:
            self._slots = Slots()
            for at in slots:
                self._slots.open(is_busy=False, sent_at=at)

    # -- inside

    def _last_to_open(self, refilled: float, lead: float) -> tuple[str, float]:
        """Name the one that opens last of the holds, the delays and the quota, and say when.

        :meth:`gate` has the same instants without the names, for speed.

        Args:
            refilled: The instant at which the quota has room, or has had; ``-inf``: it is not in the way.
            lead: Seconds by which a request may leave before its delays are over.
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
        """Return the limit that keeps two sends apart, and its source: a floor, if the delay that was drawn is less."""
        if self.floor_source and self.delay * self._factor(self.jitter) < self.interval():
            return "robots", self.floor_source
        return self.delay_limit, self.delay_source

    def _factor(self, jitter: tuple[float, float]) -> float:
        """Return the factor of the interval before the next send: drawn when first needed, kept until that send."""
        low, high = jitter
        if low == high == 1.0:
            return 1.0
        drawn = self.draw() if self._drawn is None else self._drawn
        return low + (high - low) * drawn

    def _rest(self) -> float:
        return self.delay_per_slot * self._factor(self.jitter) if self.delay_per_slot > 0.0 else 0.0

    def _spaced_at(self) -> float:
        """Return the instant planned for the next send, by spacing alone; ``inf`` while it depends on an earlier one.

        Behind requests on their way to the wire it is a plan, with the shortest interval that may be drawn, and only
        as far ahead as one more can be on its way.
        """
        if not self.unsent:
            return self._next_at()
        step = self.shortest
        if self.lead <= 0.0 or self.unsent * step > self.lead or self.unsent >= MAX_AHEAD:
            return inf
        return max(self._next_at(), self._planned + step)

    def _next_at(self) -> float:
        """Return the instant of the next send by spacing alone, behind the sends and what may count as one yet."""
        at = self.last_sent + self.interval()
        return at if self.last_prepared == -inf else max(at, self.last_prepared + (self.grid_step or self.interval()))

    def _rested_at(self, slot: int) -> float:
        """Return the instant at which a taken slot will have rested, by the draw at its grant; 0: none is taken."""
        if not slot:
            return -inf
        if self._slots is None:
            return self.last_sent + self._rest()
        return max(self._slots.rested_at(slot), self._slots.last_sent(slot) + self.delay_per_slot * self.jitter[0])

    def _slot_ready_at(self, ahead: int = 0) -> float:
        if self._slots is not None:
            return self._slots.ready_at(self.concurrency, self._rest(), ahead)
        # A second slot may be opened; or the only one is busy, which gate() has said.
        if self.concurrency - ahead > 1 or self.in_flight:
            return -inf
        return self.last_sent + self._rest()


def _followed(lead: float, took: float, patience: float) -> float:
    """Have a lead follow a request that took so many seconds to the wire: quickly up, slowly down.

    The first one counts whole. Then up by half of the difference, so that one look-up that hangs does not bring several
    requests forward; and down by ``1 / patience`` of it, so that where the times vary most requests come to the wire
    before their instant. Down by an eighth, a tenth of a rate was lost.
    """
    followed = lead + (took - lead) / (2.0 if took > lead else patience) if lead else took
    if abs(took - followed) < MIN_LEAD:
        followed = took
    return 0.0 if followed < MIN_LEAD else followed
