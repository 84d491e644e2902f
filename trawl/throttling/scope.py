"""One throttling scope: its limits, its requests, and the decision when the next request may be sent.

docs/explanation/throttle.md explains the decision. :meth:`Scope.prepares_at`, :meth:`Scope.earliest_at` and
:meth:`Scope.opens_at` decide when a request may be prepared (only if user code runs before its send), granted and
written. Each calls the same method of every limit in force (:mod:`trawl.throttling.limit`), and the latest time counts.
At or before ``now`` means at once, and ``inf`` that only another request's *sent* or *give* can change the result. ::

             take                            opens_at, sent                         give
      open ───────► closed (on the way to the wire) ──► closed until sent + delay - lead ──► open
        ▲                     │ give, never sent: nothing was used
        └─────────────────────┘

Limits change only by :meth:`Scope.arrange`, which policies call with the effective limits
(:meth:`ScopeState.apply <trawl.throttling.policy.ScopeState.apply>`), and which configuring, restoring and holding end
with. It also builds the tuple of limits in force, so this tuple always matches the effective limits.

One random number is drawn for each send and kept until that send, so every change of a delay or of its jitter applies
to a waiting request. A delay that a server requests, or that was found by refusals, is a *floor*: only the lengthening
part of the jitter applies to it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from trawl.throttling.limit import NUMBERED, Concurrency, Hold, Limit, NumberLimit, Rate, SlotRest, Spacing
from trawl.throttling.limits import CONFIGURED, EXACT, UNLIMITED, EffectiveLimits, Limits, Slots, lengthening
from trawl.throttling.quota import PageBudget, Quota
from trawl.throttling.reasons import Reason, Waits
from trawl.throttling.traffic import MAX_AHEAD, MAX_LEAD, MAX_PREPARATION, MIN_LEAD, Traffic

if TYPE_CHECKING:
    from trawl.http import Outcome
    from trawl.throttling.common import ScopeHolder

__all__ = ["CONFIGURED", "MAX_LEAD", "MIN_LEAD", "Scope"]

AWAITED = 0.01
"""Seconds. User code that takes less before a send does not end caution, because caution costs no more than this."""


class Scope:
    """The state of one scope. Used for every request, so mutable and slotted.

    Args:
        id: Its id.
        limits: The configured limits, which are also the first effective limits.
        seed: The run's seed, for the random draws.

    Attributes:
        id: Its id.
        limits: The configured limits.
        effective: The limits as policies have changed them. Only :meth:`arrange` replaces them.
        traffic: The facts about its requests.
        waits: The lanes that need it, and the waiting times of its requests, by limit.
        places: The limit of requests in flight.
        spacing: The delay between two sends.
        held: The hold.
        quota: The quota; None if there is none.
        pages: The page budget; None if there is none.
        numbered: The limits that need nothing but a number, such as the bandwidth.
        in_force: The limits that may close it, in the order in which they are named if several open at the same time.
        hear_sends: The limits that are told of grants and sends.
        hear_ends: The limits that are told of ends.
        hear_responses: The limits that are told of responses and failures.
        closed_by: The limit that opens last, by the latest decision; None if none has closed it yet.
        step: Number of backoff steps. Each send remembers the number at its grant.
        grants: Number of times that the scope was taken.
        state: The state of its policies.
        holders: The crawls that share it; empty if it belongs to one crawl.
    """

    __slots__ = (
        "closed_by",
        "effective",
        "grants",
        "hear_ends",
        "hear_responses",
        "hear_sends",
        "held",
        "holders",
        "id",
        "in_force",
        "limits",
        "numbered",
        "pages",
        "places",
        "quota",
        "spacing",
        "state",
        "step",
        "traffic",
        "waits",
    )

    def __init__(self, id: str, limits: Limits, *, seed: int | str = 0) -> None:
        self.id: str = id
        self.traffic: Traffic = Traffic(id, seed)
        self.waits: Waits = Waits()
        self.places: Concurrency = Concurrency()
        self.spacing: Spacing = Spacing()
        self.held: Hold = Hold()
        self.quota: Quota | None = None
        self.pages: PageBudget | None = None
        self.numbered: tuple[NumberLimit, ...] = ()
        self.closed_by: Limit | None = None
        self.step: int = 0
        self.grants: int = 0
        self.state: Any = None
        self.holders: tuple[ScopeHolder, ...] = ()
        self.apply_limits(limits)

    # -- its limits

    @property
    def is_shared(self) -> bool:
        """True if other processes use it too."""
        return False

    def apply_limits(self, limits: Limits, now: float = -inf) -> None:
        """Apply ``limits`` at ``now``. Requests in flight, spent amounts and holds stay. Policies apply on top."""
        self.limits: Limits = limits
        before, self.spacing = self.spacing, Spacing()
        if limits.is_rate:
            self.spacing = rate = Rate(now, is_shared=self.is_shared)
            rate.replace(before, limits.delay, limits.jitter, self.traffic, now)
        if self.pages is not None:
            self.pages.limit = limits.pages
        elif limits.pages < inf:
            self.pages = PageBudget(limits.pages)
        if limits.quota == inf:
            self.quota = None
        elif self.quota is None:
            self.quota = Quota(limits.quota, limits.window, sliding=limits.sliding, reserved=self.traffic.reserved)
            self.quota.traffic = self.traffic
            # Waiting lanes are ordered by turn, and must now be ordered by share.
            self.quota.is_late = self.waits.lanes > 0
        else:
            self.quota.apply_limits(limits.quota, limits.window, sliding=limits.sliding, now=now)
        wanted = [make for make in NUMBERED if getattr(limits, make.key) != UNLIMITED[make.key]]
        self.numbered = tuple([self._numbered(make, limits) for make in wanted])
        self.arrange(EffectiveLimits(limits.concurrency, limits.delay, limits.delay_per_slot, limits.jitter))

    def _numbered(self, make: type[NumberLimit], limits: Limits) -> NumberLimit:
        number = getattr(limits, make.key)
        for limit in self.numbered:
            if limit.name == make.key:
                limit.number = number
                return limit
        return make(number)

    def arrange(self, effective: EffectiveLimits | None = None) -> None:
        """Apply the effective limits, if they have changed, and determine which limits are in force."""
        if effective is not None:
            self.effective: EffectiveLimits = effective
        wanted = self.effective
        places, spacing = self.places, self.spacing
        places.limit, places.source = wanted.concurrency, wanted.concurrency_source
        spacing.name, spacing.source = wanted.delay_limit, wanted.delay_source
        spacing.set(wanted.delay, wanted.jitter, is_slowed=wanted.floor > 0.0 or wanted.delay_limit != "delay")
        in_force: list[Limit] = [places] if wanted.concurrency < inf else []
        for limit in (self.pages, self.quota, *self.numbered):
            if limit is not None:
                limit.source = wanted.source
                in_force.append(limit)
        if self.held.until > -inf:
            in_force.append(self.held)
        if wanted.delay > 0.0:
            in_force.append(spacing)
        if wanted.floor > 0.0:
            floor = Spacing()
            floor.set(wanted.floor, lengthening(wanted.jitter))
            floor.name, floor.source = spacing.name, spacing.source
            if wanted.floor_source:
                floor.name, floor.source = "robots", wanted.floor_source
            in_force.append(floor)
        if wanted.delay_per_slot > 0.0:
            rest = SlotRest(wanted.delay_per_slot, wanted.jitter, places)
            # Backoff does not change it.
            rest.source = wanted.delay_source if wanted.delay_limit == "delay" else wanted.source
            in_force.append(rest)
        self.in_force: tuple[Limit, ...] = tuple(in_force)
        self.hear_sends: tuple[Limit, ...] = tuple([limit for limit in in_force if limit.hears_sends])
        self.hear_ends: tuple[Limit, ...] = tuple([limit for limit in in_force if limit.hears_ends])
        self.hear_responses: tuple[Limit, ...] = tuple([limit for limit in in_force if limit.hears_responses])

    def hold(self, until: float, reason: Reason) -> None:
        """Send nothing before ``until``. The latest of several holds applies."""
        self.held.hold(until, reason)
        self.arrange()

    def lift(self, *, but_hints: bool = False) -> None:
        """End the hold. With ``but_hints`` a server's hold stays, even one behind a longer hold."""
        self.held.lift(but_hints=but_hints)
        self.arrange()

    # -- the decision

    def prepares_at(self, now: float, amount: float = 1.0) -> float:
        """Return when a page of ``amount`` may be prepared, so that its middleware has run on time.

        At or before ``now`` means at once, and ``inf`` that another page must be sent or end first. If as many pages
        are ahead as may be sent soon, one more would only become outdated.
        """
        at = -inf
        for limit in self.in_force:
            at = max(at, limit.prepares_at(self, now, amount))
            if at == inf:
                break
        return at

    def earliest_at(self, now: float, amount: float = 1.0) -> float:
        """Return when a request of ``amount`` may be granted. :attr:`closed_by` is then the limit that opens last.

        At or before ``now`` means at once, and ``inf`` that only a released place or a send can change this.
        """
        at, last = -inf, None
        for limit in self.in_force:
            opens = limit.earliest_at(self, now, amount)
            if opens > at:
                at, last = opens, limit
                if at == inf:  # no other limit opens later
                    break
        self.closed_by = last
        return at

    def opens_at(self, slot: int, now: float, amount: float = 1.0) -> float:
        """Return when the request in ``slot`` may be written, decided again just before the send.

        At or before ``now`` means at once, and ``inf`` that it needs another grant, because the scope was closed since.
        """
        at = -inf
        for limit in self.in_force:
            at = max(at, limit.opens_at(self, slot, now, amount))
        return at

    def reason(self, now: float, amount: float = 1.0) -> Reason:
        """Explain the result of :meth:`earliest_at`. The ``limit`` is empty if the scope is open at ``now``."""
        at = self.earliest_at(now, amount)
        last = self.closed_by
        if at <= now or last is None:
            return Reason(self.id, "", at, "")
        return last.reason(self, now, at + self.traffic.lead if last.leads else at)

    # -- other questions

    def delays(self, now: float, until: float, amount: float, wanted: float, *, prepares: bool = False) -> bool:
        """Return True if a request of ``amount`` that is granted now could delay one of ``wanted`` beyond ``until``.

        A request to be prepared (``prepares``) needs a place behind the requests ahead.
        """
        ahead = self.traffic.ahead if prepares else 0
        return any(limit.delays(self, now, until, amount, wanted, ahead) for limit in self.in_force)

    def foreseen_at(self, now: float, amount: float) -> float:
        """Return when a request of ``amount`` may be granted, as far as time decides and not other requests."""
        at = now if self.quota is None else self.quota.fits_at(amount, now)
        for limit in self.in_force:
            opens = limit.earliest_at(self, now, amount)
            if at < opens < inf:
                at = opens
        return at

    @property
    def counts_sends(self) -> bool:
        """True if a send delays later ones, by a delay or by its part of the quota."""
        return any(limit.counts_sends for limit in self.in_force)

    @property
    def is_spaced(self) -> bool:
        """True if a delay or a delay per slot is in force."""
        return self.effective.delay + self.effective.delay_per_slot > 0.0

    def interval(self) -> float:
        """Return the drawn seconds from the latest send to the next one, without the rest of slots."""
        spacings = [limit.interval(self.traffic) for limit in self.in_force if isinstance(limit, Spacing)]
        return max(spacings, default=0.0)

    def quiet_for(self, now: float) -> float:
        """Return the seconds for which a refused request that does not take this scope should wait."""
        return max(self.held.until - now, self.effective.delay, self.effective.delay_per_slot)

    def is_idle(self, now: float) -> bool:
        """Return True if forgetting the scope at ``now`` loses nothing important, apart from its policies' state."""
        return (
            not self.traffic.in_flight
            and not self.traffic.ahead
            and not self.waits.lanes
            and all(limit.is_idle(self, now) for limit in self.in_force)
        )

    def is_far(self, at: float, now: float) -> bool:
        """Return True if ``at`` is so late that requests prepared for it are prepared again later."""
        return now + MAX_LEAD + self.traffic.preparation + self.traffic.lead < at < inf

    def is_covered(self, number: int, interval: float) -> bool:
        """Return True if ``number`` requests fill the time until a request prepared now would be ready."""
        covered, early = number * interval, self.early
        # With jitter, the next interval may be short.
        is_enough = covered >= early if self.effective.jitter == EXACT else covered > early
        return early <= 0.0 or is_enough or number >= MAX_AHEAD

    # -- user code that may respond

    @property
    def is_careful(self) -> bool:
        """True if user code may respond to its requests, so each may count as sent when its preparation starts."""
        return self.traffic.caution > 0.0

    def let_through_one(self, took: float) -> bool:
        """Learn that user code let a request through in ``took`` seconds. Returns True if caution ends here."""
        self.traffic.measure_preparation(took)
        if self.traffic.caution <= 0.0 or took < AWAITED:
            return False
        self.traffic.caution -= 1.0
        return self.traffic.caution == 0.0

    def responded(self) -> None:
        """Record that user code responded to a request, so it may do so again."""
        self.traffic.caution = inf

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
            return self.traffic.lead if self.traffic.caution < inf else 0.0
        return self.traffic.preparation + self.traffic.lead

    # -- the life of a request

    def take(self, now: float, amount: float = 1.0) -> int:
        """Take the scope for a request that may be granted. Returns the number of its slot, from 1."""
        self._count_wait(now, amount)
        traffic = self.traffic
        self.grants += 1
        traffic.take(amount, now)
        for limit in self.hear_sends:
            limit.taken(self, now, amount)
        effective = self.effective
        rest = effective.delay_per_slot
        if rest > 0.0 and effective.jitter[1] != 1.0:
            low, high = effective.jitter
            rest *= low + (high - low) * traffic.drawn
        at = now + traffic.lead
        if traffic.slots is None:
            # The only slot, which has rested, so the scope's own times are enough.
            if traffic.in_flight == 1 and (rest <= 0.0 or traffic.last_sent + rest <= at):
                return 1
            traffic.slots = Slots()
            # The existing slot, number 1, made the last send.
            traffic.slots.open(is_busy=traffic.in_flight > 1, sent_at=traffic.last_sent)
        return traffic.slots.take(at, effective.concurrency, rest)

    def _count_wait(self, now: float, amount: float) -> None:
        """Count the time until a request takes the scope for the limit that opened last."""
        opened_at, opened_by, due_at, spaced_by = -inf, None, -inf, None
        for limit in self.in_force:
            opens = limit.earliest_at(self, now, amount)
            if not limit.spaces:
                if opens > opened_at:
                    opened_at, opened_by = opens, limit
                continue
            if limit.leads:
                opens += self.traffic.lead
            if opens > due_at:
                due_at, spaced_by = opens, limit
        if opened_at > due_at:
            self.waits.taken(now, opened_by, opened_at, due_at)
        else:
            self.waits.taken(now, spaced_by, due_at, due_at)

    def sent(self, slot: int, now: float, amount: float = 1.0, granted_at: float = inf, due_at: float = -inf) -> None:
        """Record the send of the request in ``slot``. Delays, rest and the quota's window count from here.

        ``due_at`` is the time at which its other scopes, holds and quotas allowed it.
        """
        traffic, effective = self.traffic, self.effective
        took = now - granted_at
        if took <= 0.0 and self.traffic.caution == inf:
            due_at = inf  # a response of user code
        elif effective.delay + effective.delay_per_slot > 0.0:
            traffic.measure_lead(took)
        self.waits.sent(now, traffic.last_sent)
        for limit in self.hear_sends:
            limit.sent(self, now, amount, due_at)
        traffic.sent(slot, now, amount)

    def resent(self, now: float) -> None:
        """Count a second attempt at ``now``, after a send over a dead connection, if no limit counts sends."""
        self.traffic.last_sent = now

    def written(self, slot: int, sent_at: float, now: float) -> None:
        """Count the send of ``slot`` at ``sent_at`` from ``now``, the end of its write, as the server does.

        If another request was sent since, its time counts. A rate compensates for the time of the write too.
        """
        for limit in self.hear_sends:
            limit.written(self, sent_at, now)
        self.traffic.written(slot, sent_at, now)

    def give(self, slot: int, *, was_sent: bool = True, amount: float = 1.0, now: float = -inf) -> None:
        """Release a place at ``now``, after the body was read or the request has failed.

        A request that was never sent also releases its interval and its amount.
        """
        for limit in self.hear_ends:
            limit.ended(self, now, amount, was_sent)
        self.traffic.give(slot, amount, was_sent=was_sent)

    def heard(self, outcome: Outcome, now: float) -> None:
        """Record the response or the error of a request, once. Its place is still taken."""
        for limit in self.hear_responses:
            limit.heard(outcome, now)

    def correct(self, difference: float, now: float, sent_at: float | None = None) -> None:
        """Correct the quota, if any, by ``difference`` (negative: a refund) for a request sent at ``sent_at``."""
        if self.quota is not None:
            self.quota.correct(difference, now, sent_at)

    def set_remaining(self, remaining: float, now: float) -> None:
        """Set what remains of the quota, if there is one, in the current window."""
        if self.quota is not None:
            self.quota.set_remaining(remaining, now)
