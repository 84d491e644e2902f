"""Backing off as frozen values: the series up and down, incidents, concurrency, half-way steps, strategies."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.throttling.driving import answer, attempt_of, throttle_of
from trawl.errors import ConnectTimeout, SettingsError
from trawl.http import Request
from trawl.throttling.backoff import Backoff, BackoffState, Base, backoff_of
from trawl.throttling.settings import ThrottlingSettings

A = "a.example"
URL = "http://a.example/"
DEFAULT = Backoff(jitter=(1.0, 1.0))
BASE = Base(1.0)


def escalated(
    standing: BackoffState, base: Base, now: float, strategy: Backoff = DEFAULT, in_flight: int = 1
) -> BackoffState:
    return standing.escalated(strategy, base, now, in_flight=in_flight, sent_at=now, is_limit=True)


def answered(standing: BackoffState, now: float, base: Base = BASE, strategy: Backoff = DEFAULT) -> BackoffState:
    """After a good answer to a request granted since the last incident, which spoke of a limit: no outage."""
    state = standing.answered(strategy, base, now, is_probe=True)
    assert state is not None
    return state


def delays_of_triggers(base: Base, count: int, strategy: Backoff = DEFAULT) -> list[float]:
    standing, delays = BackoffState.at(base), []
    for number in range(count):
        standing = escalated(standing, base, float(number), strategy)
        delays.append(standing.delay)
    return delays


def recovery(standing: BackoffState, base: Base, strategy: Backoff = DEFAULT) -> list[tuple[float, float]]:
    """The instants of the steps back and the delays after them, with a good answer right after the last trigger."""
    steps = []
    state: BackoffState | None = answered(standing, standing.quiet_from, base, strategy)
    while state is not None:
        at = state.due_at(strategy)
        state = state.recovered(strategy, base)
        if state is not None:
            steps.append((at, state.delay))
    return steps


def test_b03_b04_each_trigger_doubles_the_delay_up_to_the_maximum() -> None:
    assert delays_of_triggers(Base(1.0), 11) == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_b05_the_minimum_is_the_least_delay_while_backing_off() -> None:
    assert delays_of_triggers(Base(0.0), 4) == [1, 2, 4, 8]
    assert delays_of_triggers(Base(0.2), 3) == [1, 2, 4]


def test_b07_b08_b09_quiet_windows_step_back_to_the_base_and_no_further() -> None:
    standing = escalated(escalated(escalated(BackoffState.at(Base(1.0)), Base(1.0), 0), Base(1.0), 1), Base(1.0), 2)
    assert standing.delay == 8
    assert recovery(standing, Base(1.0)) == [(62, 4), (122, 2), (182, 1)]


def test_b08_a_step_that_would_land_under_the_minimum_lands_on_the_base() -> None:
    standing = escalated(escalated(escalated(BackoffState.at(Base(0.0)), Base(0.0), 0), Base(0.0), 1), Base(0.0), 2)
    assert [delay for _, delay in recovery(standing, Base(0.0))] == [2, 1, 0]


def test_b07_without_a_good_answer_since_the_trigger_no_window_counts() -> None:
    standing = escalated(BackoffState.at(Base(1.0)), Base(1.0), 0)
    assert standing.due_at(DEFAULT) == math.inf
    assert answered(standing, 500.0).due_at(DEFAULT) == 560.0
    assert answered(standing, 10.0).due_at(DEFAULT) == 70.0


def test_b07_b19_a_trigger_of_the_same_incident_takes_no_step_but_restarts_the_window() -> None:
    standing = answered(escalated(BackoffState.at(Base(1.0)), Base(1.0), 0), 1.0).repeated(30.0)
    assert standing.delay == 2.0
    assert standing.due_at(DEFAULT) == math.inf
    assert answered(standing, 31.0).due_at(DEFAULT) == 91.0


def test_b15_at_the_longest_delay_slots_go_and_come_back_first() -> None:
    base = Base(1.0, 8.0)
    strategy = attrs.evolve(DEFAULT, max_delay=4.0)
    standing, slots = BackoffState.at(base), []
    for now in range(7):
        standing = escalated(standing, base, now, strategy)
        slots.append((standing.delay, standing.concurrency))
    assert slots == [(2, 8), (4, 8), (4, 4), (4, 2), (4, 1), (4, 1), (4, 1)]
    standing = answered(standing, 7.0)
    back = []
    state: BackoffState | None = standing
    while state is not None:
        state = state.recovered(strategy, base)
        if state is not None:
            back.append((state.delay, state.concurrency))
    assert back == [(4, 2), (4, 4), (4, 8), (2, 8), (1, 8)]


def test_b15_regained_slots_are_rounded_up() -> None:
    strategy = Backoff(concurrency_factor=0.4)
    assert strategy.more(1.0, 8.0) == 3.0
    assert strategy.more(3.0, 8.0) == 8.0
    assert strategy.fewer(8.0) == 3.0


def test_b15_a_factor_of_next_to_nothing_gives_all_slots_back_at_once() -> None:
    strategy = Backoff(concurrency_factor=1e-320)
    assert strategy.fewer(8.0) == 1.0
    assert strategy.more(1.0, 8.0) == 8.0


def test_b15_without_a_limit_slots_are_counted_from_those_in_use() -> None:
    base = Base(1.0, math.inf)
    strategy = attrs.evolve(DEFAULT, max_delay=1.0)
    standing = escalated(BackoffState.at(base), base, 0.0, strategy, in_flight=10)
    assert standing.concurrency == 5.0
    back = answered(standing, 1.0, base, strategy).recovered(strategy, base)
    assert back is not None
    assert back.concurrency == math.inf


def test_b17_a_refused_step_back_makes_the_next_ones_go_half_way_in_rate() -> None:
    base = Base(1.0)
    at_base = answered(escalated(BackoffState.at(base), base, 0.0), 1.0).recovered(DEFAULT, base)
    assert at_base is not None
    assert at_base.delay == 1.0
    refused = escalated(at_base, base, 70.0)  # within the window of the step back at 61
    assert refused.delay == 2.0
    rates = [1.0 / delay for _, delay in recovery(refused, base)]
    assert rates[:3] == [pytest.approx(0.75), pytest.approx(0.875), pytest.approx(0.9375)]


def test_b17_a_trigger_after_the_window_of_the_step_back_is_no_answer_to_it() -> None:
    base = Base(0.5)
    standing = answered(escalated(escalated(BackoffState.at(base), base, 0.0), base, 1.0), 2.0).recovered(DEFAULT, base)
    assert standing is not None
    assert standing.recovered_at == 62.0
    late = escalated(standing, base, 130.0)
    assert late.refused is None
    before = standing.escalated(DEFAULT, base, 70.0, in_flight=1, sent_at=61.0)  # it was sent before the step back
    assert before.refused is None


def test_b17_i11_steps_back_that_go_half_way_never_count_down_to_none_while_it_backs_off() -> None:
    base = Base(1.0)
    eased = answered(escalated(BackoffState.at(base), base, 0.0), 1.0).recovered(DEFAULT, base)
    assert eased is not None
    standing: BackoffState | None = answered(escalated(eased, base, 70.0), 71.0)
    counts = []
    while standing is not None and standing.is_backing_off(base):
        counts.append(standing.steps)
        standing = standing.recovered(DEFAULT, base)
    assert len(counts) > 3
    assert min(counts) == 1  # "backoff step 0" would explain nothing


@given(
    base=st.floats(0.0, 10.0),
    script=st.lists(st.tuples(st.booleans(), st.floats(0.1, 200.0)), max_size=40),
)
def test_b09_whatever_happens_the_delay_stays_between_base_and_maximum(
    base: float, script: list[tuple[bool, float]]
) -> None:
    resting, now = Base(base, 4.0), 0.0
    standing: BackoffState | None = None
    for is_trigger, pause in script:
        now += pause
        while standing is not None and standing.due_at(DEFAULT) <= now:
            eased = standing.recovered(DEFAULT, resting)
            assert eased is None or eased.delay <= standing.delay  # recovery never slows down
            standing = eased
        if is_trigger:
            before = standing or BackoffState.at(resting)
            standing = escalated(before, resting, now)
            assert standing.delay >= before.delay  # monotone: a trigger never speeds up
        elif standing is not None:
            standing = answered(standing, now)
        assert standing is None or base <= standing.delay <= max(base, 300.0)
        assert standing is None or 1.0 <= standing.concurrency <= 4.0


def test_b01_b02_b14_codes_and_exceptions_trigger_and_an_override_replaces_them() -> None:
    settings = ThrottlingSettings()
    usual = backoff_of({}, settings)
    assert [code for code in range(100, 600) if usual.is_trigger(code, None)] == [
        429,
        502,
        503,
        504,
        520,
        521,
        522,
        523,
        524,
    ]
    assert usual.is_trigger(None, ConnectTimeout("no"))
    assert not usual.is_trigger(None, ValueError("no"))
    own = backoff_of({"http_codes": [418], "exceptions": ["builtins.IOError"]}, settings)
    assert own.is_trigger(418, None)
    assert not own.is_trigger(429, None)
    assert not own.is_trigger(None, ConnectTimeout("no"))
    cause = ConnectTimeout("no")
    cause.__cause__ = OSError("refused")
    assert own.is_trigger(None, cause)


def test_b12_absent_keys_fall_back_to_the_settings() -> None:
    own = backoff_of(
        {"delay_factor": 1.2, "max_delay": 180.0, "min_delay": 5.0, "jitter": [0.01, 0.33], "window": 30.0},
        ThrottlingSettings(backoff_concurrency_factor=0.8),
    )
    assert own == Backoff(
        http_codes=frozenset(ThrottlingSettings().backoff_http_codes), exceptions=own.exceptions, delay_factor=1.2,
        max_delay=180.0, min_delay=5.0, jitter=(1.01, 1.33), window=30.0, concurrency_factor=0.8,
    )  # fmt: skip


class Constant:
    """A strategy that knows one pause."""

    def __init__(self, pause: float) -> None:
        self.pause = pause
        self.window = 5.0

    def slower(self, delay: float, base: float) -> float:
        return self.pause


@attrs.frozen(kw_only=True)
class Gentle(Backoff):
    """A strategy made from the usual one."""

    extra: float = 0.0

    def slower(self, delay: float, base: float) -> float:
        return delay + self.extra


def test_b18_a_class_of_ones_own_is_a_strategy_and_what_it_lacks_is_the_usual() -> None:
    own = backoff_of({"cls": Constant, "pause": 9.0}, ThrottlingSettings())
    assert own.slower(1.0, 1.0) == 9.0
    assert own.faster(8.0, 1.0) == 4.0
    assert own.window == 5.0
    assert own.is_trigger(429, None)
    assert own.fewer(8.0) == 4.0
    assert own.more(1.0, 8.0) == 2.0


def test_b18_a_subclass_is_made_with_its_own_arguments_over_the_settings() -> None:
    own = backoff_of({"cls": Gentle, "extra": 0.5, "window": 7.0}, ThrottlingSettings(backoff_max_delay=50.0))
    assert own.slower(1.0, 1.0) == 1.5
    assert (own.window, own.max_delay) == (7.0, 50.0)


@pytest.mark.parametrize("arguments", [{"pause": 1.0, "speed": 3}, {}])
def test_b18_i03_wrong_arguments_are_refused_naming_the_scope(arguments: dict[str, Any]) -> None:
    scopes: dict[str, Any] = {"api": {"backoff": {"cls": Constant, **arguments}}}
    from trawl.throttling.scope_table import ScopePolicies

    with pytest.raises(SettingsError, match="THROTTLING_SCOPES\\['api'\\]\\['backoff'\\]"):
        ScopePolicies(ThrottlingSettings(throttling_scopes=scopes))


OUT_OF_RANGE: list[tuple[str, Any]] = [
    ("window", 0), ("window", -1.0), ("window", math.inf), ("window", "60"),
    ("delay_factor", 0), ("delay_factor", 1), ("delay_factor", math.nan), ("delay_factor", math.inf),
    ("max_delay", -1.0), ("max_delay", math.inf), ("min_delay", -0.5), ("min_delay", True),
    ("concurrency_factor", 0), ("concurrency_factor", 1.0), ("jitter", 5), ("http_codes", 429),
]  # fmt: skip


class Attributes:
    """A strategy that is not made from the usual one: what it is given it has."""

    def __init__(self, **named: object) -> None:
        vars(self).update(named)


@pytest.mark.parametrize("cls", [Backoff, Gentle, Attributes])
@pytest.mark.parametrize(("name", "value"), OUT_OF_RANGE)
def test_b18_i03_a_strategys_numbers_are_held_to_their_ranges_whoever_made_it(cls: type, name: str, value: Any) -> None:
    scopes: dict[str, Any] = {A: {"backoff": {"cls": cls, name: value}}}
    with pytest.raises(SettingsError, match=r"THROTTLING_SCOPES\['a.example'\]\['backoff'\]"):
        throttle_of(throttling_scopes=scopes)


def test_b18_i12_so_are_those_of_one_that_is_set_at_run_time_and_then_nothing_is_changed() -> None:
    throttle = throttle_of()
    for name, value in OUT_OF_RANGE:
        with pytest.raises(SettingsError, match="backoff"):
            throttle.set(A, 0.0, backoff={"cls": Attributes, name: value})
    assert throttle.scope(A, 0.0).state.policy.backoff == throttle.scope("b.example", 0.0).state.policy.backoff


@pytest.mark.parametrize("name", ["delay_factor", "max_delay", "min_delay", "window", "concurrency_factor"])
def test_a_backoff_that_is_made_by_hand_is_held_to_the_same_ranges(name: str) -> None:
    for value in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=name):
            Backoff(**{name: value})  # type: ignore[arg-type]


class Stays:
    """Never comes back: a step back changes nothing."""

    asked = 0

    def faster(self, delay: float, base: float) -> float:
        """The delay as it is."""
        self.asked += 1
        return delay


class Creeps(Stays):
    """Comes back by next to nothing."""

    def faster(self, delay: float, base: float) -> float:
        """The delay, a trifle less."""
        self.asked += 1
        return delay * (1.0 - 1e-12)


@pytest.mark.parametrize(("cls", "most"), [(Stays, 1), (Creeps, 1000)])
@pytest.mark.parametrize("window", [60.0, 1e-9])
def test_b07_b18_a_long_pause_takes_no_endless_number_of_steps_back(cls: type, most: int, window: float) -> None:
    throttle = throttle_of(download_delay=1.0, throttling_scopes={A: {"backoff": {"cls": cls}}}, backoff_window=window)
    strategy = throttle.scope(A, 0.0).state.policy.backoff.own
    answer(throttle, attempt_of(throttle, Request(URL), 0.0), 0.0, 429)
    answer(throttle, attempt_of(throttle, Request(URL), 2.0), 2.0)
    throttle.next_change(1e7)
    assert 0 < strategy.asked <= most
    assert throttle.scope(A, 1e7).effective.delay == pytest.approx(2.0)
    assert throttle.next_change(1e7) == 1e7 + max(window, 1e-3)


@pytest.mark.parametrize("wanted", [math.inf, -math.inf, math.nan])
def test_b18_an_infinite_delay_is_no_answer_of_a_strategy(wanted: float) -> None:
    own = backoff_of({"cls": Constant, "pause": wanted}, ThrottlingSettings())
    assert own.slower(4.0, 1.0) == 8.0


def test_b15_i12_slots_are_taken_from_those_there_are_now() -> None:
    strategy = attrs.evolve(DEFAULT, max_delay=2.0)
    standing = escalated(BackoffState.at(Base(1.0, 2.0)), Base(1.0, 2.0), 0.0, strategy)
    assert not standing.is_cut
    cut = escalated(standing, Base(1.0, 8.0), 1.0, strategy)  # the user has changed 2 to 8 meanwhile
    assert (cut.concurrency, cut.full) == (4.0, 8.0)
    assert escalated(cut, Base(1.0, 16.0), 2.0, strategy).concurrency == 2.0


def after_outage(base: Base, incidents: int, **about: Any) -> BackoffState:
    """The state of a scope at the end of so many incidents in a row, which did not speak of a limit."""
    standing = BackoffState.at(base)
    for number in range(incidents):
        standing = standing.escalated(DEFAULT, base, float(number), in_flight=1, sent_at=float(number), **about)
    return standing


def way_back(standing: BackoffState, base: Base, answers: int) -> list[float | None]:
    """The delay after each of so many good answers, a second apart; None: backing off is over."""
    state: BackoffState | None = standing
    delays: list[float | None] = []
    for number in range(answers):
        state = state and state.answered(DEFAULT, base, 100.0 + number, is_probe=True)
        delays.append(None if state is None else state.delay)
    return delays


def test_b07_an_outage_that_is_over_leads_back_at_the_first_fourth_and_eighth_good_answer() -> None:
    base = Base(0.5)
    assert way_back(after_outage(base, 5), base, 8) == [2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, None]


def test_b07_without_a_delay_the_way_back_is_counted_from_an_eighth_of_the_least_delay() -> None:
    base = Base(0.0)
    assert way_back(after_outage(base, 5), base, 8) == [0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, None]


def test_b07_two_incidents_are_no_outage_nor_are_three_of_which_one_spoke_of_a_limit() -> None:
    base = Base(0.5)
    assert way_back(after_outage(base, 2), base, 8) == [2.0] * 8
    limit = after_outage(base, 2).escalated(DEFAULT, base, 2.0, in_flight=1, sent_at=2.0, is_limit=True)
    assert way_back(limit, base, 8) == [4.0] * 8


def test_b07_a_limit_before_the_last_good_answer_says_nothing_of_an_outage_that_follows() -> None:
    base = Base(0.5)
    state = answered(escalated(BackoffState.at(base), base, 0.0), 1.0, base)
    assert state.delay == 1.0
    for number in range(3):
        state = state.escalated(DEFAULT, base, 2.0 + number, in_flight=1, sent_at=2.0 + number)
    # Back to what the limit had led to, and by windows from there.
    assert way_back(state, base, 9) == [4.0, 4.0, 4.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0]
    for number in range(8):
        state = answered(state, 100.0 + number, base)
    assert recovery(state, base) == [(167.0, 0.5)]
    # Without slots that were taken meanwhile; a step back that is refused leaves its mark as another does.
    again = state.escalated(DEFAULT, base, 110.0, in_flight=1, sent_at=109.0)
    assert (again.delay, again.refused, again.before) == (2.0, 1.0, 1.0)


def test_b07_slots_that_an_outage_took_come_back_with_it_though_a_limit_was_met_before() -> None:
    base, strategy = Base(0.5, 8.0), Backoff(jitter=(1.0, 1.0), max_delay=4.0)
    state = answered(escalated(BackoffState.at(base), base, 0.0, strategy), 1.0, base, strategy)
    for number in range(5):
        state = state.escalated(strategy, base, 2.0 + number, in_flight=8, sent_at=2.0 + number)
    assert (state.delay, state.concurrency) == (4.0, 1.0)
    for number in range(8):
        state = answered(state, 100.0 + number, base, strategy)
    assert (state.delay, state.concurrency, state.is_cut) == (1.0, 8.0, False)


def test_b17_what_was_refused_on_the_way_back_goes_by_windows_until_all_is_as_before() -> None:
    base = Base(0.5)
    back = after_outage(base, 5).answered(DEFAULT, base, 100.0, is_probe=True)
    assert back is not None
    state = answered(back.escalated(DEFAULT, base, 101.0, in_flight=1, sent_at=100.5), 102.0, base)
    for number in range(3):
        state = state.escalated(DEFAULT, base, 103.0 + number, in_flight=1, sent_at=103.0 + number)
    assert way_back(state, base, 8) == [128.0] * 8


def test_b07_an_answer_to_a_request_from_before_the_last_incident_says_nothing_of_its_end() -> None:
    base = Base(0.5)
    late = after_outage(base, 3).answered(DEFAULT, base, 3.0, is_probe=False)
    assert late is not None
    assert (late.delay, late.has_good) == (4.0, True)
    assert way_back(late, base, 1) == [2.0]  # the probe that follows does


def test_b17_a_trigger_on_the_way_back_returns_to_the_delay_of_the_outage_and_to_windows() -> None:
    base = Base(0.5)
    back = after_outage(base, 5).answered(DEFAULT, base, 100.0, is_probe=True)
    assert back is not None
    again = back.escalated(DEFAULT, base, 101.0, in_flight=1, sent_at=100.5)
    assert (back.delay, again.delay) == (2.0, 16.0)
    assert way_back(again, base, 8) == [16.0] * 8


def test_b18_a_strategy_with_a_way_back_of_its_own_keeps_it() -> None:
    class Halved:
        def faster(self, delay: float, base: float) -> float:
            return max(base, delay / 2.0)

    class Steeper:
        def slower(self, delay: float, base: float) -> float:
            return delay * 3.0

    made = [backoff_of({"cls": cls}, ThrottlingSettings()) for cls in (Halved, Steeper)]
    assert [strategy.returns_at_once for strategy in made] == [False, True]
