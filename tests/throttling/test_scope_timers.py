"""When scopes are due, and how much is remembered of it."""

from __future__ import annotations

from math import inf

import pytest

from tests.throttling.driving import answer, attempt_of, throttle_of
from trawl.http import Request
from trawl.throttling.failure_timer import FailureTimer
from trawl.throttling.scope import Scope
from trawl.throttling.scope_table import ScopePolicies, ScopeTable, ScopeTimers
from trawl.throttling.settings import ThrottlingSettings

PATIENCE = 1e6


def table() -> ScopeTable:
    return ScopeTable(ScopePolicies(ThrottlingSettings(backoff_give_up_after=PATIENCE)), seed=0)


def in_trouble(scopes: ScopeTable, id: str, since: float) -> Scope:
    scope, _ = scopes.made(id, 0.0)
    scope.state.recent.failure_timer = None if since == inf else FailureTimer(since)
    return scope


def test_a_scope_is_due_once_at_the_instant_that_was_noted_last() -> None:
    scopes = table()
    due = ScopeTimers(scopes)
    for since in (5.0, 3.0, 4.0):
        due.arm(in_trouble(scopes, "a", since))
    due.arm(in_trouble(scopes, "b", 3.5))
    assert due.next_at() == PATIENCE + 3.0
    assert [scope.id for scope in due.passed(PATIENCE + 3.9)] == ["b"]
    assert [scope.id for scope in due.passed(PATIENCE + 9.0)] == ["a"]
    assert (due.next_at(), len(due)) == (inf, 0)


def test_hosts_that_refuse_and_answer_by_turns_leave_nothing_behind() -> None:
    scopes = table()
    due = ScopeTimers(scopes)
    for now in range(10_000):
        for id in ("a", "b"):
            due.arm(in_trouble(scopes, id, float(now)))
            due.arm(in_trouble(scopes, id, inf))
            due.arm(in_trouble(scopes, id, float(now)))
    assert len(due) < 200
    assert [scope.id for scope in due.passed(PATIENCE + 9_999.0)] == ["a", "b"]


@pytest.mark.long
def test_a_throttle_that_is_patient_for_days_remembers_no_past_triggers() -> None:
    throttle = throttle_of(backoff_give_up_after=30 * 86_400.0)
    request = Request("http://a.example/")
    for now in range(0, 5_000, 2):
        for at, status in ((now, 503), (now + 1, 200)):
            answer(throttle, attempt_of(throttle, request, at), at, status)
            throttle.tick(at)
    assert len(throttle._timers) < 200
