"""A retry budget, for every order of tries and retries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trawl.middleware.retry import RetryBudget, RetryBudgets


@given(st.floats(0, 2), st.integers(0, 20), st.lists(st.booleans(), max_size=400))
def test_retries_never_pass_the_reserve_and_the_share_of_what_was_tried(
    share: float, reserve: int, retries: list[bool]
) -> None:
    budget = RetryBudget(share, reserve)
    tried = spent = 0
    for is_retry in retries:
        if is_retry:
            spent += budget.spend()
        else:
            budget.tried()
            tried += 1
        assert spent <= reserve + share * tried + 1e-6


def test_a_long_calm_does_not_pay_for_a_storm() -> None:
    budget = RetryBudget(0.1, 5)
    for _ in range(100_000):
        budget.tried()
    assert sum(budget.spend() for _ in range(1000)) == 15


def test_a_tenth_is_one_retry_in_ten_tries() -> None:
    budget = RetryBudget(0.1, 0)
    for _ in range(10):
        assert not budget.spend()
        budget.tried()
    assert budget.spend()


def test_a_host_has_a_budget_of_its_own_if_wanted() -> None:
    apart, together = RetryBudgets(0.0, 1, is_per_host=True), RetryBudgets(0.0, 1)
    assert [apart.for_host(host).spend() for host in "aba"] == [True, True, False]
    assert [together.for_host(host).spend() for host in "ab"] == [True, False]
