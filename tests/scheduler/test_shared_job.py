"""Lanes that need shared scopes: when they ask, what becomes of tokens, and what is told of each send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

import pytest

from trawl.robots import at_once
from trawl.scheduler import Attempt
from trawl.scheduler.scheduler import reconsider
from trawl.scheduler.scope_queue import PASSES
from trawl.scheduler.shared_job import SLACK, SharedJobScheduler
from trawl.throttling.limits import Limits
from trawl.throttling.reasons import Reason
from trawl.throttling.scope import Scope
from trawl.throttling.shared import SharedLimits, SharedScope, Token


class NotedLine:
    """A line that notes what it is told, and gives nothing by itself."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self._count = 0

    def listen(self, came: Callable[[Token], None], adopt: Callable[[str, bytes, float], None]) -> None:
        raise NotImplementedError

    def ask(self, scopes: Sequence[tuple[str, float]], priority: int, lead: float = 0.0) -> int:
        self._count += 1
        self.told.append(("ask", self._count, list(scopes), priority))
        return self._count

    def drop(self, number: int) -> None:
        self.told.append(("drop", number))

    def sent(self, number: int, now: float, intervals: Sequence[float]) -> None:
        self.told.append(("sent", number, now, list(intervals)))

    def written(self, number: int, now: float) -> None:
        self.told.append(("written", number, now))

    def given_back(self, number: int) -> None:
        self.told.append(("given back", number))

    def publish(self, scope_id: str, limits: SharedLimits, *, is_new: bool = False) -> None:
        raise NotImplementedError

    def correct(self, scope_id: str, difference: float) -> None:
        self.told.append(("correct", scope_id, difference))

    def set_remaining(self, scope_id: str, remaining: float) -> None:
        self.told.append(("remaining", scope_id, remaining))

    def why(self, number: int) -> Reason:
        return Reason("proxy", "delay", inf, "2 before it in line")

    async def run(self) -> None:
        raise NotImplementedError

    def take(self) -> list[tuple[object, ...]]:
        """What was told since the last time."""
        told, self.told = self.told, []
        return told


class Rig:
    def __init__(self, **limits: Limits) -> None:
        self.line = NotedLine()
        self.scopes: dict[str, Scope] = {
            id: SharedScope(id, each, self.line) if id.startswith("proxy") else Scope(id, each)
            for id, each in limits.items()
        }
        self.scheduler = SharedJobScheduler(lambda id, now: self.scopes[id], line=self.line, places=10)

    def push(self, label: str, *scopes: str, now: float = 0.0) -> Attempt:
        attempt = Attempt(label, tuple([(scope, None) for scope in sorted(scopes)]), priority=3)
        self.scheduler.push(attempt, now)
        return attempt

    def at(self, now: float) -> object:
        granted = self.scheduler.grant(now)
        return granted.request if isinstance(granted, Attempt) else None

    def token(self, number: int, now: float, *, at: float | None = None, until: float = inf) -> None:
        self.scheduler.came(Token(number, now if at is None else at, until), now)


def test_a_lane_asks_once_and_goes_when_the_token_is_good() -> None:
    rig = Rig(host=Limits(), proxy=Limits(delay=1.0))
    attempt = rig.push("a", "host", "proxy")
    assert rig.at(0.0) is None
    assert rig.at(0.0) is None
    assert rig.line.take() == [("ask", 1, [("proxy", 1.0)], 3)]
    assert rig.scheduler.why(attempt, 0.0) == Reason("proxy", "delay", inf, "2 before it in line")
    rig.token(1, 0.1, at=0.5)
    assert rig.scheduler.next_event(0.1) == 0.5
    assert rig.at(0.4) is None
    assert rig.at(0.5) == "a"
    rig.scheduler.sent(attempt, 0.6)
    rig.scheduler.give_back(attempt, 0.9)
    assert rig.line.take() == [("sent", 1, 0.6, [1.0]), ("given back", 1)]


def test_the_store_is_asked_last() -> None:
    rig = Rig(host=Limits(delay=5.0), proxy=Limits())
    first, _ = rig.push("a", "host", "proxy"), rig.push("b", "host", "proxy")
    rig.at(0.0)
    rig.token(1, 0.0)
    assert rig.at(0.0) == "a"
    rig.scheduler.sent(first, 0.0)
    assert rig.at(1.0) is None
    assert [told[0] for told in rig.line.take()] == ["ask", "sent"]
    assert rig.at(5.0) is None
    assert [told[0] for told in rig.line.take()] == ["ask"]


def test_the_next_of_a_lane_asks_as_soon_as_the_one_before_it_has_its_grant() -> None:
    rig = Rig(proxy=Limits(delay=1.0))
    first, _ = rig.push("a", "proxy"), rig.push("b", "proxy")
    rig.at(0.0)
    rig.token(1, 0.0)
    assert rig.at(0.0) == "a"
    assert rig.at(0.0) is None
    assert [told[:2] for told in rig.line.take()] == [("ask", 1), ("ask", 2)]
    rig.scheduler.sent(first, 0.0)
    rig.token(2, 0.2)  # the store leaves it to this process to keep its own sends apart
    assert rig.at(0.9) is None
    assert rig.scheduler.next_event(0.9) == 1.0
    assert rig.at(1.0) == "b"


def test_a_token_that_is_not_used_is_given_back_after_its_slack() -> None:
    rig = Rig(host=Limits(concurrency=1), proxy=Limits())
    first, _ = rig.push("a", "host"), rig.push("b", "host", "proxy")
    assert rig.at(0.0) == "a"
    rig.scheduler.sent(first, 0.0)
    rig.scheduler.give_back(first, 1.0)
    assert rig.at(1.0) is None  # "b" asks
    again = rig.push("c", "host", now=1.0)
    assert rig.at(1.0) == "c"
    rig.scheduler.sent(again, 1.0)
    rig.token(1, 1.1)
    assert rig.at(1.1) is None
    assert rig.scheduler.next_event(1.1) == pytest.approx(1.1 + SLACK)
    rig.line.take()
    assert rig.at(1.1 + SLACK) is None
    assert rig.line.take() == [("drop", 1)]
    rig.scheduler.give_back(again, 2.0)
    assert rig.at(2.0) is None
    assert rig.line.take() == [("ask", 2, [("proxy", 1.0)], 3)]


def test_what_is_withdrawn_leaves_the_line() -> None:
    rig = Rig(proxy=Limits())
    attempt = rig.push("a", "proxy")
    rig.at(0.0)
    rig.scheduler.withdraw(attempt)
    rig.token(1, 0.1)
    assert [told[:2] for told in rig.line.take()] == [("ask", 1), ("drop", 1), ("drop", 1)]


def test_a_grant_that_is_never_sent_gives_its_token_back() -> None:
    rig = Rig(proxy=Limits())
    attempt = rig.push("a", "proxy")
    rig.at(0.0)
    rig.token(1, 0.0)
    assert rig.at(0.0) == "a"
    rig.scheduler.give_back(attempt, 0.5)
    assert [told[:2] for told in rig.line.take()] == [("ask", 1), ("drop", 1)]


def test_a_token_whose_time_is_over_is_not_used_at_the_wire() -> None:
    rig = Rig(proxy=Limits())
    attempt = rig.push("a", "proxy")
    rig.at(0.0)
    rig.token(1, 0.0, until=4.0)
    assert rig.at(0.0) == "a"
    assert attempt.lane is not None
    assert attempt.lane.opens_at(attempt, 3.9) <= 3.9
    assert attempt.lane.opens_at(attempt, 4.0) == inf


def test_a_shared_rate_makes_up_for_nothing_since_others_may_have_sent() -> None:
    scope = SharedScope("proxy", Limits(delay=1.0, is_rate=True), NotedLine())
    for sent_at in (0.0, 5.0):
        slot = scope.take(sent_at)
        scope.sent(slot, sent_at)
        scope.written(slot, sent_at, sent_at + 0.2)
        scope.give(slot)
    assert scope.interval() == 1.0


def test_a_quota_is_corrected_in_the_store() -> None:
    line = NotedLine()
    scope = SharedScope("proxy", Limits(quota=10.0), line)
    assert scope.quota is None
    scope.correct(-2.0, 1.0)
    scope.set_remaining(3.0, 1.0)
    assert line.take() == [("correct", "proxy", -2.0), ("remaining", "proxy", 3.0)]


def prepared(rig: Rig) -> Attempt:
    """An attempt, without a token, whose middleware has run at 2.0."""
    rig.scheduler.preparations.has_user_code = True
    attempt = rig.push("a", "host", "proxy")
    assert rig.at(0.0) == "a"
    assert rig.line.take() == []
    attempt.task = object()
    assert not rig.scheduler.prepared(attempt, 2.0)
    return attempt


def test_a_prepared_grant_asks_for_its_token_when_its_middleware_has_run() -> None:
    rig = Rig(host=Limits(), proxy=Limits(concurrency=1))
    attempt = prepared(rig)
    assert rig.line.take() == [("ask", 1, [("proxy", 1.0)], 3)]
    rig.token(1, 2.1, at=2.5)
    assert rig.at(2.1) is None
    assert rig.at(2.5) == "a"
    assert rig.scopes["proxy"].traffic.in_flight == 1
    rig.scheduler.sent(attempt, 2.6)
    rig.scheduler.give_back(attempt, 2.9)
    assert [told[:2] for told in rig.line.take()] == [("sent", 1), ("given back", 1)]


def test_a_prepared_grant_says_that_it_waits_for_its_token() -> None:
    rig = Rig(host=Limits(concurrency=1), proxy=Limits(concurrency=1))
    attempt = prepared(rig)
    in_line = Reason("proxy", "delay", inf, "2 before it in line")
    assert rig.scheduler.why(attempt, 2.0) == in_line
    behind = rig.push("b", "host", "proxy")
    assert rig.at(2.0) is None
    assert rig.scheduler.why(behind, 2.0) == in_line
    assert rig.scheduler.why("proxy", 2.0) == in_line
    assert at_once(rig.scheduler.waiting_in_steps(lambda: 2.0)) == [(2, in_line)]
    rig.token(1, 2.1, at=2.5)
    assert rig.at(2.1) is None
    assert rig.scheduler.why(attempt, 2.1) == in_line


def test_a_prepared_grant_leaves_the_line_for_tokens_when_it_ends() -> None:
    rig = Rig(host=Limits(), proxy=Limits())
    attempt = prepared(rig)
    rig.scheduler.give_back(attempt, 3.0)
    assert [told[:2] for told in rig.line.take()] == [("ask", 1), ("drop", 1)]
    assert (
        rig.scopes["proxy"].traffic.ahead == rig.scopes["host"].traffic.ahead == rig.scheduler.preparations.ahead == 0
    )


@pytest.mark.parametrize("limits", [Limits(), Limits(concurrency=1), Limits(concurrency=3)])
def test_p4_a_request_of_two_shared_scopes_is_prepared_though_one_of_them_always_waits_for_a_token(
    limits: Limits,
) -> None:
    rig = Rig(proxy_x=limits, proxy_y=limits)
    scheduler = rig.scheduler
    scheduler.preparations.has_user_code = True
    labels = ["x", "y", "both", *["x", "y"] * 50]
    for label in labels:
        rig.push(label, *["proxy_x", "proxy_y"] if label == "both" else ["proxy_" + label])
    line: list[int] = []
    asked: list[list[str]] = []
    told: Any
    for now in range(len(labels)):
        while isinstance(granted := scheduler.grant(now), Attempt):
            if granted.has_places:
                scheduler.sent(granted, now)
                scheduler.give_back(granted, now)
            else:
                granted.task = object()
                scheduler.prepared(granted, now)
        for told in rig.line.take():
            if told[0] == "ask":
                line.append(told[1])
                asked.append([id for id, _ in told[2]])
        if line:
            rig.token(line.pop(0), now)  # to one after the other, so x and y take turns
    assert len(asked) == len(labels)
    assert asked.index(["proxy_x", "proxy_y"]) <= 32


def sends_at(rig: Rig, now: float, *, later: float = 0.0) -> list[object]:
    """Send all that may be sent at ``now``, and grant each ask a token that is good ``later``."""
    sends: list[object] = []
    while True:
        while isinstance(granted := rig.scheduler.grant(now), Attempt):
            rig.scheduler.sent(granted, now)
            rig.scheduler.give_back(granted, now)
            sends.append(granted.request)
        asked: list[Any] = [told[1] for told in rig.line.take() if told[0] == "ask"]
        if not asked:
            return sends
        for number in asked:
            rig.token(number, now, at=now + later, until=now + later + 5.0)


def test_p4_a_request_of_two_shared_scopes_with_a_delay_is_not_always_passed_by_those_with_tokens() -> None:
    rig = Rig(proxy_x=Limits(delay=1.0), proxy_y=Limits(delay=1.3))
    for label in ["x", "y", "both", *["x", "y"] * 50]:
        rig.push(label, *["proxy_x", "proxy_y"] if label == "both" else ["proxy_" + label])
    sends: list[object] = []
    now = 0.0
    while "both" not in sends:
        sends += sends_at(rig, now)
        now = rig.scheduler.next_event(now)
    assert PASSES < len(sends) <= 32


def test_a_lane_without_a_token_keeps_no_shared_scope_from_those_with_tokens() -> None:
    rig = Rig(host=Limits(delay=10.25), proxy=Limits(delay=1.0))
    rig.push("first", "host", "proxy")
    rig.push("second", "host", "proxy")
    for _ in range(20):
        rig.push("single", "proxy")
    sends: list[object] = []
    for now in range(11):
        sends += sends_at(rig, now)
        reconsider(rig.scheduler, rig.scopes["host"], now)
    assert sends == ["first", *["single"] * 10]


def test_a_token_is_kept_where_others_always_passed() -> None:
    rig = Rig(host=Limits(delay=1.0), proxy=Limits())
    for _ in range(40):
        rig.push("single", "host")
    rig.push("both", "host", "proxy")
    sends: list[object] = []
    for now in range(30):
        sends += sends_at(rig, now, later=0.5)  # half-way between two sends of the host
        for later in (0.5, 0.5 + SLACK):
            rig.scheduler.grant(now + later)
    assert PASSES <= sends.index("both") <= 2 * PASSES


def test_a_token_is_not_kept_for_a_scope_that_opens_after_it_expires() -> None:
    rig = Rig(host=Limits(delay=60.0), proxy=Limits())
    for _ in range(PASSES + 1):
        rig.push("single", "host")
    both = rig.push("both", "host", "proxy")
    for number in range(PASSES):
        now = number * 60.0
        assert sends_at(rig, now, later=0.5) == ["single"]
        rig.scheduler.grant(now + 0.5)
    assert both.lane is not None
    assert both.lane.passes() == PASSES
    rig.line.take()
    rig.scheduler.grant(now + 0.5 + SLACK)
    assert [told[0] for told in rig.line.take()] == ["drop"]


@pytest.mark.parametrize("wait", [0.01, 0.5])  # until a token comes
@pytest.mark.parametrize("limits", [Limits(concurrency=1), Limits(delay=1.0), Limits(delay=8.0)])
@pytest.mark.parametrize("latency", [1.0, 8.0])  # a token is valid for 5 s
def test_p4_a_scope_of_the_process_that_is_seldom_open_is_not_always_lost_while_a_token_comes(
    latency: float, limits: Limits, wait: float
) -> None:
    rig = Rig(host=limits, proxy=Limits())
    for label in [*["single"] * 40, "both", *["single"] * 40]:
        rig.push(label, "host", *["proxy"] * (label == "both"))
    sends: list[object] = []
    later: list[tuple[float, Callable[[float], None]]] = []
    now = 0.0
    while "both" not in sends:
        for due in [due for due in later if due[0] <= now]:
            later.remove(due)
            due[1](now)
        while isinstance(granted := rig.scheduler.grant(now), Attempt):
            rig.scheduler.sent(granted, now)
            sends.append(granted.request)
            later.append((now + latency, partial(rig.scheduler.give_back, granted)))
        told: Any
        for told in rig.line.take():
            if told[0] == "ask":
                later.append((now + wait, partial(rig.token, told[1], until=now + wait + 5.0)))
        now = min([rig.scheduler.next_event(now), *[at for at, _ in later]])
    assert PASSES <= len(sends) <= 2 * PASSES


def test_a_lane_that_never_asked_for_a_token_reserves_only_scopes_that_are_not_shared() -> None:
    rig = Rig(host=Limits(quota=10.0, window=10.0, sliding=True), proxy=Limits(concurrency=1))
    lane = rig.push("large", "host", "proxy").lane
    assert lane is not None
    queues = rig.scheduler.queues
    queues.reserve(lane, 0.0)
    assert queues.queue_of(rig.scopes["host"]).reserved_for is lane
    assert queues.queue_of(rig.scopes["proxy"]).reserved_for is None


def test_a_response_of_user_code_waits_for_a_token_and_is_told_as_a_send() -> None:
    rig = Rig(host=Limits(), proxy=Limits(concurrency=1))
    rig.scheduler.preparations.has_user_code = True
    attempt = rig.push("a", "host", "proxy")
    assert rig.at(0.0) == "a"
    attempt.task = object()
    assert rig.scheduler.needs_token(attempt)
    assert not rig.scheduler.prepared(attempt, 2.0)
    rig.token(1, 2.1)
    assert rig.at(2.1) == "a"
    rig.scheduler.responded(attempt, 2.2)
    rig.scheduler.give_back(attempt, 2.2)
    assert [told[:2] for told in rig.line.take()] == [("ask", 1), ("sent", 1), ("given back", 1)]
    assert rig.scopes["host"].traffic.last_sent == attempt.times.sent_at == 2.1
