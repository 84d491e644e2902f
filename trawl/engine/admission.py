"""Admission: decides if a request is accepted, which scopes it is charged to, and whose robots.txt it obeys.

Theory of operation. Every request, from any source, gets its scopes, its origin and the origin's gate here::

    found on a page, given by start() ──► admit ─────► Record ─► frontier ─► leased ──┐
    its redirect, its retry, a Replace ─► successor ─► Record ─┬► frontier ─► leased ─┤
    fetch(), robots.txt, theirs ────────► direct_attempt ────────┴─────────► line_up ───┴─► Attempt in the scheduler
                                                                                            │ granted
    what the middleware hands to the wire ──► objection: not what was granted? another one ◄─┘

A middleware sees a request only when it is granted, and may change it: another host, another session, a proxy that has
a scope of a manager. So each request is compared with its attempt before it is sent (:meth:`Admission.objection`). If
it needs other scopes, or an origin whose robots.txt is not read, it is queued again with these, and its middleware sees
it again. A request that goes elsewhere each time (to a random mirror) would never match its attempt. From the second
time on it is therefore charged to all scopes that it has needed so far. If it keeps needing new ones, it ends with an
error.

The seen mark is set before the scopes are named, because a manager's ``get_scopes`` may await: if two tasks find the
same link at once, only one may push it. If the request is not stored after all, its mark is removed.

Length: all sources of requests share one path to a record or an attempt, and the check before the send uses the same
rules.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import compress
from operator import not_
from typing import TYPE_CHECKING, NamedTuple

import trio

from trawl.engine.cache_lookup import NoCache
from trawl.engine.context import CrawlContext
from trawl.engine.robots_gate import RobotsGates, RobotsWaiter, end_unread
from trawl.engine.state import RequestTask, in_steps
from trawl.errors import DownloadError, IgnoreRequest, UsageError
from trawl.events import RequestDropped, RequestScheduled
from trawl.frontier import MemoryFrontier, Record, ScopeAmounts
from trawl.http import Drop, Outcome, Replace, Request, Response, fingerprint
from trawl.http.notes import note, notes_of
from trawl.http.request import FINGERPRINT_BYTES
from trawl.middleware.proxies import forget_chosen
from trawl.scheduler import AdmissionRules, Attempt, Scheduler
from trawl.scheduler.attempt import amounts_of
from trawl.throttling import Throttle

if TYPE_CHECKING:
    from trawl.engine.direct import FetchWaiter
    from trawl.engine.limits import CrawlLimits

__all__ = ["Admission", "Requirements", "not_before"]

logger: logging.Logger = logging.getLogger("trawl.admission")

FOUND_TO = 0.001
"""Seconds. Requests found within this time share one time value, which saves memory."""

MAX_SCOPES = 32
"""Maximum number of scopes for a request that its middleware sends elsewhere at each attempt. With more, it ends."""


class Requirements(NamedTuple):
    """The scopes and the origin that must allow a request before it may be sent."""

    scopes: ScopeAmounts
    origin: str  # whose robots.txt applies; empty or without a scheme: none
    is_exempt: bool  # it takes no place in its scopes (dont_throttle)


class Admission:
    """Accepts the requests of one crawl. Raises UsageError if an allowed domain of the spider is not a domain."""

    def __init__(
        self,
        context: CrawlContext,
        throttle: Throttle,
        gates: RobotsGates,
        scheduler: Scheduler,
        cache_lookup: NoCache,
        limits: CrawlLimits,
    ) -> None:
        try:
            domains, guard = context.spider.allowed_domains, context.network.guard
            self._rules = AdmissionRules(context.values.scheduler, domains, guard)
        except ValueError as error:
            raise UsageError(f"{context.spider.name}: {error}") from error
        self._frontier = context.frontier
        self._stats = context.stats
        self._tells = logger.isEnabledFor(logging.DEBUG)
        self._state = context.state
        self._events = context.events
        self._prepare = context.middleware_stack.prepare
        self._job = context.open_job
        self._mark = context.mark
        self._has_warned: bool = False
        self._follows_loops = context.values.follows_loops
        self._start_urls: dict[bytes, int] = {}
        self._throttle = throttle
        self._gates = gates
        self._scheduler = scheduler
        self._cache_lookup = cache_lookup
        self._limits = limits
        self._found_at = -math.inf
        self._restored_at = -math.inf
        # Returns True if another process of the job must send a request with these scopes.
        self.is_foreign: Callable[[Request, ScopeAmounts], bool] = lambda request, scopes: False

    @property
    def never_waits(self) -> bool:
        """True if :meth:`admit` never waits, so that it can't be cancelled half-way."""
        return type(self._frontier) is MemoryFrontier and self._throttle.resolver.never_waits

    # -- requirements of a request

    def _requirements_nowait(self, request: Request) -> Requirements | None:
        """Return the requirements of ``request``; None if a manager or the resolver must be called and may wait."""
        scopes = self._throttle.resolver.of_nowait(request)
        if scopes is None:
            return None
        return Requirements(scopes, self._gates.origin_of(request), bool(request.meta_get("dont_throttle")))

    async def _requirements_of(
        self, request: Request, before: ScopeAmounts | None = None, *, has_tab: bool = False
    ) -> Requirements:
        """Return the scopes and the origin that an admitted request needs. A checkpoint only if a call has to wait.

        All requests get their scopes here. The exception is a request that a middleware changes (:meth:`objection`).
        :class:`~trawl.throttling.scope_resolver.ScopeResolver` has the rule itself (meta, manager, host). Raises any
        error of a user's manager, and TypeError or ValueError if meta or manager name no valid scopes.

        If the scopes are those ``before``, of the request that it replaces, it is not new to them, so it is affected if
        they were given up since. ``has_tab``, whether its page gets a tab of the browser at once, is noted, because a
        copy has the notes of its request.
        """
        if notes_of(request).has_tab is not has_tab:
            note(request, has_tab=has_tab)
        # Nearly always at once, because only a user's manager or a lookup of an address is awaited.
        needs = self._requirements_nowait(request) or await self._asked(request)
        if needs.scopes != before:
            self._throttle.admitted(request, needs.scopes)
        return needs

    async def _asked(self, request: Request) -> Requirements:
        scopes = await self._throttle.resolver.of(request)
        return Requirements(scopes, self._gates.origin_of(request), bool(request.meta_get("dont_throttle")))

    # -- pages

    async def admit(
        self, requests: Sequence[Request], *, depth: int, is_start: bool = False, source: Response | None = None
    ) -> list[Record]:
        """Return the records of the accepted requests, and count the others under their reasons.

        They were found at ``depth`` links from the start, on ``source``. If ``is_start``, user code outside callbacks
        adds them.
        """
        admitted: list[Request] = []
        marks: list[bytes | None] = []
        for request in requests:
            if is_start:  # the user chose start URLs and accepts where they redirect to
                request.meta["is_start_request"] = True
                self.note_start(request)
            refusal = self._rules.refusal(request, depth=depth)
            if refusal is not None:
                words = refusal.replace("_", " ")
                self._stats.inc(refusal)
                self._tell_dropped([request], refusal, words)
                if is_start:
                    logger.error("%r from start() or add() is dropped: %s", request, words)
                continue
            request.depth = depth
            admitted.append(request)
            marks.append(self._unfiltered_mark(request, is_start) if request.dont_filter else self._mark(request))
        if not admitted:
            return []
        # All requests of a page together, so that a job queries its store once instead of once per link.
        fresh = await self._claimed(marks)
        if repeated := fresh.count(False):  # most links of a page, so count them at once
            self._stats.inc("dupefilter_filtered", repeated)
            self._tell_dropped(compress(admitted, map(not_, fresh)), "dupefilter_filtered", "seen before")
        records = []
        for request, mark in compress(zip(admitted, marks, strict=True), fresh):
            if request.placeholder:
                self._warn_of_placeholder(request, source)
            record = await self._record_of(request, mark, source)
            if isinstance(record, str):
                self._stats.inc(record)
                if mark is not None:
                    await self._frontier.disclaim([mark])
                continue
            records.append(record)
            if RequestScheduled in self._events.wanted:  # checked here too, because most crawls have no receiver
                self.tell_scheduled(request)
        return records

    def tell_scheduled(self, request: Request) -> None:
        """Emit the event of an admitted request."""
        if RequestScheduled in self._events.wanted:
            self._events.emit(RequestScheduled(request))

    def _tell_dropped(self, requests: Iterable[Request], reason: str, words: str) -> None:
        for request in requests if self._tells or RequestDropped in self._events.wanted else ():
            logger.debug("%r is dropped: %s", request, words)
            self._events.emit(RequestDropped(request, reason))

    def note_start(self, request: Request) -> None:
        """Record a request that user code, not a page, has named."""
        if self._rules.note_start(request):
            self._stats.set("private_addresses_allowed", 1)  # a resumed job may not read start() again

    def restore(self) -> None:
        """Prepare for requests of an earlier run in the frontier, which may have had other settings."""
        if self._stats.get("private_addresses_allowed"):
            self._rules.open_addresses()
        if self._frontier.statistics().pending:
            self._restored_at = trio.current_time()

    def attempt_for(self, record: Record) -> Attempt:
        """Make the scheduler's attempt for a leased record, and load the robots.txt of its origin if needed."""
        # Restored records, and records from other processes, were not resolved in this run. Some scopes are known as
        # hosts only once a request was resolved.
        if self._job.is_shared or (self._restored_at > -math.inf and self._is_restored(record)):
            self._throttle.resolver.of_nowait(record.request)
            self._rules.hear_vouched(record.request)
            forget_chosen(record.request)
        self._gates.ensure(record.origin, record.request)
        return Attempt.of_record(record)

    def ask_early(self, record: Record) -> None:
        """Request the robots.txt of a record's origin before the record is due, so that it can be sent on time."""
        self._rules.hear_vouched(record.request)
        self._gates.ensure(record.origin, record.request)

    # -- requests that replace others

    async def successor(self, attempt: Attempt, then: Replace) -> Record | str:
        """Make the record that replaces a page, or return the reason why the page ends here.

        A new target is checked against the rules. It ends as a duplicate if it was seen before, except in its own
        redirect chain, because a page that sets a cookie and redirects to itself is not a loop yet.
        """
        lease, request = attempt.options.lease, then.request
        diverted = attempt.task.diverted if request is attempt.request else None
        # A retry keeps the seen mark that was set when its request was found.
        mark, is_claimed = lease.fingerprint, False
        if then.is_new_target:
            refusal = self._rules.refusal(request, depth=lease.request.depth)
            if refusal is not None:
                return refusal
            mark = None if request.dont_filter else self._mark(request)
            is_claimed = (await self._claimed([mark]))[0]
            if not is_claimed and not self._may_loop(mark, request):
                return "dupefilter_filtered"
        # A redirect is not a link, so its target has the same depth as the page that it replaces.
        request.depth = lease.request.depth
        record = await self._record_of(request, mark, None, then, lease.scopes, diverted)
        if isinstance(record, str) and is_claimed and mark is not None:  # so another page may find the target again
            await self._frontier.disclaim([mark])
        return record

    async def _record_of(
        self,
        request: Request,
        mark: bytes | None,
        source: Response | None,
        then: Replace | None = None,
        before: ScopeAmounts | None = None,
        diverted: Requirements | None = None,
    ) -> Record | str:
        """Return the record of an accepted request whose seen ``mark`` is set, or the reason why it can't be stored.

        If it replaces another request: ``then`` says why, ``before`` has the scopes of that request, and ``diverted``
        what it needs itself if its middleware has changed it.
        """
        try:
            self._prepare(request, source)
            # The delay in the meta of a retry was already applied.
            until = not_before(request) if then is None or then.is_new_target else 0.0
            scopes, origin, _ = diverted or await self._requirements_of(request, before)
        except Exception:
            logger.exception("%r is dropped: its meta, or the manager, names no right scopes or delay", request)
            return "scope_errors"
        now = trio.current_time()
        if then is not None and then.delay:
            until = max(until, now + then.delay)
        amounts = amounts_of(scopes)
        if amounts or diverted is not None:
            share = next((amount for amount in amounts if amount is not None), 0.0)  # the larger share goes first
            record = Record(request, scopes, origin, mark, until, share, amounts, is_diverted=diverted is not None)
        else:
            record = Record(request, scopes, origin, mark, until)
        if now - self._found_at > FOUND_TO:
            self._found_at = now
        record.found_at = self._found_at
        if self._job.is_durable:  # a run that does not read start() may send it
            self._rules.note_vouched(request, is_shared=self._job.is_shared)
            refusal = self._frontier.refusal(record)
            if refusal is not None:
                logger.error("%r is dropped, because the job can't store it: %s", request, refusal)
                return "unstorable_requests"
        return record

    # -- direct fetches and robots.txt

    async def direct_attempt(
        self,
        request: Request,
        waiter: FetchWaiter | RobotsWaiter,
        *,
        passes_gate: bool = False,
        replaces: Attempt | None = None,
    ) -> Attempt:
        """Return the scheduler's attempt for a request that never enters the frontier.

        Its ``waiter`` receives the outcome. Robots.txt ``passes_gate``, so it waits at none. A redirect or a retry
        ``replaces`` an attempt. Raises any error of a user's manager that names the scopes.
        """
        self._prepare(request, None)
        earlier, before, diverted = request, None, None
        if replaces is not None:
            earlier, before = replaces.request, replaces.scopes
            diverted = replaces.task.diverted if request is earlier else None
        needs = diverted or await self._requirements_of(request, before, has_tab=notes_of(earlier).has_tab)
        self.check_ours(request, needs.scopes)
        return Attempt(
            request,
            needs.scopes,
            origin=needs.origin,
            priority=request.priority,
            is_direct=True,
            is_exempt=needs.is_exempt,
            is_diverted=diverted is not None,
            is_sub_request=notes_of(request).is_sub_request,
            passes_gate=passes_gate,
            waiter=waiter,
        )

    def check_ours(self, request: Request, scopes: ScopeAmounts) -> None:
        """Raise IgnoreRequest if another process sends to its host, because a direct fetch can't be passed on."""
        if self.is_foreign(request, scopes):
            raise IgnoreRequest(
                f"{request!r}: another process of this job sends to its host, and only that one knows when it may:"
                " yield the request from a callback, so that it goes there, or declare the host's scope as"
                f' {{"shared": True}} in THROTTLING_SCOPES (or name it in BROWSER_THIRD_PARTY, for requests of pages)'
            )

    def count_sub_request(self, attempt: Attempt, change: int) -> None:
        """Count a request of a rendered page as pending (1) or ended (-1)."""
        now = trio.current_time()
        self._limits.count_sub_requests(change, [self._throttle.scope(id, now) for id, _ in attempt.scopes])

    async def ask_robots(self, origin: str, pause: float) -> None:
        """Queue the request for an origin's robots.txt, after a pause of ``pause`` seconds.

        If an earlier run of the job stored the response, it is used instead. A checkpoint only if that response is
        long.
        """
        if await in_steps(self._gates.recall(origin)):
            return
        until = trio.current_time() + pause if pause else 0.0
        request, waiter = self._gates.robots_request(origin)
        try:
            attempt = await self.direct_attempt(request, waiter, passes_gate=True)
        except Exception:  # from a user's manager
            logger.exception("%s: the throttling manager could not name the scopes of robots.txt", origin)
            # The gate treats this as an unreadable robots.txt, so it retries or gives the origin up.
            waiter.deliver(Outcome(request, error=DownloadError("no throttling scopes", url=request.url)))
            return
        waiter.attempt = attempt
        await self.line_up(attempt, until)

    async def line_up(self, attempt: Attempt, not_before: float = 0.0) -> None:
        """Queue an attempt: at its origin's gate if that is closed, or for a stored response from a cache."""
        # Check the cache before the gate, because a cached response needs no robots.txt.
        if await self._cache_lookup.took(attempt):
            return
        options = attempt.options
        if options.waiter is not None and (parent := options.waiter.parent) is not None:
            parent.has_fetched = True
            self._scheduler.fetches(parent, trio.current_time())
            if not attempt.is_sub_request:
                self._limits.decide_early(parent, attempt)
        if not options.passes_gate:
            if self._gates.ends(attempt):
                end_unread(attempt)
                return
            self._gates.ensure(options.origin, attempt.request)
        self._scheduler.push(attempt, trio.current_time(), not_before)
        self._state.wakeup.set()

    # -- at the send

    def is_in_doubt(self, attempt: Attempt, request: Request) -> bool:
        """Return True if ``request``, which is about to be sent, may need more than its attempt covers.

        Either the middleware has changed it, or it was rerouted, so that robots.txt was not checked for it, or an
        earlier run accepted it, perhaps with other settings.
        """
        options = attempt.options
        if options.is_diverted or attempt.task.differs_from(request):
            return True
        return self._restored_at > -math.inf and attempt.is_page and self._is_restored(options.lease)

    def _is_restored(self, record: Record) -> bool:
        return record.found_at is None or record.found_at <= self._restored_at

    async def objection(self, attempt: Attempt, request: Request) -> Outcome | None:
        """Return the outcome of an attempt that does not cover ``request``, which is about to be sent; None if it does.

        A checkpoint only if a user's manager waits. The attempt keeps its places meanwhile.
        """
        task: RequestTask = attempt.task
        options = attempt.options
        is_changed = task.differs_from(request)
        if task.responder is not None:
            # The lookup was for the queued request, so its response may not be used for a changed one.
            return None if task.looks_like(request) else self._unanswered(attempt, request)
        try:
            needs = self._requirements_nowait(request)
            if needs is None and (is_changed or options.is_diverted or not self._throttle.resolver.asks_manager):
                # A copy, because the manager's cached result for this object (scope_cache) may be older than the
                # change.
                needs = await self._asked(request.replace() if request is attempt.request else request)
        except Exception:
            logger.exception("%r is dropped: its meta, or the manager, names no right scopes", request)
            return Outcome(request, then=Drop("scope_errors"))
        if needs is None:  # unchanged since an earlier run, which called the manager
            needs = Requirements(attempt.scopes, self._gates.origin_of(request), attempt.is_exempt)
        if not self._is_covered(needs, attempt):
            # Leases.replace then returns it to the frontier. It cost no send, so nothing else limits how many there
            # are.
            task.is_stopped = True
            if is_changed or options.is_diverted:
                # At the first attempt its current scopes, from the second on all scopes that it has needed so far.
                scopes = _united(attempt.scopes, needs.scopes) if options.is_diverted else needs.scopes
                if len(scopes) > max(MAX_SCOPES, len(needs.scopes)):
                    return Outcome(request, error=_never_the_same(attempt.request))
                task.diverted = Requirements(scopes, needs.origin, is_exempt=False)
                # The request is new to these scopes, so it is not affected if they were given up before.
                self._throttle.admitted(attempt.request, needs.scopes)
            return Outcome(request, then=Replace(attempt.request, reason="diverted"))
        # The scheduler checked the queued URL against robots.txt. Check any other URL here.
        is_judged = request.url == task.url and needs.origin == options.origin and not options.is_diverted
        if not is_judged and not options.passes_gate and self._gates.has_forbidden(needs.origin, request.url):
            return Outcome(request, then=Drop("robots_forbidden"))
        return None

    def _is_covered(self, needs: Requirements, attempt: Attempt) -> bool:
        """Return True if ``attempt`` covers the requirements ``needs``."""
        origin, gates, options = needs.origin, self._gates, attempt.options
        if not (origin == options.origin or options.passes_gate or not gates.has_gate(origin) or gates.is_open(origin)):
            return False
        if needs.is_exempt or not needs.scopes:
            return True
        # The attempt took no places, but the request needs some.
        if attempt.is_exempt:
            return False
        if needs.scopes == attempt.scopes:
            return True
        # A rerouted attempt also holds the scopes of its earlier attempts, so more than the needed scopes is enough.
        granted = dict(attempt.scopes)
        return options.is_diverted and all(
            id in granted and _counted(amount) <= _counted(granted[id]) for id, amount in needs.scopes
        )

    def _unanswered(self, attempt: Attempt, request: Request) -> Outcome:
        """End an attempt whose stored response belongs to another request."""
        pending = attempt.request
        if attempt.task.looks_like(pending):  # another lookup would find the same response
            pending.meta["dont_cache"] = True
        return Outcome(request, then=Replace(pending, reason="diverted"))

    # -- inside

    async def _claimed(self, marks: Sequence[bytes | None]) -> list[bool]:
        """Set the seen marks. Returns True for each new mark and each None, and False for the others. May wait."""
        claimed = [mark for mark in marks if mark]
        fresh = await self._frontier.claim_many(claimed) if claimed else []
        if len(claimed) == len(marks):
            return fresh
        answers = iter(fresh)
        return [mark is None or (mark != b"" and next(answers)) for mark in marks]

    def _unfiltered_mark(self, request: Request, is_start: bool) -> bytes | None:
        """Return None, the mark of a request that is sent each time it is found.

        With a job, start URLs without filter get a mark from their number among equal URLs, because a ``start()`` that
        was interrupted is read again and yields them again.
        """
        if not (is_start and self._job.is_durable and request.is_start_url):
            return None
        mark = fingerprint(request)
        number = self._start_urls[mark] = self._start_urls.get(mark, 0) + 1
        return blake2b(mark + number.to_bytes(8, "big"), digest_size=FINGERPRINT_BYTES, person=b"start URL").digest()

    def _warn_of_placeholder(self, request: Request, source: Response | None) -> None:
        """Warn once of a ``{name}`` in a URL, left by a string without its ``f``. Links of pages may have some."""
        name = request.placeholder
        if self._has_warned:
            return
        # A compressed sitemap (``sitemap.gz``) has no text.
        if source is not None and (source.body[:2] == b"\x1f\x8b" or f"{{{name}}}" in source.text):
            return
        self._has_warned = True
        where = "" if source is None else f" (found on {source.url})"
        words = '%r%s: its URL has {%s} in it: put an f before the string, f"...{%s}...", to have the value there'
        logger.warning(words, request, where, name, name)

    def _may_loop(self, mark: bytes | None, request: Request) -> bool:
        """Return True if loops are followed and ``mark`` belongs to a URL in the redirect chain of ``request``."""
        if not mark or not self._follows_loops:
            return False
        return any(self._mark(request.replace(url=url)) == mark for url in request.meta_get("redirect_urls", ()))


def not_before(request: Request) -> float:
    """Return the earliest event loop time that meta ``delay`` (seconds from now) allows; 0.0 without a delay.

    Raises ValueError or TypeError if the delay is not a finite number of seconds.
    """
    delay = request.meta_get("delay")
    if not delay:
        return 0.0
    if not math.isfinite(seconds := float(delay)):
        raise ValueError(f"meta delay is a number of seconds, not {delay!r}")
    return trio.current_time() + seconds


def _never_the_same(request: Request) -> IgnoreRequest:
    return IgnoreRequest(
        f"{request!r}: its middleware sends it to another place at each turn: choose once, and keep the choice in"
        " request.meta"
    )


def _counted(amount: float | None) -> float:
    return 1.0 if amount is None else amount


def _united(these: ScopeAmounts, those: ScopeAmounts) -> ScopeAmounts:
    """Return the union of two sets of scopes, each scope with its larger amount."""
    amounts = dict(these)
    for id, amount in those:
        if id not in amounts or _counted(amounts[id]) < _counted(amount):
            amounts[id] = amount
    return tuple(sorted(amounts.items(), key=lambda charge: charge[0]))
