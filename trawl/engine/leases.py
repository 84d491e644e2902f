"""The life of a page in the frontier: stored when found, replaced by a redirect or retry, acknowledged, released.

Each step is one call of the frontier, so that a job can make it one transaction. A redirect or a retry replaces its
request. It is a value instead of a nested fetch, so it waits for its own turn in its own lane, holds nothing during the
wait, and always counts as open.

Scrapy users often write ``meta=response.meta``. Besides the user's own keys, this meta has the crawl's data about the
request of that response, which the next request must not inherit: its retries, its redirects, and whether it was a
start request. A key whose value differs from the old request's is kept, because a callback that retries a request
counts the retries there and keeps the crawl notes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

import trio

from trawl.engine.admission import Admission, not_before
from trawl.engine.context import CrawlContext
from trawl.errors import DownloadError, IgnoreRequest, JobError
from trawl.frontier import Record
from trawl.frontier.base import PushResult
from trawl.http import Outcome, Replace, Request, Response, fingerprint, host_scope
from trawl.http.notes import NO_NOTES, note, notes_of, set_notes, with_meta_or_notes
from trawl.passwords import without_passwords
from trawl.scheduler import Attempt, Prefetcher

__all__ = ["CRAWLS_OWN", "MAX_PENDING", "Leases", "forget_the_last"]

MAX_PENDING = 10_000
"""Number of pending requests at which ``start()`` and ``add()`` pause."""

_RESENDS = frozenset({"retry", "backoff"})

CRAWLS_OWN: frozenset[str] = frozenset(
    (
        *("download_latency", "is_start_request", "redirect_reasons", "redirect_times", "redirect_urls", "retry_times"),
        "proxy_retry_times",
    )
)
"""Keys of meta that are valid for one request only."""


def forget_the_last(requests: Iterable[Request], last: Request | None) -> None:
    """Remove from ``requests`` the data copied from ``last``, the request whose callback yielded them.

    A retried request (with another ``retry_times``) is still the same request, and keeps everything.
    """
    if last is None or not last.has_meta:
        return
    for request in with_meta_or_notes(requests):
        has_notes = notes_of(request) is not NO_NOTES
        if not request.has_meta and not has_notes:
            continue
        meta, before, notes = request.meta, last.meta, notes_of(last)
        if meta.get("retry_times") != before.get("retry_times"):
            if not has_notes:
                set_notes(request, notes)
            continue
        # The crawl writes the depth into the meta of each request with a callback, so this meta is a complete copy.
        is_copy = has_notes or "depth" in meta
        set_notes(request, notes.for_copied_meta() if is_copy else NO_NOTES)
        for key in meta.keys() & before.keys() & CRAWLS_OWN:
            if meta[key] == before[key]:
                del meta[key]


def _is_refused(attempt: Attempt, then: Replace) -> bool:
    """Return True if a middleware repeats the request because of the response it got."""
    if not attempt.task.is_used or attempt.task.is_stopped or then.reason == "deferred":
        return False
    return not then.is_new_target or fingerprint(then.request) == fingerprint(attempt.request)


logger: logging.Logger = logging.getLogger("trawl.engine")


class Leases:
    """Puts admitted requests into the frontier, and removes finished ones."""

    def __init__(self, context: CrawlContext, admission: Admission, prefetcher: Prefetcher) -> None:
        self._admission = admission
        self._prefetcher = prefetcher
        self._frontier = context.frontier
        self._stats = context.stats
        self._state = context.state
        self._deaths = context.open_job.deaths
        self._abandoned: list[Record] = []

    @property
    def never_waits(self) -> bool:
        """True if :meth:`push` never waits, so that it can't be cancelled half-way."""
        return self._admission.never_waits

    async def push(
        self, requests: Sequence[Request], *, depth: int, is_start: bool = False, source: Response | None = None
    ) -> bool:
        """Accept the requests found at ``depth`` links from the start, on ``source``, and store the new ones.

        Returns True if one of them may be sent before all earlier pending requests.
        """
        if source is not None:
            forget_the_last(requests, source.request)
        records = await self._admission.admit(requests, depth=depth, is_start=is_start, source=source)
        if not records:
            return False
        # Count them before the await, so that the crawl does not look idle during the store.
        self._state.admitted(len(records))
        return self._count_stored(records, await self._frontier.push_many(records))

    async def finish(
        self,
        lease: Record,
        requests: Sequence[Request],
        *,
        depth: int,
        items: Callable[[], Sequence[bytes]] = tuple,
        failure: str | None = None,
        source: Response | None = None,
    ) -> None:
        """Acknowledge a lease and store its results, in one step.

        Its callback, on the page ``source``, found ``requests`` at ``depth`` links from the start. ``items`` is called
        just before the acknowledgement, and returns the items to store with it. With a ``failure``, the lease counts as
        failed.
        """
        forget_the_last(requests, lease.request if source is None or source.request is None else source.request)
        records = await self._admission.admit(requests, depth=depth, source=source) if requests else []
        # Count them before the page counts as ended, so that the crawl is not idle between the two.
        if records:
            self._state.admitted(len(records))
        await trio.lowlevel.checkpoint_if_cancelled()  # later, items of an unacknowledged page would be counted
        stored = await self._frontier.acknowledge(lease, records, items(), failure)
        if records:
            self._count_stored(records, stored)
        self._state.ended()

    async def replace(self, attempt: Attempt, then: Replace) -> str | None:
        """Queue ``then.request`` as the replacement of the granted request.

        Returns the statistic that counts its end if it may not continue; None if it is queued.
        """
        if notes_of(then.request) is NO_NOTES:  # made by user middleware, perhaps with the old request's meta
            notes = notes_of(attempt.request)
            set_notes(then.request, notes.for_target() if then.is_new_target else notes)
        if _is_refused(attempt, then):
            note(then.request, bypasses_cache=True)
        if not attempt.is_page:
            await self._replace_direct(attempt, then)
            return None
        if then.reason == "deferred" and attempt.times.sent_at is None and then.request is attempt.request:
            # Nothing was sent, so the request keeps its place in its lane, as if it had not been granted.
            self._count(attempt, then)
            await self._frontier.release([attempt.options.lease])
            self._stored([attempt.options.lease])
            return None
        successor = await self._admission.successor(attempt, then)
        if isinstance(successor, str):
            return successor
        await trio.lowlevel.checkpoint_if_cancelled()  # later, an unstored replacement would be counted
        # Count before the store, because each step stores its statistics and a kill may come before the next step.
        self._count(attempt, then)
        is_here = await self._frontier.replace(attempt.options.lease, successor)
        if then.is_new_target or then.reason in _RESENDS:
            self._admission.tell_scheduled(successor.request)
        if not is_here:
            self._stats.inc("shared/sent_on")
            self._state.ended(1)
        elif (
            attempt.task.is_stopped
            or successor.not_before > trio.current_time()
            or self._prefetcher.is_shut(successor.lane)
        ):
            # It cost no send or waits, so nothing limits their number. Return it to the frontier, where memory is
            # bounded.
            await self._frontier.release([successor])
            self._stored([successor])
        else:
            await self._admission.line_up(Attempt.of_record(successor), successor.not_before)
        return None

    async def _replace_direct(self, attempt: Attempt, then: Replace) -> None:
        """Replace the request of a direct fetch, which keeps its waiter."""
        waiter, request = attempt.options.waiter, then.request
        request.depth = attempt.request.depth
        try:
            until = not_before(request) if then.is_new_target else 0.0
            successor = await self._admission.direct_attempt(
                request, waiter, passes_gate=attempt.options.passes_gate, replaces=attempt
            )
        except IgnoreRequest as error:  # another process sends to its target
            waiter.deliver(Outcome(request, error=error))
            return
        except Exception as error:
            logger.exception("%r is dropped: its meta, or the manager, names no right scopes or delay", request)
            self._stats.inc("scope_errors")
            waiter.deliver(Outcome(request, error=DownloadError(f"no throttling scopes: {error!r}", url=request.url)))
            return
        if then.delay:
            until = max(until, trio.current_time() + then.delay)
        if attempt.task.is_cancelled:  # cancelled during the await: no task would remove the successor again
            return
        waiter.attempt = successor
        if attempt.is_sub_request:  # its scopes may be others
            self._admission.count_sub_request(successor, 1)
            self._admission.count_sub_request(attempt, -1)
        self._count(attempt, then)
        await self._admission.line_up(successor, until)

    async def drop(self, host: str, before: int = 0) -> None:
        """Remove the pending pages of a host from the scheduler and the frontier, in one step. A checkpoint.

        Pages in flight stay. Pages that another task has in its hands now are refused when their turn comes. If the job
        can't be read or written, JobError is raised and no page is dropped. :meth:`Crawl.drop
        <trawl.engine.crawl.Crawl.drop>` has the arguments.
        """
        dropped = self._state.dropped
        if before:  # another process has already removed the pages of that time
            dropped[host] = max(before, dropped.get(host, 0))
            return
        goes = self._prefetcher.take_back(lambda each: host_scope(each.request.url) == host, trio.current_time())
        self._state.wakeup.set()  # a scope may have been reserved for one of them
        counted = 0

        def starts(count: int, order: int) -> None:
            nonlocal counted
            counted, dropped[host] = count, order
            self._stats.inc("dropped_by_hand", count)

        leases = [attempt.options.lease for attempt in goes]
        try:
            count = await self._frontier.drop(host, leases, starts)
        except JobError:
            await self._frontier.release(leases)  # noqa: ASYNC120 - the caller is shielded
            self._stored(leases)
            raise
        self._deaths.dropped(host)
        self._stats.inc("dropped_by_hand", count - counted)
        self._state.ended(count)

    def restore(self) -> None:
        """Count the requests that an earlier run left in the frontier. They pass the throttle like any other."""
        self._admission.restore()
        self._state.admitted(self._frontier.statistics().pending)
        self._prefetcher.restored(self._frontier.lanes())

    def abandon(self, lease: Record) -> None:
        """Remember a lease whose request was not finished, because the crawl is ending or cancelled."""
        self._abandoned.append(lease)

    async def give_back(self, attempts: Iterable[Attempt]) -> None:
        """Release abandoned leases, and the leases of the waiting ``attempts``, to the frontier."""
        abandoned = len(self._abandoned)
        leases = [*self._abandoned, *[attempt.options.lease for attempt in attempts]]
        if leases:
            await self._frontier.release(leases)
        del self._abandoned[:abandoned]  # if this call is cancelled, the one at the end of the crawl repeats them

    def _count_stored(self, records: Sequence[Record], stored: PushResult) -> bool:
        """Keep only records that are pending here in the count of open requests. Returns True if one may be sent."""
        here = stored.here
        if here is not records and len(here) < len(records):
            if stored.seen:
                self._stats.inc("dupefilter_filtered", len(stored.seen))
            if stored.elsewhere:
                self._stats.inc("shared/sent_on", len(stored.elsewhere))
            self._state.ended(len(records) - len(here))
        return self._stored(here)

    def _stored(self, records: Sequence[Record]) -> bool:
        for record in records:
            if record.not_before:
                self._admission.ask_early(record)
        may_go = self._prefetcher.pushed(records)
        if may_go:  # the dispatcher may have run while the frontier waited for a disk
            self._state.wakeup.set()
        return may_go

    def _count(self, attempt: Attempt, then: Replace) -> None:
        self._stats.inc("held_count" if then.reason == "deferred" else f"{then.reason}_count")
        if then.is_new_target:
            logger.debug("%r: %s to %s", attempt.request, then.reason, without_passwords(then.request.url))
        else:
            logger.debug("%r waits for another grant: %s", attempt.request, then.reason)
