"""How many pages of a scope are fetched in the whole crawl: its page budget (C11).

Theory of operation. A budget that is compared with what has come is overshot by what is on its way. So a request that
takes its scope takes a page too, until it is decided what became of it: a page, which is counted, or a redirect, a
failure, another try, which are not. While those on their way could be the last pages, the scope is closed; when they
were, what is pending ends (``pages_filtered``), and takes nothing.

Counts outlive their scopes, which are forgotten when they are idle, and the process, with a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trawl.throttling.scope import Scope

__all__ = ["Ledger", "Pages", "spent"]


class Pages:
    """The page budget of one scope. Hot where there is one, so mutable and slotted.

    Attributes:
        limit: Pages at most; ``inf`` for no limit.
        counted: Pages that have come.
        under_way: Requests that may yet become one.
    """

    __slots__ = ("counted", "limit", "under_way")

    def __init__(self, limit: float, counted: int = 0) -> None:
        self.limit: float = limit
        self.counted: int = counted
        self.under_way: int = 0

    @property
    def is_awaited(self) -> bool:
        """Whether those under way may be the last, so that nobody else may go now."""
        return self.counted < self.limit <= self.counted + self.under_way

    @property
    def is_spent(self) -> bool:
        """Whether all have come, so that nobody else may go at all."""
        return self.counted >= self.limit

    def decide(self, *, is_page: bool) -> bool:
        """Say what became of one that was under way; whether somebody may have waited for that."""
        was_awaited = self.is_awaited
        self.under_way = max(0, self.under_way - 1)  # it may have gone before there was a budget
        self.counted += is_page
        return was_awaited or self.is_spent


class Ledger:
    """The page budgets of a crawl, by scope: of those that have one, also where the scope is forgotten."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, Pages] = {}

    def keep(self, scope: Scope) -> None:
        """Let a scope that was made, or given other limits, go on from its count."""
        kept = self._kept.get(scope.id)
        if kept is not None:
            kept.limit = scope.limits.pages
            scope.pages = kept
        elif scope.pages is not None:
            self._kept[scope.id] = scope.pages

    def counts(self) -> dict[str, int]:
        """How many pages have come, by scope, to be stored."""
        return {id: pages.counted for id, pages in self._kept.items() if pages.counted}

    def take_up(self, counts: Mapping[str, int]) -> None:
        """Count the pages of an earlier run."""
        for id, counted in counts.items():
            self._kept[id] = Pages(inf, counted)


def spent(scopes: Iterable[Scope]) -> str | None:
    """``"pages_filtered"`` where one of these scopes has had all its pages, else None."""
    for scope in scopes:
        if scope.pages is not None and scope.pages.is_spent:
            return "pages_filtered"
    return None
