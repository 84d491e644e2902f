"""A retry budget: how many of a crawl's requests may be retries. Pure.

Where everything fails, retries multiply the traffic when a server can least bear it. A budget bounds that: each request
that is sent the first time pays in its share, each retry takes one out, and who finds too little goes without. A small
reserve lets a crawl that has just begun retry at all; no budget grows beyond it and what a hundred requests pay in, so
that a long calm does not pay for a storm.
"""

from __future__ import annotations

__all__ = ["Budget", "Budgets"]

MOST_HOSTS = 10_000
"""Hosts whose budgets are kept; the one that was used first is forgotten, and begins anew with its reserve."""


class Budget:
    """One account of retries.

    Args:
        share: Retries for each first try.
        reserve: Retries that it begins with.

    Attributes:
        balance: Retries that may be made now.
    """

    __slots__ = ("_most", "_share", "balance")

    def __init__(self, share: float, reserve: int) -> None:
        self.balance: float = float(reserve)
        self._share = share
        self._most = max(1.0, reserve, 100.0 * share + reserve)

    def tried(self) -> None:
        """Note a request that is sent the first time."""
        self.balance = min(self._most, self.balance + self._share)

    def spend(self) -> bool:
        """Take a retry out; False: there is none left."""
        if self.balance < 1.0 - 1e-9:
            return False
        self.balance -= 1.0
        return True


class Budgets:
    """The budgets of a crawl: one, or one for each host.

    Args:
        share: Retries for each first try.
        reserve: Retries that each begins with.
        is_per_host: Whether each host has its own.
    """

    __slots__ = ("_budgets", "_is_per_host", "_reserve", "_share")

    def __init__(self, share: float, reserve: int, *, is_per_host: bool = False) -> None:
        self._share = share
        self._reserve = reserve
        self._is_per_host = is_per_host
        self._budgets: dict[str, Budget] = {}

    def of(self, host: str) -> Budget:
        """The budget of a host."""
        key = host if self._is_per_host else ""
        budget = self._budgets.get(key)
        if budget is None:
            if len(self._budgets) >= MOST_HOSTS:
                del self._budgets[next(iter(self._budgets))]
            budget = self._budgets[key] = Budget(self._share, self._reserve)
        return budget
