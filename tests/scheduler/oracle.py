"""A slow second implementation of the throttling rules, over all pending requests.

It keeps its own record of the requests in flight, the send times and the slots. It derives which lanes can send by
reading every limit of every scope. The scheduler must agree at every step of a random history.
"""

from __future__ import annotations

import random
from math import inf

from tests.scheduler.rig import Rig
from trawl.scheduler.attempt import Attempt
from trawl.scheduler.lanes import Lane
from trawl.scheduler.scope_queue import PASSES
from trawl.throttling.limit import PATIENCE
from trawl.throttling.limits import Limits
from trawl.throttling.reasons import Reason

NAMES = "abcdefgh"


class Account:
    """The events of one scope."""

    def __init__(self) -> None:
        self.connecting: set[Attempt] = set()
        self.busy: dict[int, Attempt] = {}
        self.last_sent = -inf
        self.planned = -inf
        self.slot_sent: dict[int, float] = {}
        self.charges: list[tuple[float, float]] = []


class History:
    """One random history, checked at every step.

    Args:
        seed: Each history has its own.
        far: True for a few scopes that often open more than PATIENCE later, so that lanes take reservations over.
    """

    def __init__(self, seed: int, *, far: bool = False) -> None:
        self.random = rng = random.Random(seed)
        self.far = far
        self.names = NAMES[: 4 if far else rng.randint(2, 8)]
        limits = {
            name: Limits(
                concurrency=rng.choice([1, 1, 2, 3, 8, inf]),
                delay=rng.choice([0, 0, 0.1, 60.0 if far else 0.3, 1.0]),
                delay_per_slot=rng.choice([0, 0, 0, 0.5, 1.0]),
                quota=rng.choice([inf, inf, 5.0]),
                window=rng.choice([2.0, 100.0 if far else 2.0, 0.0]),
                sliding=rng.random() < 0.5,
            )
            for name in self.names
        }
        self.vetoed: set[Attempt] = set()
        self.sign = rng.choice([1, 1, -1])
        self.rig = Rig(
            limits,
            places=rng.choice([1, 2, 4, 16]),
            depth_first=self.sign < 0,
            vet=lambda attempt, now: "no" if attempt in self.vetoed else None,
        )
        self.accounts = {name: Account() for name in self.names}
        self.in_flight: list[Attempt] = []
        self.pushed: list[Attempt] = []
        self.corrected: set[str] = set()
        self.seed = seed

    # -- the rules

    def is_open(self, attempt: Attempt, index: int) -> bool:
        name = attempt.scopes[index][0]
        scope, account, now = self.rig.scope(name), self.accounts[name], self.rig.now
        if len(account.busy) >= scope.effective.concurrency or scope.held.until > now:
            return False
        if scope.effective.delay > 0 and self.planned(name) - scope.traffic.lead > now:
            return False
        if scope.quota is not None and scope.quota.ready_at(now, attempt.amount(index)) > now:
            return False
        if scope.effective.delay_per_slot <= 0:
            return True
        slots = int(min(scope.effective.concurrency, len(account.slot_sent) + len(account.busy) + 1))
        return any(
            number not in account.busy
            and account.slot_sent.get(number, -inf) + scope.effective.delay_per_slot - scope.traffic.lead <= now
            for number in range(1, slots + 1)
        )

    def planned(self, name: str) -> float:
        """Return the time of the next send according to the delay alone."""
        scope, account = self.rig.scope(name), self.accounts[name]
        at = account.last_sent + scope.effective.delay
        if not account.connecting:
            return at
        is_too_far = (
            len(account.connecting) * scope.effective.delay > scope.traffic.lead or len(account.connecting) >= 64
        )
        return inf if is_too_far or not scope.traffic.lead else max(at, account.planned + scope.effective.delay)

    def is_blocked(self, attempt: Attempt) -> bool:
        """Return whether a scope is reserved for another lane, which would wait longer if this attempt were sent."""
        lane, now, queues = attempt.lane, self.rig.now, self.rig.scheduler.queues.scope_queues
        for index, (name, _) in enumerate(attempt.scopes):
            queue, scope = queues.get(name), self.rig.scope(name)
            holder = None if queue is None else queue.reserved_for
            if attempt.is_exempt or lane is None or holder is None or holder is lane:
                continue
            if lane.rank() < holder.rank():
                continue
            assert holder.passes() >= PASSES
            if not self.may_hold(holder):
                continue
            until, amount = holder.foreseen_at(now), attempt.amount(index)
            effective, quota = scope.effective, scope.quota
            if (
                (effective.concurrency - len(self.accounts[name].busy) <= 1 and until <= now + PATIENCE)
                or now + max(effective.delay, effective.delay_per_slot) > until
                or (quota is not None and quota.fits_at(holder.amount_in(scope), now, amount) > until)
            ):
                return True
        return False

    def may_hold(self, holder: Lane) -> bool:
        """Return whether a lane has reserved all of its scopes, or a quota that its amount fits only much later."""
        now, queues = self.rig.now, self.rig.scheduler.queues.scope_queues
        kept = [scope for scope in holder.scopes if queues[scope.id].reserved_for is holder]
        quotas = [(scope.quota, holder.amount_in(scope)) for scope in kept if scope.quota is not None]
        return kept == [*holder.scopes] or any(quota.fits_at(amount, now) - PATIENCE > now for quota, amount in quotas)

    def heads(self, *, pages: bool) -> list[Attempt]:
        """Return the best pending attempt of each lane whose gate is open."""
        best: dict[object, Attempt] = {}
        for attempt in self.pushed:
            if not attempt.is_pending or attempt.times.not_before > self.rig.now or (not pages and attempt.is_page):
                continue
            if self.rig.scheduler.gate_of(attempt.options.origin) is not None and not attempt.options.passes_gate:
                continue
            known = best.get(attempt.options.lane_id)
            if known is None or self._key(attempt) < self._key(known):
                best[attempt.options.lane_id] = attempt
        return list(best.values())

    def eligible(self, *, pages: bool) -> list[Attempt]:
        """Return the attempts that the limits alone would allow now."""
        if len(self.in_flight) >= self.rig.scheduler.places:
            return []
        return [
            attempt
            for attempt in self.heads(pages=pages)
            if attempt.is_exempt or all(self.is_open(attempt, index) for index in range(len(attempt.scopes)))
        ]

    def _key(self, attempt: Attempt) -> tuple[float, float, int]:
        shares = (
            []
            if attempt.is_exempt
            else [
                amount for id, amount in attempt.scopes if amount is not None and self.rig.scope(id).quota is not None
            ]
        )
        return (-attempt.priority, -shares[0] if shares else 0.0, self.sign * attempt.request)

    # -- the events

    def step(self) -> None:
        rng, chance = self.random, self.random.random()
        if chance < 0.45:
            self.push()
        elif chance < 0.55:
            self.send(rng.random() < 0.8)
        elif chance < 0.7 and self.in_flight:
            self.give_back(rng.choice(self.in_flight))
        elif chance < 0.8:
            self.move_limits()
        else:
            event = self.rig.scheduler.next_event(self.rig.now)
            self.rig.now = event if event < inf and rng.random() < 0.5 else self.rig.now + rng.random() * 0.4
        self.settle(pages=rng.random() < 0.9)

    def push(self) -> None:
        rng = self.random
        ids = rng.sample(self.names, min(rng.choice([0, 1, 1, 1, 1, 2, 2, 3]), len(self.names)))
        if len(ids) == 1 and rng.random() < 0.4:
            ids = [self.names[0]]
        scopes = [id + rng.choice(["", "", "=2", "=0", "=7"]) for id in ids]
        passes = rng.random() < 0.03
        attempt = self.rig.push(
            len(self.pushed),
            *scopes,
            not_before=self.rig.now + rng.choice([0, 0, 0, 0, 0, 0.7]),
            priority=rng.choice([0, 0, 0, 1, 2]),
            origin=rng.choice("pq"),
            is_direct=passes or rng.random() < 0.15,
            passes_gate=passes,
            is_exempt=rng.random() < 0.05,
        )
        self.pushed.append(attempt)
        if rng.random() < 0.05:
            self.vetoed.add(attempt)

    def send(self, is_going: bool) -> None:
        connecting = [attempt for attempt in self.in_flight if attempt.times.sent_at is None]
        if not connecting:
            return
        attempt = self.random.choice(connecting)
        if not is_going:
            self.give_back(attempt)
            return
        now = self.rig.now
        if attempt.lane is not None and attempt.lane.opens_at(attempt, now) > now:
            return  # it waits at its connection
        self.rig.sent(attempt)
        for index, (name, slot) in enumerate(self._taken(attempt)):
            account, scope = self.accounts[name], self.rig.scope(name)
            assert now >= scope.held.until
            assert scope.effective.delay <= 0 or now >= account.last_sent + scope.effective.delay
            assert (
                scope.effective.delay_per_slot <= 0
                or now >= account.slot_sent.get(slot, -inf) + scope.effective.delay_per_slot
            )
            account.connecting.discard(attempt)
            account.last_sent = account.slot_sent[slot] = now
            account.charges.append((now, attempt.amount(index)))
            assert scope.traffic.in_flight == len(account.busy)
            assert scope.traffic.unsent == len(account.connecting)

    def give_back(self, attempt: Attempt) -> None:
        self.in_flight.remove(attempt)
        for name, slot in self._taken(attempt):
            del self.accounts[name].busy[slot]
            self.accounts[name].connecting.discard(attempt)
        self.rig.give_back(attempt)
        self.rig.give_back(attempt)  # the second call has no effect

    def move_limits(self) -> None:
        rng, rig = self.random, self.rig
        name = rng.choice(self.names)
        scope, chance = rig.scope(name), rng.random()
        if chance < 0.2:
            limit = rng.choice(["backoff", "hint"])
            scope.hold(rig.now + rng.choice([0.5, 40.0 if self.far else 2.0]), Reason(name, limit, rig.now, "test"))
        elif chance < 0.35:
            scope.arrange(scope.effective._replace(concurrency=rng.choice([1, 2, 3, 8, inf])))
        elif chance < 0.5:
            delay, limit = rng.choice([0.0, 0.1, 0.5, 2.0]), rng.choice(["delay", "backoff"])
            scope.arrange(scope.effective._replace(delay=delay, delay_limit=limit))
        elif chance < 0.6:
            scope.arrange(scope.effective._replace(delay_per_slot=rng.choice([0.0, 0.5, 1.5])))
        elif chance < 0.75:
            scope.correct(rng.choice([-3.0, -1.0, 1.0]), rig.now)
            self.corrected.add(name)
        elif chance < 0.85:
            rig.scheduler.places = rng.choice([1, 2, 4, 16, inf])
        elif chance < 0.95:
            origin = rng.choice("pq")
            if rig.scheduler.gate_of(origin) is None:
                rig.scheduler.close_gate(origin)
            else:
                rig.scheduler.open_gate(origin, rig.now)
        elif pending := [attempt for attempt in self.pushed if attempt.is_pending]:
            assert rig.scheduler.withdraw(rng.choice(pending), rig.now)
        rig.scheduler.changed(scope, rig.now)

    def settle(self, *, pages: bool) -> None:
        """Grant all requests that can be granted, and compare with the rules before and after each grant."""
        rig, scheduler = self.rig, self.rig.scheduler
        while True:
            could = self.eligible(pages=pages)
            withheld = {attempt for attempt in could if self.is_blocked(attempt)}
            granted = scheduler.grant(rig.now, pages=pages)
            if granted is None:
                break
            if isinstance(granted, Attempt):
                self._check(granted, could, withheld)
            else:
                assert granted.attempt in self.vetoed
        left = [attempt for attempt in self.eligible(pages=pages) if not self.is_blocked(attempt)]
        assert not left, f"{left} could go at {rig.now} and does not"
        assert scheduler.next_event(rig.now) > rig.now, "it would spin"
        assert scheduler.pending == sum(attempt.is_pending for attempt in self.pushed)
        assert scheduler.in_flight == len(self.in_flight)

    def _check(self, granted: Attempt, could: list[Attempt], withheld: set[Attempt]) -> None:
        """Check that the granted request was allowed, and that no better request was allowed and not withheld."""
        assert granted in could, f"{granted} is early at {self.rig.now}, or not the first of its lane"
        for other in could:
            if other.is_pending and (not other.is_page, other.priority) > (not granted.is_page, granted.priority):
                assert other in withheld or self.is_blocked(other), f"{granted} before {other}"
        self.in_flight.append(granted)
        for name, slot in self._taken(granted):
            account = self.accounts[name]
            assert slot not in account.busy
            account.busy[slot] = granted
            account.connecting.add(granted)
            account.planned = self.rig.now + self.rig.scope(name).traffic.lead
            assert len(account.busy) <= self.rig.scope(name).effective.concurrency

    def _taken(self, attempt: Attempt) -> list[tuple[str, int]]:
        return (
            []
            if attempt.is_exempt
            else [(id, slot) for (id, _), slot in zip(attempt.scopes, attempt.slots, strict=True)]
        )

    def drain(self) -> None:
        """Grant all pending requests without further changes."""
        rig = self.rig
        rig.scheduler.places = max(rig.scheduler.places, 1)
        for origin in "pq":
            rig.scheduler.open_gate(origin, rig.now)
        for _ in range(20 * len(self.pushed) + 200):
            self.settle(pages=True)
            if not rig.scheduler.pending:
                break
            if connecting := [attempt for attempt in self.in_flight if attempt.times.sent_at is None]:
                first = connecting[0]
                opens_at = first.lane.opens_at(first, rig.now) if first.lane is not None else rig.now
                if opens_at == inf:
                    self.give_back(first)
                else:
                    rig.now = max(rig.now, opens_at)
                    self.send(is_going=True)
            elif self.in_flight:
                self.give_back(self.in_flight[0])
            else:
                event = rig.scheduler.next_event(rig.now)
                assert event < inf, f"stuck with {rig.scheduler.pending} pending"
                rig.now = event
        assert not rig.scheduler.pending
        self.check_quotas()

    def check_quotas(self) -> None:
        """Check that no window exceeds the quota without corrections, except for single amounts above it (F05)."""
        for name, account in self.accounts.items():
            quota = self.rig.scope(name).quota
            if quota is None or not quota.window or name in self.corrected:
                continue
            charges = [(at, amount) for at, amount in account.charges if amount]
            for start, _ in charges if quota.sliding else ():
                window = [amount for at, amount in charges if start <= at < start + quota.window]
                assert sum(window) <= quota.quota or len(window) == 1
