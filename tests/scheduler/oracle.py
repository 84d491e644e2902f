"""A second opinion: the rules of throttling said again, slowly, over all that is pending.

It keeps its own account of who is in flight, what was sent when, and which slot did it. From that it says which lanes
could go, by reading every limit of every scope. The chooser must agree at every step of a random history.
"""

from __future__ import annotations

import random
from math import inf

from tests.scheduler.rig import Rig
from trawl.scheduler.lanes import Entry, Lane
from trawl.scheduler.scope_queue import PASSES
from trawl.throttling.explain import Reason
from trawl.throttling.limits import Limits

NAMES = "abcdefgh"


class Account:
    """What happened to one scope."""

    def __init__(self) -> None:
        self.connecting: set[Entry] = set()
        self.busy: dict[int, Entry] = {}
        self.last_sent = -inf
        self.slot_sent: dict[int, float] = {}
        self.charges: list[tuple[float, float]] = []


class History:
    """One random history, checked at every step."""

    def __init__(self, seed: int) -> None:
        self.random = rng = random.Random(seed)
        self.names = NAMES[: rng.randint(2, 8)]
        limits = {
            name: Limits(
                concurrency=rng.choice([1, 1, 2, 3, 8, inf]),
                delay=rng.choice([0, 0, 0.1, 0.3, 1.0]),
                delay_per_slot=rng.choice([0, 0, 0, 0.5, 1.0]),
                quota=rng.choice([inf, inf, 5.0]),
                window=rng.choice([2.0, 2.0, 0.0]),
                sliding=rng.random() < 0.5,
            )
            for name in self.names
        }
        self.vetoed: set[Entry] = set()
        self.sign = rng.choice([1, 1, -1])
        self.rig = Rig(
            limits,
            places=rng.choice([1, 2, 4, 16]),
            depth_first=self.sign < 0,
            vet=lambda entry, now: "no" if entry in self.vetoed else None,
        )
        self.accounts = {name: Account() for name in self.names}
        self.in_flight: list[Entry] = []
        self.pushed: list[Entry] = []
        self.corrected: set[str] = set()
        self.seed = seed

    # -- the rules, again

    def is_open(self, entry: Entry, index: int) -> bool:
        name = entry.scopes[index][0]
        scope, account, now = self.rig.scope(name), self.accounts[name], self.rig.now
        if len(account.busy) >= scope.concurrency or scope.held_until > now:
            return False
        if scope.delay > 0 and (account.connecting or now < account.last_sent + scope.delay):
            return False
        if scope.quota is not None and scope.quota.ready_at(now, entry.amount(index)) > now:
            return False
        if scope.delay_per_slot <= 0:
            return True
        slots = int(min(scope.concurrency, len(account.slot_sent) + len(account.busy) + 1))
        return any(
            number not in account.busy and account.slot_sent.get(number, -inf) + scope.delay_per_slot <= now
            for number in range(1, slots + 1)
        )

    def is_withheld(self, entry: Entry, claimant: Lane | None) -> bool:
        """Whether a claim keeps it: the claimant's scope has a limit it could be in the way of, and it is later."""
        lane = entry.lane
        if claimant is None or lane is None or lane is claimant or not claimant.queue or lane.rank() < claimant.rank():
            return False
        for scope in claimant.scopes:
            if scope.id in [id for id, _ in entry.scopes] and not entry.is_exempt:
                spare = scope.concurrency - len(self.accounts[scope.id].busy)
                if spare <= 1 or scope.delay > 0 or scope.delay_per_slot > 0 or scope.quota is not None:
                    return True
        return False

    def is_kept_off(self, entry: Entry) -> bool:
        """Whether a quota is kept for a larger amount, which would have to wait longer if this one went."""
        for index, (name, _) in enumerate(entry.scopes):
            scope, now = self.rig.scope(name), self.rig.now
            other = scope.waiting.kept_for if scope.waiting is not None else None
            lane = entry.lane
            if entry.is_exempt or other is None or lane is None or lane is other or lane.rank() < other.rank():
                continue
            assert scope.quota is not None
            assert other.passes() >= PASSES
            wanted, until = other.amount_in(scope), scope.quota.fits_at(other.amount_in(scope), now)
            for each in other.scopes:
                at = each.gate(now, other.amount_in(each))
                until = max(until, at) if each is not scope and at < inf else until
            if scope.quota.fits_at(wanted, now, entry.amount(index)) > until:
                return True
        return False

    def heads(self, *, pages: bool) -> list[Entry]:
        """The best pending entry of each lane whose gate is open."""
        best: dict[object, Entry] = {}
        for entry in self.pushed:
            if not entry.is_pending or entry.not_before > self.rig.now or (not pages and not entry.is_direct):
                continue
            if self.rig.chooser.gate_of(entry.origin) is not None and not entry.passes_gate:
                continue
            known = best.get(entry.lane_id())
            if known is None or self._key(entry) < self._key(known):
                best[entry.lane_id()] = entry
        return list(best.values())

    def eligible(self, *, pages: bool) -> list[Entry]:
        """The entries that could go now, were it for limits alone."""
        if len(self.in_flight) >= self.rig.chooser.places:
            return []
        return [
            entry
            for entry in self.heads(pages=pages)
            if entry.is_exempt or all(self.is_open(entry, index) for index in range(len(entry.scopes)))
        ]

    def _key(self, entry: Entry) -> tuple[float, float, int]:
        shares = (
            []
            if entry.is_exempt
            else [amount for id, amount in entry.scopes if amount is not None and self.rig.scope(id).quota is not None]
        )
        return (-entry.priority, -shares[0] if shares else 0.0, self.sign * entry.request)

    # -- what happens

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
            event = self.rig.chooser.next_event(self.rig.now)
            self.rig.now = event if event < inf and rng.random() < 0.5 else self.rig.now + rng.random() * 0.4
        self.settle(pages=rng.random() < 0.9)

    def push(self) -> None:
        rng = self.random
        ids = rng.sample(self.names, min(rng.choice([0, 1, 1, 1, 1, 2, 2, 3]), len(self.names)))
        if len(ids) == 1 and rng.random() < 0.4:
            ids = [self.names[0]]
        scopes = [id + rng.choice(["", "", "=2", "=0", "=7"]) for id in ids]
        passes = rng.random() < 0.03
        entry = self.rig.push(
            len(self.pushed),
            *scopes,
            not_before=self.rig.now + rng.choice([0, 0, 0, 0, 0, 0.7]),
            priority=rng.choice([0, 0, 0, 1, 2]),
            origin=rng.choice("pq"),
            is_direct=passes or rng.random() < 0.15,
            passes_gate=passes,
            is_exempt=rng.random() < 0.05,
        )
        self.pushed.append(entry)
        if rng.random() < 0.05:
            self.vetoed.add(entry)

    def send(self, is_going: bool) -> None:
        connecting = [entry for entry in self.in_flight if entry.sent_at is None]
        if not connecting:
            return
        entry = self.random.choice(connecting)
        if not is_going:
            self.give_back(entry)
            return
        now = self.rig.now
        self.rig.sent(entry)
        for index, (name, slot) in enumerate(self._taken(entry)):
            account, scope = self.accounts[name], self.rig.scope(name)
            account.connecting.discard(entry)
            account.last_sent = account.slot_sent[slot] = now
            account.charges.append((now, entry.amount(index)))
            assert scope.in_flight == len(account.busy)
            assert scope.unsent == len(account.connecting)

    def give_back(self, entry: Entry) -> None:
        self.in_flight.remove(entry)
        for name, slot in self._taken(entry):
            del self.accounts[name].busy[slot]
            self.accounts[name].connecting.discard(entry)
        self.rig.give_back(entry)
        self.rig.give_back(entry)  # twice is once

    def move_limits(self) -> None:
        rng, rig = self.random, self.rig
        name = rng.choice(self.names)
        scope, chance = rig.scope(name), rng.random()
        if chance < 0.2:
            limit = rng.choice(["backoff", "hint"])
            scope.hold(rig.now + rng.choice([0.5, 2.0]), Reason(name, limit, rig.now, "test"))
        elif chance < 0.35:
            scope.concurrency = rng.choice([1, 2, 3, 8, inf])
        elif chance < 0.5:
            scope.delay = rng.choice([0.0, 0.1, 0.5, 2.0])
            scope.delay_limit = rng.choice(["delay", "backoff"])
        elif chance < 0.6:
            scope.delay_per_slot = rng.choice([0.0, 0.5, 1.5])
        elif chance < 0.75:
            scope.charge(rng.choice([-3.0, -1.0, 1.0]), rig.now)
            self.corrected.add(name)
        elif chance < 0.85:
            rig.chooser.places = rng.choice([1, 2, 4, 16, inf])
        elif chance < 0.95:
            origin = rng.choice("pq")
            if rig.chooser.gate_of(origin) is None:
                rig.chooser.close_gate(origin)
            else:
                rig.chooser.open_gate(origin, rig.now)
        elif pending := [entry for entry in self.pushed if entry.is_pending]:
            assert rig.chooser.withdraw(rng.choice(pending), rig.now)
        rig.chooser.changed(scope, rig.now)

    def settle(self, *, pages: bool) -> None:
        """Let go what may go, each time asking the second opinion before and after."""
        rig, chooser = self.rig, self.rig.chooser
        while True:
            could = self.eligible(pages=pages)
            before = chooser.board.claims.claimant
            withheld = {entry for entry in could if self.is_withheld(entry, before) or self.is_kept_off(entry)}
            granted = chooser.grant(rig.now, pages=pages)
            if granted is None:
                break
            if isinstance(granted, Entry):
                self._check(granted, could, withheld)
            else:
                assert granted.entry in self.vetoed
        claimant = chooser.board.claims.claimant
        left = [e for e in self.eligible(pages=pages) if not self.is_withheld(e, claimant) and not self.is_kept_off(e)]
        assert not left, f"{left} could go at {rig.now} and does not"
        assert chooser.next_event(rig.now) > rig.now, "it would spin"
        assert chooser.pending == sum(entry.is_pending for entry in self.pushed)
        assert chooser.in_flight == len(self.in_flight)

    def _check(self, granted: Entry, could: list[Entry], withheld: set[Entry]) -> None:
        """The one that goes could go, and nobody better could who was not withheld."""
        assert granted in could, f"{granted} is early at {self.rig.now}, or not the first of its lane"
        claimant = self.rig.chooser.board.claims.claimant
        for other in could:
            if other.is_pending and (other.is_direct, other.priority) > (granted.is_direct, granted.priority):
                is_behind = other in withheld or self.is_withheld(other, claimant) or self.is_kept_off(other)
                assert is_behind, f"{granted} before {other}"
        self.in_flight.append(granted)
        for name, slot in self._taken(granted):
            account = self.accounts[name]
            assert slot not in account.busy
            account.busy[slot] = granted
            account.connecting.add(granted)
            assert len(account.busy) <= self.rig.scope(name).concurrency

    def _taken(self, entry: Entry) -> list[tuple[str, int]]:
        return [] if entry.is_exempt else [(id, slot) for (id, _), slot in zip(entry.scopes, entry.slots, strict=True)]

    def drain(self) -> None:
        """Nothing changes any more: all that is pending goes."""
        rig = self.rig
        rig.chooser.places = max(rig.chooser.places, 1)
        for origin in "pq":
            rig.chooser.open_gate(origin, rig.now)
        for _ in range(20 * len(self.pushed) + 200):
            self.settle(pages=True)
            if not rig.chooser.pending:
                break
            if connecting := [entry for entry in self.in_flight if entry.sent_at is None]:
                del connecting[1:]
                self.send(is_going=True)
            elif self.in_flight:
                self.give_back(self.in_flight[0])
            else:
                event = rig.chooser.next_event(rig.now)
                assert event < inf, f"stuck with {rig.chooser.pending} pending"
                rig.now = event
        assert not rig.chooser.pending
        self.check_quotas()

    def check_quotas(self) -> None:
        """Where nothing was corrected, no window holds more than the quota, but for single amounts above it (F05)."""
        for name, account in self.accounts.items():
            quota = self.rig.scope(name).quota
            if quota is None or not quota.window or name in self.corrected:
                continue
            charges = [(at, amount) for at, amount in account.charges if amount]
            for start, _ in charges if quota.sliding else ():
                window = [amount for at, amount in charges if start <= at < start + quota.window]
                assert sum(window) <= quota.quota or len(window) == 1
