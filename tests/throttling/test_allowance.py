"""What may be spent of a quota before the job is written again."""

from __future__ import annotations

import random
from math import inf

import pytest

from trawl.throttling.allowance import Allowances
from trawl.throttling.limits import Limits
from trawl.throttling.scope import Scope

QUOTAS = [
    Limits(concurrency=inf),
    Limits(concurrency=inf, quota=5.0, window=20.0),
    Limits(concurrency=inf, quota=10.0, window=20.0),
    Limits(concurrency=inf, quota=100.0, window=40.0, sliding=True),
]


class Disk:
    """What a kill would leave of one scope's quota."""

    def __init__(self) -> None:
        self.is_asked = False
        self.allowances = Allowances(self._ask)
        self.scope = Scope("api", QUOTAS[2])
        self.allowances.add("api", self.scope.quota)  # type: ignore[arg-type]
        self._spent: dict[int, float] = {}
        self._ahead: dict[str, float] = {}

    def _ask(self) -> None:
        self.is_asked = True

    def write(self, now: float, *, is_whole: bool) -> None:
        """One transaction."""
        was_asked, self.is_asked = self.is_asked, False
        if was_asked:
            self.allowances.promise(now)
        if is_whole:
            self.allowances.state_stored()
            self._spent = {id(self.scope.quota): self.spent}
        self._ahead = self.allowances.ahead()
        if was_asked:
            self.allowances.confirm()

    def set(self, limits: Limits, now: float) -> None:
        """Change the quota, or take it away, while the crawl runs."""
        self.scope.apply_limits(limits, now)
        if self.scope.quota is not None:
            self.allowances.add("api", self.scope.quota)

    @property
    def spent(self) -> float:
        """What was ever spent of the quota that there is now."""
        quota = self.scope.quota
        return 0.0 if quota is None or quota.allowance is None else quota.allowance.taken - quota.reserved

    @property
    def known(self) -> float:
        """How much of that the next run would know of, after a kill now."""
        return self._spent.get(id(self.scope.quota), 0.0) + self._ahead.get("api", 0.0)


def test_what_was_on_its_way_before_there_was_a_quota_is_stored_before_it_is_spent() -> None:
    disk = Disk()
    disk.scope.earliest_at(0.0, 2.0)
    disk.write(0.0, is_whole=True)
    disk.set(QUOTAS[0], 0.0)
    slot = disk.scope.take(0.0, 2.0)
    disk.set(QUOTAS[1], 1.0)
    assert disk.scope.opens_at(slot, 1.0, 2.0) > 1.0
    disk.write(1.0, is_whole=False)
    assert not disk.scope.opens_at(slot, 1.0, 2.0) > 1.0
    disk.scope.sent(slot, 1.0, 2.0)
    assert disk.spent <= disk.known


def test_what_user_code_may_have_spent_when_the_job_is_stored_is_not_forgotten() -> None:
    """A response of user code counts from its entry, and a kill may come before it ends."""
    disk, now = Disk(), 0.0
    disk.scope.traffic.caution = 1.0
    while disk.scope.prepares_at(now) > now:
        disk.write(now, is_whole=False)
    disk.scope.traffic.add_ahead()
    disk.scope.traffic.start_preparing(now)
    disk.write(5.0, is_whole=True)
    assert disk.known >= 1.0
    disk.scope.traffic.drop_ahead()
    slot = disk.scope.take(now)
    disk.scope.sent(slot, now, granted_at=now)
    disk.scope.give(slot)
    disk.write(6.0, is_whole=True)
    disk.write(7.0, is_whole=True)
    assert disk.spent == disk.known == 1.0


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_spent_that_a_kill_would_forget_however_quotas_change(seed: int) -> None:
    drawn, disk, now = random.Random(seed), Disk(), 0.0
    scope, flying = disk.scope, list[tuple[int, float]]()
    for _ in range(200):
        now += drawn.choice([0.0, 0.0, 0.1, 1.0, 5.0, 30.0, 70.0])
        step = drawn.random()
        if step < 0.45:
            amount = drawn.choice([0.5, 1.0, 2.0, 3.0, 12.0])
            if scope.earliest_at(now, amount) <= now:
                flying.append((scope.take(now, amount), amount))
        elif step < 0.65 and flying:
            slot, amount = flying.pop(drawn.randrange(len(flying)))
            was_sent = step < 0.6 and scope.opens_at(slot, now, amount) <= now
            if was_sent:
                scope.sent(slot, now, amount)
                assert disk.spent <= disk.known + 1e-9
            scope.give(slot, was_sent=was_sent, amount=amount)
        elif step < 0.75:
            disk.set(drawn.choice(QUOTAS), now)
        elif disk.is_asked or drawn.random() < 0.3:
            disk.write(now, is_whole=drawn.random() < 0.4)
        on_the_way = sum(amount for _, amount in flying)
        assert (scope.traffic.in_flight, scope.traffic.unsent) == (len(flying), len(flying))
        assert scope.traffic.reserved == pytest.approx(on_the_way)
        assert scope.quota is None or scope.quota.reserved == pytest.approx(on_the_way)
