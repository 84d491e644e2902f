"""Scopes made on demand, and forgotten when nothing is lost by it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.throttling.driving import answer, attempt_of, throttle_of
from trawl.http import Request
from trawl.throttling import Scope, ThrottlingScopeManager, ThrottlingSettings
from trawl.throttling.scope_table import ScopePolicies, ScopeTable


def table_of(**given: Any) -> ScopeTable:
    return ScopeTable(ScopePolicies(ThrottlingSettings(**given)), seed=0)


def ids(table: ScopeTable) -> list[str]:
    return [scope.id for scope in table]


def used(scope: Scope, now: float) -> None:
    slot = scope.take(now)
    scope.sent(slot, now)
    scope.give(slot)


def test_i01_a_scope_idle_for_too_long_is_forgotten() -> None:
    table = table_of(throttling_scope_max_idle=100.0)
    used(table.made("a.example", 0.0)[0], 0.0)
    table.made("b.example", 99.0)
    assert ids(table) == ["a.example", "b.example"]
    table.made("c.example", 101.0)
    assert ids(table) == ["b.example", "c.example"]
    assert table.get("a.example") is None


@pytest.mark.parametrize("name", ["good_at", "triggered_at"])
def test_i01_a_scope_is_not_idle_while_answers_come_however_long_ago_they_were_asked_for(name: str) -> None:
    table = table_of(throttling_scope_max_idle=100.0)
    scope, _ = table.made("a.example", 0.0)
    used(scope, 0.0)
    setattr(scope.state.recent, name, 90.0)
    table.made("b.example", 150.0)
    assert ids(table) == ["a.example", "b.example"]
    table.made("c.example", 191.0)
    assert ids(table) == ["b.example", "c.example"]


def test_i01_no_more_than_the_limit_are_kept() -> None:
    table = table_of(throttling_scope_limit=10)
    for number in range(200):
        used(table.made(f"h{number}.example", number * 10.0)[0], number * 10.0)
    assert len(table) <= 10


def in_flight(scope: Scope) -> None:
    scope.take(0.0)


def pending(scope: Scope) -> None:
    scope.waits.lanes = 1


def held(scope: Scope) -> None:
    from trawl.throttling.reasons import Reason

    scope.hold(1e9, Reason(scope.id, "hint", 1e9))


def spent(scope: Scope) -> None:
    used(scope, 9000.0)


def backing_off(scope: Scope) -> None:
    from trawl.throttling.backoff import BackoffState, Base

    scope.state.backoff = BackoffState.at(Base(2.0))


@pytest.mark.parametrize("keep", [in_flight, pending, held, spent, backing_off])
def test_i01_p8_r11_a_scope_that_matters_is_never_forgotten(keep: Any) -> None:
    table = table_of(throttling_scope_max_idle=100.0, throttling_scopes={"api": {"quota": 5.0, "window": 10_000.0}})
    scope, _ = table.made("api", 0.0)
    keep(scope)
    for number in range(5):
        table.made(f"h{number}.example", 10_000.0 + number)
    assert table.get("api") is scope


def test_p8_scopes_made_at_one_instant_never_push_one_another_out() -> None:
    table = table_of(throttling_scope_limit=1)
    for id in ("a.example", "b.example", "c.example"):
        table.made(id, 5.0)
    assert ids(table) == ["a.example", "b.example", "c.example"]


def test_i10_scopes_configured_alike_share_a_policy() -> None:
    table = table_of(throttling_scopes={"api": {"delay": 1.0}})
    a, b, api = (table.made(id, 0.0)[0].state.policy for id in ("a.example", "b.example", "api"))
    assert a is b
    assert a is not api
    assert "THROTTLING_SCOPES['api']" in api.source


class FromCrawler(ThrottlingScopeManager):
    """Remembers the crawl that it was made for."""

    crawl: object = None

    @classmethod
    def from_crawler(cls, crawl: object, config: Any) -> FromCrawler:
        made = cls(config)
        made.crawl = crawl
        return made


def test_e17_a_class_with_from_crawler_is_made_by_it() -> None:
    throttle = throttle_of(throttling_scope_manager=FromCrawler, crawl="the crawl")
    manager = throttle.scope("a.example", 0.0).state.manager
    assert (manager.crawl, manager.id) == ("the crawl", "a.example")
    answer(throttle, attempt_of(throttle, Request("http://a.example/")), 0.0, 429)
    assert throttle.scope("a.example", 0.0).effective.delay == 2.0  # the default's word is "as configured"
