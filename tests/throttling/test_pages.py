"""The page budget of a scope, by itself: what is counted, when it is closed, and what outlives a scope."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from tests.throttling.driving import throttle_of
from trawl.throttling.limits import Limits
from trawl.throttling.quota import PageBudget, PageBudgets, spent
from trawl.throttling.scope import Scope
from trawl.throttling.snapshot import ThrottleSnapshot


@given(st.integers(1, 5), st.lists(st.booleans(), max_size=60))
def test_c11_however_requests_end_it_is_never_overshot_and_always_reached(limit: int, ends: list[bool]) -> None:
    pages = PageBudget(limit)
    for is_page in ends:
        while not pages.is_awaited_with(0) and not pages.is_spent:
            pages.under_way += 1  # as many as may go, go
        assert pages.counted + pages.under_way <= limit
        if pages.is_spent:
            break
        pages.decide(is_page=is_page)
    assert pages.counted == min(limit, sum(ends))
    assert pages.is_spent == (sum(ends) >= limit)


def test_it_says_when_somebody_may_have_waited() -> None:
    pages = PageBudget(2)
    pages.under_way = 1
    assert not pages.decide(is_page=False)  # there was room for another all the time
    pages.under_way = 2
    assert pages.decide(is_page=False)
    assert pages.decide(is_page=True) is False
    pages.under_way = 1
    assert pages.decide(is_page=True)
    assert pages.is_spent


def test_a_request_that_went_before_there_was_a_budget_does_not_bring_it_below_nothing() -> None:
    pages = PageBudget(1)
    pages.decide(is_page=False)
    assert (pages.under_way, pages.counted) == (0, 0)


def test_a_scope_is_closed_while_its_last_pages_are_on_their_way_and_says_so() -> None:
    scope = Scope("a.example", Limits(pages=1))
    assert scope.earliest_at(0.0) <= 0.0
    scope.take(0.0)
    assert scope.earliest_at(0.0) == inf
    assert scope.reason(0.0).limit == "pages"
    assert scope.reason(0.0).text(0.0) == "a.example its last pages are on their way (configuration)"
    assert scope.pages is not None
    scope.pages.decide(is_page=False)
    assert scope.earliest_at(0.0) <= 0.0


def test_a_scope_that_was_forgotten_counts_on_and_so_does_a_later_run() -> None:
    ledger, scope = PageBudgets(), Scope("a.example", Limits(pages=3))
    ledger.keep(scope)
    assert scope.pages is not None
    scope.pages.decide(is_page=True)
    assert ledger.counts() == {"a.example": 1}

    again = Scope("a.example", Limits(pages=3))
    ledger.keep(again)
    assert again.pages is scope.pages

    later, restored = PageBudgets(), Scope("a.example", Limits(pages=1))
    later.restore(ledger.counts())
    later.keep(restored)
    assert spent([restored]) == "pages_filtered"
    assert spent([Scope("b.example", Limits())]) is None


def test_c11_counts_that_are_restored_after_the_budget_was_set_are_those_of_its_scope() -> None:
    throttle = throttle_of()
    throttle.restore(ThrottleSnapshot(at=0.0, pages={"a.example": 1}), 0.0)
    throttle.restore_limits({"a.example": {"pages": 5}, "b.example": {"pages": 2}}, 0.0)
    budgets = [throttle.scope(id, 0.0).pages for id in ("a.example", "b.example")]
    assert all(budgets)
    throttle.scope("b.example", 0.0).take(0.0)  # a partition may come while its requests are in flight
    throttle.table.pages.restore({"a.example": 4, "b.example": 1})
    assert [(pages.counted, pages.limit, pages.under_way) for pages in budgets if pages] == [(4, 5, 0), (1, 2, 1)]
    throttle.table.pages.restore({"a.example": 3})  # an older count
    throttle.set("a.example", 0.0, pages=4)
    assert [throttle.scope(id, 0.0).pages for id in ("a.example", "b.example")] == budgets
    assert spent([throttle.scope("a.example", 0.0)]) == "pages_filtered"
    assert throttle.table.pages.counts() == {"a.example": 4, "b.example": 1}


def test_a_budget_that_is_raised_is_open_again_and_one_that_is_taken_away_is_none() -> None:
    scope = Scope("a.example", Limits(pages=1))
    assert scope.pages is not None
    scope.pages.decide(is_page=True)
    assert spent([scope])
    scope.apply_limits(Limits(pages=2))
    assert not spent([scope])
    scope.apply_limits(Limits())
    assert scope.pages.limit == inf
