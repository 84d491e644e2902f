"""The limits that end a crawl early: counts of pages, items and errors. Finish reasons are named as in Scrapy.

Theory of operation. A count that is checked afterwards overshoots by the requests in flight. So pages are counted
before they are sent: at most as many requests are in flight as pages remain, and a response takes its page before its
place is released. If it turns out to be a redirect, or will be retried, the page is released. Items are counted between
the pipelines and the feeds, in the step that accepts them. If a callback yields one item too many, it is stopped and
its page returns to the frontier, so that a resumed crawl misses nothing.

With a job, items wait for the end of their page and are counted then. All of them are stored with the page, but only as
many as remain are delivered. The next run delivers and counts the rest first. A page without an end would never be
counted, so it is stopped :data:`MAX_BEYOND` items after the remaining ones.

If several processes share a job, the store adds up their counts every quarter of a second. A process has at most as
many requests in flight as pages remained then, minus the requests that other processes have in flight. A page limit is
therefore exceeded by at most the pages that other processes start in that time, and the limits of items and errors also
by the results of requests in flight.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import trio

from trawl.engine.settings import EngineSettings
from trawl.engine.state import RequestTask, State
from trawl.errors import CloseSpider
from trawl.frontier.base import Counts
from trawl.http import Outcome, Replace
from trawl.passwords import without_passwords
from trawl.scheduler import Attempt, Scheduler
from trawl.scheduler.scheduler import reconsider
from trawl.throttling import Scope
from trawl.throttling.quota import PageBudget

if TYPE_CHECKING:
    from trawl.frontier.redis.sessions import JobSession

__all__ = ["CrawlLimits", "Full", "ItemLimit"]

logger: logging.Logger = logging.getLogger("trawl.engine")

MAX_BEYOND = 10_000
"""Number of items that one page of a job may yield beyond the remaining ones. They are kept for the next run."""


class Full(CloseSpider):
    """The limit of items is reached: the callback is stopped, and its page returns to the frontier."""


class ItemLimit:
    """Counts the items that may still be delivered, at most ``most`` in the whole crawl."""

    def __init__(self, most: float, state: State, *, is_needed: bool = False) -> None:
        self._left = most
        self._most = most
        self._state = state
        self.is_needed: bool = is_needed  # False if there is no limit, and nobody needs the numbers
        self.count: int = 0  # number of accepted items
        self.latest_at: float = -math.inf  # event loop time of the latest item, in seconds

    def check(self) -> None:
        """Stop a callback that yields an item after all were delivered: raises Full."""
        if self._left <= 0:
            raise Full("closespider_itemcount")

    def take(self) -> None:
        """Accept one item, or raise Full. The caller must then call :meth:`taken` or :meth:`give_back`."""
        self.check()
        self._left -= 1
        self.count += 1

    def taken(self) -> None:
        """Count a delivered item. The last allowed item ends the crawl."""
        self._take(0)

    def give_back(self) -> None:
        """Release an accepted item that can't be written, so that another may replace it."""
        self._left += 1
        self.count -= 1

    def others_gave(self, count: int) -> None:
        """Count ``count`` more items of other processes of the job."""
        self._take(count)

    def check_page(self, count: int, url: str) -> None:
        """Stop a page of which ``count`` items wait for its end, far more than may be delivered: raises Full.

        A callback without an end would never finish.
        """
        if count <= self._left + MAX_BEYOND:
            return
        logger.warning(
            "%s gives more than %d items beyond the %d of CLOSESPIDER_ITEMCOUNT, and a job stores pages whole: "
            "it waits for a run with a higher limit",
            without_passwords(url),
            MAX_BEYOND,
            self._most,
        )
        raise Full("closespider_itemcount")

    def take_some(self, count: int) -> int:
        """Accept as many of ``count`` items as remain, and return their number."""
        taken = int(max(0, min(count, self._left)))
        if taken:
            self.count += taken
            self._take(taken)
        return taken

    def _take(self, count: int) -> None:
        self._left -= count
        self.latest_at = trio.current_time()
        if self._left <= 0:
            self._state.end("closespider_itemcount")


class CrawlLimits:
    """Counts the pages, items and errors that one crawl may still have.

    It gives the scheduler at most as many places as pages remain, and calls ``changed`` with a scope whose page budget
    has changed, so that its waiting requests are checked again.
    """

    def __init__(
        self, settings: EngineSettings, *, state: State, scheduler: Scheduler, changed: Callable[[Scope, float], None]
    ) -> None:
        self._state = state
        self._scheduler = scheduler
        self._changed = changed
        self._places = scheduler.places
        self._pages: float = settings.closespider_pagecount or math.inf
        self._errors: float = settings.closespider_errorcount or math.inf
        self._counted = self._failed = 0
        self._sub_requests = 0  # of rendered pages, pending or in flight
        self._undecided = 0  # counted whole responses that may yet turn out not to be pages
        self._others = Counts()
        # Event loop time of the start of the first process that works on the job; inf: this process's own start counts.
        self.began_at: float = math.inf
        items, timeout = settings.closespider_itemcount, settings.closespider_timeout_no_item
        self.items: ItemLimit = ItemLimit(items or math.inf, state, is_needed=bool(items or timeout))
        self._limit_places()

    def share(self, session: JobSession) -> None:
        """Let the limits hold for all processes of a job, of which ``session`` is this one's."""
        self.began_at = session.began_at
        self.items.is_needed = True
        session.others.count(self._counts, self._hear)

    @property
    def may_page(self) -> bool:
        """True if a page may be taken without a place, because more pages remain than requests are in flight."""
        return self._pages - self._others.in_flight > self._scheduler.in_flight

    def answered(self, attempt: Attempt) -> None:
        """Count a whole response as a page until its outcome is known. Call it before its place is released."""
        if not attempt.task.is_counted and not attempt.options.passes_gate and not attempt.is_sub_request:
            attempt.task.is_counted = True
            self._undecided += 1
            self._take_pages(1)
            if self._state.waiters:
                self._decide_awaiting(attempt)

    def count_outcome(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Record whether an attempt became a page; ``outcome`` is None if it was cancelled. Safe to call twice.

        A page is a whole response of any status, unless it is a redirect or will be retried. A response from a
        middleware or a cache also counts, but a cached response does not count in the budgets of scopes. robots.txt
        does not count.
        """
        task: RequestTask = attempt.task
        if task.is_decided:
            return
        task.is_decided = True
        lane = attempt.lane
        assert lane is not None
        is_page = (
            outcome is not None
            and outcome.response is not None
            and not isinstance(outcome.then, Replace)
            and not attempt.options.passes_gate
            and not attempt.is_sub_request
        )
        if is_page and not task.is_counted:
            self.answered(attempt)
        self._undecided -= task.is_counted
        # Without places it is in flight in no scope, and requests of rendered pages are in no budget.
        for scope in lane.scopes if attempt.slots and not attempt.is_sub_request else ():
            if scope.pages is not None:
                self._decide(scope, scope.pages, is_page=is_page and outcome is not None and not outcome.is_cached)
        if is_page:
            self._end_if_reached()
        elif task.is_counted:
            # One more page remains, so there may be a place for a waiting request.
            self._take_pages(-1)
            self._state.wakeup.set()

    def count_sub_requests(self, change: int, scopes: Iterable[Scope]) -> None:
        """Count the requests of rendered pages, for which places are left when no page remains."""
        self._sub_requests += change
        self._limit_places()
        for scope in scopes:
            if scope.pages is not None:  # some of the requests may be older than the budget
                scope.pages.sub_requests = max(0, scope.pages.sub_requests + change)

    def _decide_awaiting(self, attempt: Attempt) -> None:
        """Decide responses whose middleware waits for a fetch that needs a page, after ``attempt`` took one."""
        has_budget = attempt.lane is not None and any(scope.pages is not None for scope in attempt.lane.scopes)
        if has_budget or self._pages - self._others.in_flight <= 0:
            for waiter in list(self._state.waiters):
                if waiter.parent is not None and not waiter.attempt.is_sub_request:
                    self.decide_early(waiter.parent, waiter.attempt)

    def decide_early(self, attempt: Attempt, fetch: Attempt) -> None:
        """Count the response to ``attempt`` as a page if none remains for ``fetch``, for which its middleware waits.

        Otherwise the fetch would wait for a page, and the middleware for the fetch.
        """
        task: RequestTask = attempt.task
        lane = attempt.lane
        if not task.is_counted or task.is_decided or lane is None:
            return
        budgets = [(scope, scope.pages) for scope in lane.scopes if scope.pages is not None]
        needed = {id for id, _ in fetch.scopes}
        is_awaited = any(pages.is_awaited_with(0) and scope.id in needed for scope, pages in budgets)
        if self._pages - self._others.in_flight > 0 and not is_awaited:
            return
        task.is_decided = True
        self._undecided -= 1
        for scope, pages in budgets:
            self._decide(scope, pages, is_page=True)
        self._end_if_reached()

    def _decide(self, scope: Scope, pages: PageBudget, *, is_page: bool) -> None:
        if not pages.decide(is_page=is_page):
            return
        now = trio.current_time()
        # Refuse requests that wait for the scope now, because it may open only minutes later.
        if pages.is_spent:
            reconsider(self._scheduler, scope, now)
        self._changed(scope, now)

    def failed(self) -> None:
        """Count a callback that failed."""
        self._failed += 1
        self._errors -= 1
        self._end_if_reached()

    def _take_pages(self, n: int) -> None:
        self._counted += n
        if self._pages < math.inf:
            self._pages -= n
            self._limit_places()

    def _limit_places(self) -> None:
        self._scheduler.pages_left = left = max(0.0, self._pages - self._others.in_flight)
        self._scheduler.places = min(self._places, left + self._sub_requests)

    def _end_if_reached(self) -> None:
        if self._pages + self._undecided <= 0:
            self._state.end("closespider_pagecount")
        if self._errors <= 0:
            self._state.end("closespider_errorcount")

    def _counts(self) -> Counts:
        return Counts(self._counted, self._scheduler.in_flight, self.items.count, self._failed)

    def _hear(self, others: Counts) -> None:
        known, self._others = self._others, others
        if others == known:
            return
        self._pages -= others.pages - known.pages
        self._errors -= others.errors - known.errors
        if others.items != known.items:
            self.items.others_gave(others.items - known.items)
        self._limit_places()
        self._end_if_reached()
        self._state.wakeup.set()  # there may be a free place
