"""A scope beside a model of it that remembers everything: whatever happens, it is neither early nor idle nor stuck."""

from __future__ import annotations

import heapq
from itertools import pairwise
from math import inf
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.throttling.scope_model import AMOUNTS, LIMITS, STEPS, TICK, Flight, Play
from trawl.throttling.limits import Limits
from trawl.throttling.reasons import LIMIT_NAMES, Reason
from trawl.throttling.scope import Scope

History = list[tuple[str, Any]]


@given(limits=LIMITS, steps=STEPS, amount=AMOUNTS)
def test_a_scope_opens_when_all_its_limits_let_one_through_and_not_a_tick_later(
    limits: Limits, steps: History, amount: float
) -> None:
    # A04 A05 A06 A07 A09 F01 F02 F05 I08: neither early nor idle
    play = Play(limits)
    for step in steps:
        play.step(*step)
        at = play.scope.earliest_at(play.now, amount)
        assert max(at, play.now) == max(play.model.opens(play.now, amount).values())


@given(limits=LIMITS, steps=STEPS)
def test_a_slot_that_is_taken_is_free_and_rested_and_one_of_those_there_may_be(limits: Limits, steps: History) -> None:
    # A04 A06
    play = Play(limits)
    for step in steps:
        busy = {flight.slot for flight in play.model.flights}
        flight = play.step(*step)
        if flight is not None:
            assert flight.slot not in busy
            assert 1 <= flight.slot <= play.model.concurrency
            rest = play.model.delay_per_slot
            assert all(at + rest <= play.now for at, slot, _ in play.model.sends if slot == flight.slot)


@given(limits=LIMITS, steps=STEPS, amount=AMOUNTS)
def test_a_scope_is_never_stuck_only_what_is_under_way_can_close_it_for_good(
    limits: Limits, steps: History, amount: float
) -> None:
    play = Play(limits)
    for step in steps:
        play.step(*step)
        assert play.scope.traffic.in_flight == len(play.model.flights)
        if play.scope.earliest_at(play.now, amount) == inf:
            assert play.scope.traffic.in_flight
    for flight in list(play.model.flights):
        play.end(flight)
    at = play.scope.earliest_at(play.now, amount)
    assert at < inf
    assert play.scope.earliest_at(max(at, play.now), amount) <= max(at, play.now)


@given(limits=LIMITS, steps=STEPS, amount=AMOUNTS)
def test_a_reason_names_a_limit_that_holds_up_to_the_instant_it_tells(
    limits: Limits, steps: History, amount: float
) -> None:
    # I11
    play = Play(limits)
    for step in steps:
        play.step(*step)
        at, reason = play.scope.earliest_at(play.now, amount), play.scope.reason(play.now, amount)
        assert reason == play.scope.reason(play.now, amount)  # asking changes nothing
        assert (reason.scope, reason.until) == ("a", at)
        if at <= play.now:
            assert reason.limit == ""
        else:
            assert reason.limit in LIMIT_NAMES
            assert play.model.opens(play.now, amount)[reason.limit] == at
            assert reason.source


@given(limits=LIMITS, steps=STEPS, amount=AMOUNTS, wait=st.integers(1, 20), tighter=st.integers(1, 8))
def test_hints_and_tighter_limits_make_no_send_earlier(
    limits: Limits, steps: History, amount: float, wait: int, tighter: int
) -> None:
    # D06: monotone under hints
    play = Play(limits)
    for step in steps:
        play.step(*step)
    scope, now = play.scope, play.now
    before = scope.earliest_at(now, amount)
    until = now + wait * TICK
    hint = Reason("a", "hint", until, "Retry-After")
    scope.hold(until, hint)
    assert scope.earliest_at(now, amount) == max(before, until)
    scope.hold(until - TICK, Reason("a", "backoff", until - TICK, "step 1"))  # a shorter one takes nothing back
    assert scope.earliest_at(now, amount) == max(before, until)
    scope.lift(but_hints=True)
    assert scope.earliest_at(now, amount) >= max(before, until)
    for name in ("delay", "delay_per_slot"):
        held = scope.earliest_at(now, amount)
        scope.arrange(scope.effective._replace(**{name: getattr(scope.effective, name) + tighter * TICK}))
        assert scope.earliest_at(now, amount) >= held
    held = scope.earliest_at(now, amount)
    scope.arrange(scope.effective._replace(concurrency=max(1, min(scope.effective.concurrency, 3) - 1)))
    assert scope.earliest_at(now, amount) >= held


JITTERS = st.sampled_from([(0.5, 1.5), (0.9, 1.3), (0.0, 2.0), (1.0, 1.0)])


@given(jitter=JITTERS, seed=st.integers(0, 999), looks=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=20))
def test_an_interval_is_within_its_jitter_the_same_whenever_it_is_asked_for_and_new_after_each_send(
    jitter: tuple[float, float], seed: int, looks: list[float]
) -> None:
    # A17 A18 A19 A20
    scope, now = Scope("a", Limits(concurrency=1, delay=2.0, jitter=jitter), seed=seed), 0.0
    drawn = set()
    for look in looks:
        slot = scope.take(now)
        scope.sent(slot, now)
        scope.give(slot)
        at = scope.earliest_at(now)
        assert scope.earliest_at(now + look) == at
        assert now + 2.0 * jitter[0] - 1e-9 <= at <= now + 2.0 * jitter[1] + 1e-9
        drawn.add(round(at - now, 9))
        now = at
    assert len(drawn) == (1 if jitter == (1.0, 1.0) else len(looks))


@given(
    limits=LIMITS,
    work=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12), AMOUNTS), min_size=1, max_size=25),
)
def test_whoever_sends_as_soon_as_it_may_sends_all_within_every_limit(
    limits: Limits, work: list[tuple[int, int, float]]
) -> None:
    # A04 A05 A06 A08 F01 F02 I09: with connects that take time, each after the one before
    play, flying = Play(limits), list[tuple[float, int, str, Flight]]()
    most = 0
    for number, (connect, latency, amount) in enumerate(work):
        while (at := play.scope.earliest_at(play.now, amount)) > play.now:
            play.now = min(at, flying[0][0] if flying else inf)
            assert play.now < inf, "stuck"
            _land(play, flying, latency)
        heapq.heappush(flying, (play.now + connect * TICK, number, "send", play.take(amount)))
        _land(play, flying, latency)
        most = max(most, play.scope.traffic.in_flight)
    while flying:
        play.now = flying[0][0]
        _land(play, flying, 1)
    assert len(play.model.sends) == len(work)
    assert most <= limits.concurrency
    assert all(later - earlier >= limits.delay for (earlier, _, _), (later, _, _) in pairwise(play.model.sends))
    for slot in {slot for _, slot, _ in play.model.sends}:
        times = [at for at, used, _ in play.model.sends if used == slot]
        assert all(later - earlier >= limits.delay_per_slot for earlier, later in pairwise(times))
    if limits.sliding:
        for start, _, _ in play.model.sends:
            amounts = [amount for at, _, amount in play.model.sends if amount and start <= at < start + limits.window]
            assert sum(amounts) <= limits.quota or len(amounts) == 1  # F05: one above the whole quota goes alone


def _land(play: Play, flying: list[tuple[float, int, str, Flight]], latency: int) -> None:
    """Let what is due happen: a connection is made and its request sent; a response is whole."""
    while flying and flying[0][0] <= play.now:
        _, number, what, flight = heapq.heappop(flying)
        if what == "send":
            play.send(flight)
            heapq.heappush(flying, (play.now + latency * TICK, number, "end", flight))
        else:
            play.end(flight)
