"""The limits that end a crawl early: counts of pages, items and errors.

Theory of operation. A count that is looked at after the fact overshoots by what is on its way. So pages are counted
before they are sent: no more requests are in flight than pages are missing, and a response takes its page before it
gives its place back. If it turns out to be a redirect, or is to be tried again, the page is given back. Items are
counted between the pipelines and the feeds, in the step that lets them through; a callback that comes with one item
too many is cut off, and its page goes back to the frontier, so that a crawl that goes on later lacks nothing.

With a job, where items wait for the end of their page, they are counted then. All of them are stored with the page, and
no more than are missing are delivered: the rest wait in the outbox, and are the first that the next run delivers, and
counts. So no page need be given back; but one that has no end would not come to it, and is cut off after
:data:`MAX_BEYOND` items more than are missing.

In a job that several processes share, what they count is summed in the store, each quarter of a second. A process has
no more in flight than pages are missing then, those that others have in flight left out. So the limit of pages is
passed by what the others begin in that time at the most, and those of items and errors also by what is in flight then.

Each limit ends the crawl as the first Ctrl-C does, for a reason of Scrapy's name.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from trawl.engine.settings import EngineSettings
from trawl.engine.state import RequestTask, State
from trawl.errors import CloseSpider
from trawl.frontier.base import Counts
from trawl.http import Outcome, Replace
from trawl.passwords import without_passwords
from trawl.scheduler import Grant, Scheduler
from trawl.scheduler.scheduler import reconsider
from trawl.throttling import Scope
from trawl.throttling.quota import PageBudget

if TYPE_CHECKING:
    from trawl.frontier.redis.sessions import JobSession

__all__ = ["CrawlLimits", "Full", "ItemLimit"]

logger: logging.Logger = logging.getLogger("trawl.engine")

MAX_BEYOND = 10_000
"""Items that one page of a job may give beyond those that are missing; they are kept for the next run."""


class Full(CloseSpider):
    """No further item is let through: who gives one is cut off, and its page given back."""


class ItemLimit:
    """Counts the items that may still be delivered.

    Args:
        most: Items of the whole crawl.
        state: Told when the last one is let through.

    Attributes:
        count: How many were let through.
        latest_at: The instant of the latest item on the run clock, in seconds; ``-inf`` before the first.
    """

    __slots__ = ("_left", "_most", "_state", "count", "latest_at")

    def __init__(self, most: float, state: State) -> None:
        self._left = most
        self._most = most
        self._state = state
        self.count: int = 0
        self.latest_at: float = -math.inf

    def check(self) -> None:
        """Cut off who gives an item when all were delivered.

        Raises:
            Full: They were.
        """
        if self._left <= 0:
            raise Full("closespider_itemcount")

    def take(self) -> None:
        """Let one item through; :meth:`taken` or :meth:`give_back` then says what became of it.

        Raises:
            Full: All were delivered, or are about to be.
        """
        self.check()
        self._left -= 1
        self.count += 1

    def taken(self) -> None:
        """Say that an item which was let through has been delivered; the last one ends the crawl."""
        self._take(0)

    def give_back(self) -> None:
        """Say that an item which was let through can't be written: another one may go in its place."""
        self._left += 1
        self.count -= 1

    def others_gave(self, count: int) -> None:
        """Say that other processes of the job have given so many items more."""
        self._take(count)

    def check_page(self, count: int, url: str) -> None:
        """Cut off a page that has given ``count`` items which wait for its end: far more than may be delivered.

        Raises:
            Full: It has. A callback without an end would not come to one otherwise.
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
        """Let as many of ``count`` items through as are missing; how many these are."""
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

    Args:
        settings: The limits; 0 is none.
        state: Told when one is reached.
        scheduler: Never has more places than pages are missing.
        changed: Told of a scope whose page budget has changed: who waits for it is looked at again.
        session: This process's session of the job: the limits hold over all that work on it; None: it has none.

    Attributes:
        began_at: When the crawl began, on the run clock: the first of all that work on the job now. Infinity: when this
            process did.
        items: Lets items through; None where nothing is to be known of them.
    """

    __slots__ = (
        "_changed",
        "_counted",
        "_errors",
        "_failed",
        "_others",
        "_pages",
        "_places",
        "_scheduler",
        "_state",
        "_undecided",
        "began_at",
        "items",
    )

    def __init__(
        self,
        settings: EngineSettings,
        *,
        state: State,
        scheduler: Scheduler,
        changed: Callable[[Scope, float], None],
        session: JobSession | None = None,
    ) -> None:
        self._state = state
        self._scheduler = scheduler
        self._changed = changed
        self._places = scheduler.places
        self._pages: float = settings.closespider_pagecount or math.inf
        self._errors: float = settings.closespider_errorcount or math.inf
        self._counted = self._failed = 0
        self._undecided = 0  # of those counted: whole responses that may yet be no page
        self._others = Counts()
        self.began_at: float = math.inf if session is None else session.began_at
        self.items: ItemLimit | None = None
        if settings.closespider_itemcount or settings.closespider_timeout_no_item or session is not None:
            self.items = ItemLimit(settings.closespider_itemcount or math.inf, state)
        self._take_pages(0)
        if session is not None:
            session.count(self._counts, self._hear)

    @property
    def may_page(self) -> bool:
        """True if another page may be had without a place: more are missing than are in flight."""
        return self._pages - self._others.in_flight > self._scheduler.in_flight

    def answered(self, grant: Grant) -> None:
        """Count a whole response as a page until it is known for something else; before its place is given back."""
        if not grant.task.is_counted and not grant.passes_gate:
            grant.task.is_counted = True
            self._undecided += 1
            self._take_pages(1)
            if self._state.waiters:
                self._decide_awaiting(grant)

    def count_outcome(self, grant: Grant, outcome: Outcome | None) -> None:
        """Say what became of a grant: a page, or none after all. Safe to call twice.

        A page is a whole response, of any status, that is neither a redirect nor to be tried again. What a
        middleware responds instead of the wire is one too, and what a cache does, though not in the budgets of scopes;
        robots.txt is not.

        Args:
            grant: What was granted.
            outcome: What its middleware made of it; None: it was cut off.
        """
        task: RequestTask = grant.task
        if task.is_decided:
            return
        task.is_decided = True
        lane = grant.lane
        assert lane is not None
        is_page = (
            outcome is not None
            and outcome.response is not None
            and not isinstance(outcome.then, Replace)
            and not grant.passes_gate
        )
        if is_page:
            self.answered(grant)
        self._undecided -= task.is_counted
        for scope in lane.scopes if grant.slots else ():  # one without places is under way in none
            if scope.pages is not None:
                self._decide(scope, scope.pages, is_page=is_page and outcome is not None and not outcome.is_cached)
        if is_page:
            self._end_if_reached()
        elif task.is_counted:
            # One page more is missing again: there may be a place for one that waits.
            self._take_pages(-1)
            self._state.wakeup.set()

    def _decide_awaiting(self, grant: Grant) -> None:
        """Decide what waits for a fetch that waits for a page to be left: the one that ``grant`` has taken, say."""
        has_budget = grant.lane is not None and any(scope.pages is not None for scope in grant.lane.scopes)
        if has_budget or self._pages - self._others.in_flight <= 0:
            for waiter in list(self._state.waiters):
                if waiter.parent is not None and waiter.grant is not None:
                    self.decide_early(waiter.parent, waiter.grant)

    def decide_early(self, grant: Grant, fetch: Grant) -> None:
        """Have the answer to ``grant``, whose middleware waits for ``fetch`` now, be a page if none is left for that.

        It would wait for a page to be left, and its middleware for it.
        """
        task: RequestTask = grant.task
        lane = grant.lane
        if not task.is_counted or task.is_decided or lane is None:
            return
        budgets = [(scope, scope.pages) for scope in lane.scopes if scope.pages is not None]
        needed = {id for id, _ in fetch.scopes}
        is_awaited = any(pages.is_awaited and scope.id in needed for scope, pages in budgets)
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
        # Who waits for the scope is refused now, instead of when it opens, which may be minutes later.
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
        self._pages -= n
        self._limit_places()

    def _limit_places(self) -> None:
        self._scheduler.pages_left = left = max(0.0, self._pages - self._others.in_flight)
        self._scheduler.places = min(self._places, left)

    def _end_if_reached(self) -> None:
        if self._pages + self._undecided <= 0:
            self._state.end("closespider_pagecount")
        if self._errors <= 0:
            self._state.end("closespider_errorcount")

    def _counts(self) -> Counts:
        items = 0 if self.items is None else self.items.count
        return Counts(self._counted, self._scheduler.in_flight, items, self._failed)

    def _hear(self, others: Counts) -> None:
        known, self._others = self._others, others
        if others == known:
            return
        self._pages -= others.pages - known.pages
        self._errors -= others.errors - known.errors
        if self.items is not None and others.items != known.items:
            self.items.others_gave(others.items - known.items)
        self._limit_places()
        self._end_if_reached()
        self._state.wakeup.set()  # there may be a place again
