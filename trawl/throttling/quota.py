"""The quota and the page budget of a scope.

An amount is *reserved* when a request takes its scope, and *charged* when the request is sent. A reserved amount counts
against the quota like a charged one, so that requests that are still connecting cannot overdraw it. The window starts
at the first charge and ends as a whole, or it slides: then each charge leaves it ``window`` seconds later. Windows are
half open, ``[t, t + window)``, so a send at 0.0 does not count at 60.0.

The page budget limits the pages of a scope in the whole crawl. A request that takes its scope also takes a page until
its result is known, so that requests in flight can't exceed the budget: a page counts, but a redirect, a failure or a
retry does not. When the last pages were received, pending requests end (``pages_filtered``), and take nothing. Counts
are kept when idle scopes are forgotten, and with a job also when the process ends.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from trawl.throttling.limit import PATIENCE, Limit
from trawl.throttling.snapshot import QuotaSnapshot

if TYPE_CHECKING:
    from trawl.throttling.allowance import Allowance
    from trawl.throttling.scope import Scope
    from trawl.throttling.traffic import Traffic

__all__ = ["PageBudget", "PageBudgets", "Quota", "spent"]

logger: logging.Logger = logging.getLogger("trawl.throttling")


class PageBudget(Limit):
    """The page budget of one scope. Hot for scopes with a budget, so mutable and slotted."""

    __slots__ = ("counted", "limit", "opened_at", "sub_requests", "under_way")

    spaces: ClassVar[bool] = False
    hears_sends: ClassVar[bool] = True
    hears_ends: ClassVar[bool] = True

    def __init__(self, limit: float, counted: int = 0) -> None:
        super().__init__("pages")
        self.limit: float = limit  # maximum number of pages; `inf` for no limit
        self.counted: int = counted  # pages received
        self.under_way: int = 0  # requests in flight that may become pages, without requests of rendered pages
        self.opened_at: float = -inf  # time of the last end of a request that may have been the last page
        # Requests of rendered pages, pending or in flight. They never become pages, so they do not wait for the budget.
        # While there are any, it is open for their lanes, and the scheduler calls `is_awaited_with` for others.
        self.sub_requests: int = 0

    def prepares_at(self, scope: Scope, now: float, amount: float) -> float:
        """Return ``inf`` if the requests in flight and those ahead may be the last pages."""
        return inf if not self.sub_requests and self.is_awaited_with(scope.traffic.ahead) else self.opened_at

    def earliest_at(self, scope: Scope, now: float, amount: float) -> float:
        """Return ``inf`` if the requests in flight may be the last pages."""
        # When one of them ends, the scheduler is notified and calls this again.
        return inf if not self.sub_requests and self.is_awaited_with(0) else self.opened_at

    def taken(self, scope: Scope, now: float, amount: float) -> None:
        """Count a request that may become a page."""
        self.under_way += 1

    def ended(self, scope: Scope, now: float, amount: float, was_sent: bool) -> None:
        """Record when such a request ends, if others may have waited for it."""
        if self.is_awaited_with(0):
            self.opened_at = now

    def delays(self, scope: Scope, now: float, until: float, amount: float, wanted: float, ahead: int) -> bool:
        """Return True if one more request may be the last page."""
        return self.is_awaited_with(ahead + 1) and until <= now + PATIENCE

    def is_awaited_with(self, more: int) -> bool:
        """Return True if the requests in flight, and ``more`` others, may be the last pages."""
        return self.counted < self.limit <= self.counted + self.under_way + more

    @property
    def is_spent(self) -> bool:
        """True if all pages were received, so that no page may start anymore."""
        return self.counted >= self.limit

    def decide(self, *, is_page: bool) -> bool:
        """Record the end of a request in flight. Returns True if another request may have waited for it."""
        was_awaited = self.is_awaited_with(0)
        self.under_way = max(0, self.under_way - 1)  # the request may be older than the budget
        self.counted += is_page
        return was_awaited or self.is_spent


class PageBudgets:
    """The page budgets of a crawl, by scope, including forgotten scopes."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, PageBudget] = {}

    def keep(self, scope: Scope) -> None:
        """Restore the count of a scope that was created or got other limits."""
        kept = self._kept.get(scope.id)
        if kept is not None:
            kept.limit = scope.limits.pages
            scope.pages = kept
            scope.arrange()
        elif scope.pages is not None:
            self._kept[scope.id] = scope.pages

    def counts(self) -> dict[str, int]:
        """Return the number of received pages by scope, to be stored."""
        return {id: pages.counted for id, pages in self._kept.items() if pages.counted}

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Forget the budgets of scopes that fulfill ``is_gone``, because another process continues with them."""
        for id in [id for id in self._kept if is_gone(id)]:
            del self._kept[id]

    def restore(self, counts: Mapping[str, int]) -> None:
        """Restore the page counts of an earlier run, or later ones of the same run. The larger count applies."""
        for id, counted in counts.items():
            # A scope may already have the budget, because its limit was set at run time.
            kept = self._kept.setdefault(id, PageBudget(inf))
            kept.counted = max(kept.counted, counted)


def spent(scopes: Iterable[Scope]) -> str | None:
    """Return ``"pages_filtered"`` if one of these scopes has received all its pages, else None."""
    for scope in scopes:
        if scope.pages is not None and scope.pages.is_spent:
            return "pages_filtered"
    return None


_SLACK = 1e-9  # three amounts of 0.1 are 0.30000000000000004, and fit a quota of 0.3


class Quota(Limit):
    """The quota of one scope: at most that amount in a window of that many seconds. A window of 0.0 never blocks."""

    __slots__ = (
        "_charges",
        "_ends_at",
        "_is_awaited",
        "_spent",
        "_spent_at",
        "allowance",
        "is_late",
        "quota",
        "refilled_at",
        "refills",
        "reserved",
        "sliding",
        "told",
        "traffic",
        "window",
    )

    counts_sends: ClassVar[bool] = True
    hears_sends: ClassVar[bool] = True
    hears_ends: ClassVar[bool] = True

    def __init__(self, quota: float, window: float, *, sliding: bool = False, reserved: float = 0.0) -> None:
        super().__init__("quota")
        self.quota: float = quota
        self.window: float = window
        self.sliding: bool = sliding
        self.reserved: float = reserved
        # The scope's requests, among them those that are ahead; None without a scope.
        self.traffic: Traffic | None = None
        # The amount that may be spent before the job is stored again; None without a job.
        self.allowance: Allowance | None = None
        # True if requests were queued before this quota existed. The scheduler queues them again.
        self.is_late: bool = False
        # Number of times at which room was made other than by time. Waiting lanes are then checked again.
        self.refills: int = 0
        # Event loop times at which there is room for an amount that did not fit, by amount. Time removes charges.
        self.told: dict[float, float] = {}
        self.refilled_at: float = -inf  # the latest of these times for the last granted request
        self._spent = 0.0
        self._spent_at = -inf  # latest charge in a window that does not slide
        self._ends_at = -inf
        self._is_awaited = False
        self._charges: deque[tuple[float, float]] = deque()

    def apply_limits(self, quota: float, window: float, *, sliding: bool, now: float = -inf) -> None:
        """Change the limits. The amount spent in the window at ``now`` stays, and a finished window stays finished."""
        self._pass_time(now)
        if not self._spent:
            self._ends_at = -inf
        if sliding and not self.sliding and self._spent:
            self._charges.append((max(self._spent_at, self._ends_at - self.window), self._spent))
        elif self.sliding and not sliding and self._charges:
            self._ends_at = self._charges[0][0] + window
            self._charges.clear()
        elif not sliding:
            self._ends_at += window - self.window
        self.quota = quota
        self.window = window
        self.sliding = sliding
        self.refills += 1

    def spent(self, now: float) -> float:
        """Return the amount used in the window at ``now``, without reserved amounts."""
        self._pass_time(now)
        return self._spent

    def left(self, now: float) -> tuple[float, float]:
        """Return what remains, and the seconds until the spent amount (half of it if the window slides) is back."""
        self._pass_time(now)
        at = self._falls_to(self._spent / 2) if self._spent else now + self.window
        return max(self.quota - self._spent - self.reserved, 0.0), at - now

    def ready_at(self, now: float, amount: float) -> float:
        """Return the event loop time at which ``amount`` fits; ``-inf`` for now, ``inf`` if only a release makes room.

        An amount above the whole quota fits when nothing is spent.
        """
        if amount <= 0.0 or self.window <= 0.0 or self.quota == inf:
            return -inf
        self._pass_time(now)
        used = self._spent + self.reserved
        room = max(self.quota * (1.0 + _SLACK) - amount, 0.0)
        if used <= room:
            return -inf if self.allowance is None or self.allowance.covers(amount, now) else inf
        # Time does not free reserved amounts. charge() and release() report when they change.
        if self.reserved > room:
            self._is_awaited = True
            return inf
        return self._falls_to(room - self.reserved)

    # -- as a limit

    def prepares_at(self, scope: Scope, now: float, amount: float) -> float:
        """Return when ``amount`` can be ready on time, if it and the amounts ahead fit one window together."""
        if amount <= 0.0:
            return -inf
        at, ahead = self.earliest_at(scope, now, amount), scope.traffic.ahead_amount
        if scope.traffic.ahead:
            if amount + ahead > self.quota:
                return inf
            at = self.ready_at(now, amount + ahead)
        return at if scope.is_careful else at - scope.early

    def earliest_at(self, scope: Scope, now: float, amount: float) -> float:
        """Return when ``amount`` fits, or since when."""
        at = self.ready_at(now, amount)
        if now < at < inf:
            self.told[amount] = at
        return self._fitted_at(now, amount) if self.told and at <= now else at

    def opens_at(self, scope: Scope, slot: int, now: float, amount: float) -> float:
        """Return ``inf`` if a reserved amount must not be spent."""
        return inf if self.stops(amount, now) else self.refilled_at

    def taken(self, scope: Scope, now: float, amount: float) -> None:
        """Reserve the amount of a granted request."""
        if self.told:
            self.refilled_at = max(self.refilled_at, self._fitted_at(now, amount))
            self.told = {each: at for each, at in self.told.items() if at > now}
        self.reserve(amount)

    def sent(self, scope: Scope, now: float, amount: float, due_at: float) -> None:
        """Charge it."""
        self.charge(amount, now)
        if logger.isEnabledFor(logging.DEBUG) and (left := self.quota - self._spent) < amount:
            logger.debug("%s: its quota of %g is spent, %.3g is left", scope.id, self.quota, max(left, 0.0))

    def written(self, scope: Scope, sent_at: float, now: float) -> None:
        """Move the charge of ``sent_at`` to ``now`` if it is the latest one, because its write ended only now."""
        if not self.sliding:
            if self._spent_at == sent_at:
                self._spent_at = now
            if self._ends_at == sent_at + self.window:
                self._ends_at = now + self.window
        elif self._charges and self._charges[-1][0] == sent_at:
            self._charges[-1] = (now, self._charges[-1][1])

    def ended(self, scope: Scope, now: float, amount: float, was_sent: bool) -> None:
        """Release the amount of a request that was not sent."""
        if not was_sent:
            self.release(amount)

    def delays(self, scope: Scope, now: float, until: float, amount: float, wanted: float, ahead: int) -> bool:
        """Return True if ``wanted`` fits only after ``until`` once ``amount`` is spent."""
        return self.fits_at(wanted, now, amount + (scope.traffic.ahead_amount if ahead else 0.0)) > until

    def is_idle(self, scope: Scope, now: float) -> bool:
        """Return True if nothing is spent."""
        return not self.spent(now)

    def _fitted_at(self, now: float, amount: float) -> float:
        """Return since when ``amount`` fits. A time without room for a smaller amount had none for it either."""
        return max([at for least, at in self.told.items() if least <= amount and at <= now], default=-inf)

    # -- the account

    def stops(self, amount: float, now: float) -> bool:
        """Return True if the reserved ``amount`` must not be spent, because it would overdraw the quota now.

        This happens if the quota was lowered, or a response reported a higher consumption, after the reservation. It
        also happens if connecting took longer than the allowance is valid.
        """
        if amount <= 0.0 or self.window <= 0.0:
            return False
        if self.allowance is not None and not self.allowance.holds(now):
            return True
        return self.spent(now) > max(self.quota * (1.0 + _SLACK) - amount, 0.0)

    def fits_at(self, amount: float, now: float, more: float = 0.0) -> float:
        """Return the event loop time at which ``amount`` fits, if reserved amounts and ``more`` are spent now."""
        if amount <= 0.0 or self.window <= 0.0 or self.quota == inf:
            return now
        self._pass_time(now)
        room = max(self.quota * (1.0 + _SLACK) - amount, 0.0)
        coming = self.reserved + more
        if self._spent + coming <= room:
            return now
        if not self.sliding:
            return self._ends_at if self._ends_at > now else now + self.window
        return self._falls_to(room - coming) if coming <= room else now + self.window

    def reserve(self, amount: float) -> None:
        """Reserve ``amount`` for a request that takes the scope."""
        self.reserved += amount
        if self.allowance is not None:
            self.allowance.take(amount)

    def release(self, amount: float) -> None:
        """Release a reserved amount, because the request was not sent."""
        self._unreserve(amount)
        if self.allowance is not None:
            self.allowance.take(-amount)
        self.refills += 1

    def charge(self, amount: float, now: float) -> None:
        """Turn a reserved amount into a charge, because the request is sent at ``now``."""
        self._unreserve(amount)
        self._add(amount, now)
        if self._is_awaited:  # a lane that waits for a release can get a time now
            self._is_awaited = False
            self.refills += 1

    def correct(self, difference: float, now: float, sent_at: float | None = None) -> None:
        """Add ``difference`` to the spent amount, or refund it if it is negative; at least 0 remains.

        A refund has no effect if the request was sent (``sent_at``) before the current window, which does not have its
        charge.
        """
        self._pass_time(now)
        if difference >= 0.0:
            self._add(difference, now)
            if difference and self.allowance is not None:
                self.allowance.correct(difference)
        elif sent_at is None or sent_at >= (now if self.sliding else self._ends_at) - self.window:
            self._refund(-difference)

    def set_remaining(self, remaining: float, now: float) -> None:
        """Set the remaining amount of the current window, as the server reports it."""
        self._pass_time(now)
        self.correct(self.quota - max(0.0, min(remaining, self.quota)) - self._spent, now)

    def snapshot(self, now: float) -> QuotaSnapshot | None:
        """Return the amount spent at ``now``, in event loop time; None if it is 0. Reserved amounts do not count."""
        self._pass_time(now)
        if not self._spent:
            return None
        return QuotaSnapshot(spent=self._spent, ends_at=self._ends_at, window=self.window, charges=tuple(self._charges))

    def restore(self, state: QuotaSnapshot, now: float) -> QuotaSnapshot:
        """Add the amount that an earlier run has spent; times are event loop times.

        A finished window does not count. If the window's length has changed, its start stays the same. If it slides now
        and did not before, or the reverse, the spent amount counts from the time at which it is known. The part whose
        window has ended is returned, because it may count if a longer window is set.
        """
        self._pass_time(now)
        latest = now + self.window  # a clock that was set back must not make a window longer
        begun_at = state.ends_at - (state.window or self.window)
        left = QuotaSnapshot(window=state.window)
        if not self.sliding:
            ends_at = (state.charges[0][0] if state.charges else begun_at) + self.window
            if ends_at > now:
                self._ends_at = min(ends_at, latest)  # the amount spent since then belongs to this window, too
                self._spent += state.spent
            else:
                left = replace(state, unknown=0.0)
        else:
            charges = [(min(at, now), amount) for at, amount in state.charges or ((begun_at, state.spent),)]
            over = [each for each in charges if each[0] + self.window <= now]
            if over:
                left = QuotaSnapshot(spent=sum([each[1] for each in over]), window=state.window, charges=tuple(over))
            self._charges = deque(sorted([*self._charges, *charges]))
            self._spent = sum([amount for _, amount in self._charges])
        self._pass_time(now)
        self._add(state.unknown, min(state.unknown_at, now))
        self._pass_time(now)
        self.refills += 1
        return left

    def _unreserve(self, amount: float) -> None:
        left = self.reserved - amount
        # A rounding error of floats would stay reserved forever.
        self.reserved = left if left > amount * _SLACK else 0.0

    def _add(self, amount: float, now: float) -> None:
        if amount <= 0.0 or self.window <= 0.0:
            return
        self._pass_time(now)
        self._spent += amount
        if not self.sliding:
            self._spent_at = max(self._spent_at, now)
            if self._ends_at <= now:
                self._ends_at = now + self.window
            return
        charges, later = self._charges, []
        while charges and charges[-1][0] > now:  # user code took a while to respond
            later.append(charges.pop())
        if charges and charges[-1][0] == now:
            amount += charges.pop()[1]
        charges.append((now, amount))
        charges.extend(reversed(later))

    def _refund(self, amount: float) -> None:
        self.refills += 1
        self._spent = max(0.0, self._spent - amount)
        # Refund the oldest first, so that the remaining charges leave the window later, never too early.
        while amount > 0.0 and self._charges:
            at, charged = self._charges.popleft()
            if charged > amount:
                self._charges.appendleft((at, charged - amount))
            amount -= charged
        if self.sliding and not self._charges:
            self._spent = 0.0

    def _pass_time(self, now: float) -> None:
        if self.sliding:
            charges = self._charges
            while charges and charges[0][0] + self.window <= now:
                self._spent -= charges.popleft()[1]
            if not charges:
                self._spent = 0.0
        elif self._ends_at <= now:
            self._spent = 0.0

    def _falls_to(self, room: float) -> float:
        """Return the event loop time at which at most ``room`` is spent."""
        if not self.sliding:
            return self._ends_at
        left = self._spent
        for at, amount in self._charges:
            left -= amount
            if left <= room + self.quota * _SLACK:
                return at + self.window
        return self._charges[-1][0] + self.window
