"""Admission: what every request is charged to, whose robots.txt it obeys, and whether it is taken in at all.

Theory of operation. Whichever way a request comes, this is where it gets its scopes, its origin and the gate of that::

    found on a page, given by start() ──► admit ─────► Record ─► frontier ─► leased ──┐
    its redirect, its retry, a Replace ─► successor ─► Record ─┬► frontier ─► leased ─┤
    fetch(), robots.txt, theirs ────────► direct_grant ────────┴─────────► line_up ───┴─► Grant in the scheduler
                                                                                            │ granted
    what the middleware hands to the wire ──► objection: not what was granted? another one ◄─┘

A middleware sees a request only when it is granted, and may make another of it: another host, another session, a
proxy that a manager has a scope for. So what is about to be sent is compared with what was granted
(:meth:`Admission.objection`). Where it needs other scopes, or an origin whose robots.txt is not read, it is not sent:
the request goes back, charged to what it turned out to need, and its middleware sees it again when that allows. One
that is sent elsewhere each time (a mirror drawn by lot) would never meet its grant; so from the second time on it is
charged to all that it has needed so far, and goes when each of them allows. One for which that never ends (a new
subdomain each time) ends with an error.

The claim comes before the scopes are asked for, because a manager's ``get_scopes`` may await: two tasks that found the
same link at once must not both push it. A claim whose request is not stored after all is given back.

Length: every way in ends in the same record or grant, and what is asked again at the send is what was asked here.
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
from trawl.engine.robots_gate import RobotsGates
from trawl.engine.state import RequestTask, Waiter, in_steps
from trawl.errors import DownloadError, IgnoreRequest, UsageError
from trawl.events import RequestDropped, RequestScheduled
from trawl.frontier import MemoryFrontier, Record, ScopeAmounts
from trawl.http import Drop, Outcome, Replace, Request, Response, fingerprint
from trawl.http.request import FINGERPRINT_BYTES
from trawl.middleware.proxies import forget_chosen
from trawl.scheduler import AdmissionRules, Grant, Scheduler
from trawl.scheduler.grant import amounts_of
from trawl.throttling import Throttle

if TYPE_CHECKING:
    from trawl.engine.limits import CrawlLimits

__all__ = ["Admission", "Requirements", "not_before"]

logger: logging.Logger = logging.getLogger("trawl.admission")

FOUND_TO = 0.001
"""Seconds: requests that are found within so many share one instant, and its memory."""

MAX_SCOPES = 32
"""Scopes that a request is charged to that its middleware sends elsewhere at each grant; with more of them it ends."""


class Requirements(NamedTuple):
    """The scopes and the origin that have to allow a request before it may be sent.

    Attributes:
        scopes: Its scopes, each with the amount it expects to use.
        origin: The origin whose robots.txt it obeys; empty, or without a scheme: none.
        is_exempt: It takes no place in its scopes (``dont_throttle``).
    """

    scopes: ScopeAmounts
    origin: str
    is_exempt: bool


class Admission:
    """Takes the requests of one crawl in.

    Args:
        context: The frontier, where fingerprints are claimed; the rules; statistics, events, state.
        throttle: Names scopes.
        gates: Names origins, and closes the gate of one whose robots.txt is not read.
        scheduler: Has what waits for its turn.
        cache_lookup: Takes what need not be sent.
        limits: The limits of the crawl in pages.

    Attributes:
        is_foreign: Says if another process of the job is to send a request with these scopes; None: there is none.

    Raises:
        UsageError: An allowed domain of the spider is not a domain.
    """

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
            self._rules = AdmissionRules(context.scheduler, context.spider.allowed_domains, context.guard)
        except ValueError as error:
            raise UsageError(f"{context.spider.name}: {error}") from error
        self._frontier = context.frontier
        self._stats = context.stats
        self._tells = logger.isEnabledFor(logging.DEBUG)
        self._state = context.state
        self._events = context.events
        self._prepare = context.middleware_stack.prepare
        self._is_durable = context.open_job.is_durable
        self._mark = context.mark
        self._has_warned: bool = False
        self._follows_loops = context.follows_loops
        self._start_urls: dict[bytes, int] = {}
        self._throttle = throttle
        self._gates = gates
        self._scheduler = scheduler
        self._cache_lookup = cache_lookup
        self._limits = limits
        self._found_at = -math.inf
        self._restored_at = -math.inf
        self.is_foreign: Callable[[Request, ScopeAmounts], bool] | None = None

    @property
    def never_waits(self) -> bool:
        """True if :meth:`admit` never waits, so that it can't be cancelled half-way."""
        return type(self._frontier) is MemoryFrontier and self._throttle.resolver.never_waits

    # -- what a request needs

    def _requirements_nowait(self, request: Request) -> Requirements | None:
        """Name what ``request`` needs; None where a user's manager, or the resolver, has to be asked and may wait."""
        scopes = self._throttle.resolver.of_nowait(request)
        if scopes is None:
            return None
        return Requirements(scopes, self._gates.origin_of(request), bool(request.meta_get("dont_throttle")))

    async def _requirements_of(self, request: Request, before: ScopeAmounts | None = None) -> Requirements:
        """Return the scopes and the origin that an admitted request needs.

        Every request gets its scopes here (a page, a redirect, a retry, a direct fetch, robots.txt) but what a
        middleware makes of one: that is asked about in :meth:`objection`, and may keep the scopes of its grant too. The
        rule itself (meta, manager, host) is :class:`~trawl.throttling.scope_resolver.ScopeResolver`. A checkpoint only
        where what has to be asked waits.

        Args:
            request: The request.
            before: The scopes of the request that it replaces. If its own are the same, the request is not new to them:
                what they were given up for counts for it (promise B20). None: it replaces none.

        Raises:
            Exception: Whatever a user's manager raises.
            TypeError: Meta ``throttling_scopes``, or the manager's answer, is no set of scopes.
            ValueError: An id is empty, or an amount negative.
        """
        # Nearly always at once: only a user's manager, or a look-up of an address, is awaited.
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
        """The records of those requests that are let in; the others are counted under their reason.

        Args:
            requests: What was found.
            depth: In links from the start.
            is_start: The user's own code gives them.
            source: The page that they were found on.
        """
        admitted: list[Request] = []
        marks: list[bytes | None] = []
        for request in requests:
            if is_start:  # what a user starts from, and where that redirects to, is wanted by its name
                request.meta["is_start_request"] = True
                self.note_start(request)
            refusal = self._rules.refusal(request, depth=depth)
            if refusal is not None:
                self._dropped(request, refusal)
                if is_start:
                    logger.error("%r from start() or add() is dropped: %s", request, refusal.replace("_", " "))
                continue
            request.depth = depth
            admitted.append(request)
            marks.append(self._unfiltered_mark(request, is_start) if request.dont_filter else self._mark(request))
        if not admitted:
            return []
        # All of a page together: a job asks its store once, not once for each link.
        fresh = await self._claimed(marks)
        if repeated := fresh.count(False):  # most links of a page: counted at once
            self._stats.inc("dupefilter_filtered", repeated)
            if self._tells or RequestDropped in self._events.wanted:
                self._tell_repeated(compress(admitted, map(not_, fresh)))
        records = []
        for request, mark in compress(zip(admitted, marks, strict=True), fresh):
            record = await self._found(request, mark, source)
            if record is not None:
                records.append(record)
                if RequestScheduled in self._events.wanted:
                    self._events.emit(RequestScheduled(request))
        return records

    def _tell_repeated(self, requests: Iterable[Request]) -> None:
        for request in requests:
            if self._tells:
                logger.debug("%r is dropped: seen before", request)
            self._events.emit(RequestDropped(request, "dupefilter_filtered"))

    def note_start(self, request: Request) -> None:
        """Take note of a request that the user's own code makes, not that of a page."""
        if self._rules.note_start(request):
            self._stats.set("private_addresses_allowed", 1)  # a job that goes on later may not read start() again

    def restore(self) -> None:
        """Note that the frontier has requests of an earlier run, which may have been charged by other settings."""
        if self._stats.get("private_addresses_allowed"):
            self._rules.open_addresses()
        if self._frontier.statistics().pending:
            self._restored_at = trio.current_time()

    def grant_for(self, record: Record) -> Grant:
        """Make the scheduler's grant for a leased record, and see to the gate of its origin."""
        # The scopes of a restored one were not named in this run, and some are known as hosts only by that (E20). So it
        # is with those that another process has found.
        if self.is_foreign is not None or (self._restored_at > -math.inf and self._is_restored(record)):
            self._throttle.resolver.of_nowait(record.request)
            self._rules.hear_vouched(record.request)
            forget_chosen(record.request)
        self._gates.ensure(record.origin, record.request)
        return Grant.of_record(record)

    def ask_early(self, record: Record) -> None:
        """Have the robots.txt of a record's origin asked for before its time has come, so that it can go then."""
        self._rules.hear_vouched(record.request)
        self._gates.ensure(record.origin, record.request)

    # -- what takes the place of another

    async def successor(self, grant: Grant, then: Replace) -> Record | str:
        """Make the record that takes the place of a page, or give the reason why the page ends here.

        A new target (a redirect's) passes the rules, and ends as a duplicate if it was seen already, unless it is in
        its own chain: a page that sets a cookie and redirects to itself is no loop yet.
        """
        lease, request = grant.lease, then.request
        diverted = grant.task.diverted if request is grant.request else None
        # What is tried again was claimed when it was found: its mark goes on with it.
        mark, is_claimed = lease.fingerprint, False
        if then.is_new_target:
            refusal = self._rules.refusal(request, depth=lease.request.depth)
            if refusal is not None:
                return refusal
            mark = None if request.dont_filter else self._mark(request)
            is_claimed = (await self._frontier.claim_many([mark]))[0] if mark else False
            if mark is not None and not is_claimed and not self._may_loop(mark, request):
                return "dupefilter_filtered"
        # A redirect is not a link: its target is as deep as the page whose place it takes.
        request.depth = lease.request.depth
        try:
            self._prepare(request, None)
            # The meta of what is tried again has the delay that it waited for already.
            until = not_before(request) if then.is_new_target else 0.0
            needs = diverted or await self._requirements_of(request, lease.scopes)
        except Exception:
            logger.exception("%r is dropped: its meta, or the manager, names no right scopes or delay", request)
            reason = "scope_errors"
        else:
            if then.delay:
                until = max(until, trio.current_time() + then.delay)
            record = self._record(request, needs, mark, until, is_diverted=diverted is not None)
            if self._can_be_stored(record):
                return record
            reason = "unstorable_requests"
        # The target is not stored, so it is to be found anew where another page links to it.
        if is_claimed and mark is not None:
            await self._frontier.disclaim([mark])
        return reason

    # -- direct fetches and robots.txt

    async def direct_grant(
        self, request: Request, waiter: Waiter, *, passes_gate: bool = False, replaces: Grant | None = None
    ) -> Grant:
        """The scheduler's grant for a request that never enters the frontier.

        Args:
            request: What somebody waits for.
            waiter: Who.
            passes_gate: It is robots.txt, which waits for no gate.
            replaces: The grant whose place it takes: of a request that was redirected, or is to be sent again.

        Raises:
            Exception: Whatever a user's manager raises when it is asked for the scopes.
        """
        self._prepare(request, None)
        is_same = replaces is not None and request is replaces.request
        diverted = replaces.task.diverted if replaces is not None and is_same else None
        needs = diverted or await self._requirements_of(request, None if replaces is None else replaces.scopes)
        self.check_ours(request, needs.scopes)
        return Grant(
            request,
            needs.scopes,
            origin=needs.origin,
            priority=request.priority,
            is_direct=True,
            is_exempt=needs.is_exempt,
            is_diverted=diverted is not None,
            passes_gate=passes_gate,
            waiter=waiter,
        )

    def check_ours(self, request: Request, scopes: ScopeAmounts) -> None:
        """Check that this process may send a request that nobody else would send for it.

        Raises:
            IgnoreRequest: Another process of the same job sends to its host.
        """
        if self.is_foreign is not None and self.is_foreign(request, scopes):
            raise IgnoreRequest(
                f"{request!r}: another process of this job sends to its host, and only that one knows when it may:"
                " yield the request from a callback, so that it goes there, or declare the host's scope as"
                f' {{"shared": True}} in THROTTLING_SCOPES'
            )

    async def ask_robots(self, origin: str, pause: float) -> None:
        """Line up the request for an origin's robots.txt, not before ``pause`` seconds from now.

        It is not asked for if an earlier run of the job has heard the answer. A checkpoint only if that is long.
        """
        if await in_steps(self._gates.recall(origin)):
            return
        until = trio.current_time() + pause if pause else 0.0
        request, waiter = self._gates.robots_request(origin)
        try:
            grant = await self.direct_grant(request, waiter, passes_gate=True)
        except Exception:  # a user's manager
            logger.exception("%s: the throttling manager could not name the scopes of robots.txt", origin)
            # To the gate this is a robots.txt that could not be read: it asks again, or gives the origin up.
            waiter.deliver(Outcome(request, error=DownloadError("no throttling scopes", url=request.url)))
            return
        waiter.grant = grant
        await self.line_up(grant, until)

    async def line_up(self, grant: Grant, not_before: float = 0.0) -> None:
        """Have a grant wait for its turn, at its origin's gate if that is closed; or for its answer from a cache."""
        # Before the gate is seen to: what a cache answers needs no robots.txt.
        if await self._cache_lookup.took(grant):
            return
        if grant.waiter is not None and (parent := grant.waiter.parent) is not None:
            parent.has_fetched = True
            self._scheduler.fetches(parent, trio.current_time())
            self._limits.decide_early(parent, grant)
        if not grant.passes_gate:
            self._gates.ensure(grant.origin, grant.request)
        self._scheduler.push(grant, trio.current_time(), not_before)
        self._state.wakeup.set()

    # -- at the send

    def is_in_doubt(self, grant: Grant, request: Request) -> bool:
        """Tell if ``request``, which is about to be sent, may need something else than was granted.

        It is another one than before the middleware; or it was diverted before, so that robots.txt has not judged it
        yet; or an earlier run has taken it in, under other settings maybe.
        """
        if grant.is_diverted or grant.task.differs_from(request):
            return True
        has_restored = self._restored_at > -math.inf
        return has_restored and grant.lease is not None and self._is_restored(grant.lease)

    def _is_restored(self, record: Record) -> bool:
        return record.found_at is None or record.found_at <= self._restored_at

    async def objection(self, grant: Grant, request: Request) -> Outcome | None:
        """Say what becomes of a grant that is not for ``request``, which is about to be sent; None: it is.

        A checkpoint only where a user's manager has to be asked and waits. Its places are held meanwhile.
        """
        task: RequestTask = grant.task
        is_changed = task.differs_from(request)
        if task.responder is not None:
            # The cache was asked for what was queued: it may not answer what the middleware made of that.
            return None if task.looks_like(request) else self._unanswered(grant, request)
        try:
            needs = self._requirements_nowait(request)
            if needs is None and (is_changed or grant.is_diverted or not self._throttle.resolver.asks_manager):
                # A copy: what a manager has said of this very object (scope_cache) may be of what it was before.
                needs = await self._asked(request.replace() if request is grant.request else request)
        except Exception:
            logger.exception("%r is dropped: its meta, or the manager, names no right scopes", request)
            return Outcome(request, then=Drop("scope_errors"))
        if needs is None:  # it is as an earlier run has stored it, and the user's manager was asked then
            needs = Requirements(grant.scopes, self._gates.origin_of(request), grant.is_exempt)
        if not self._is_covered(needs, grant):
            # Leases.replace gives it back to the frontier then: it cost no send, so nothing slows down how many there
            # are.
            task.is_stopped = True
            if is_changed or grant.is_diverted:
                # At the first grant what it needs now; from the second on all that it has needed so far.
                scopes = _united(grant.scopes, needs.scopes) if grant.is_diverted else needs.scopes
                if len(scopes) > max(MAX_SCOPES, len(needs.scopes)):
                    return Outcome(request, error=_never_the_same(grant.request))
                task.diverted = Requirements(scopes, needs.origin, is_exempt=False)
                # To these scopes it is a new request: what they were given up for before does not concern it (B20).
                self._throttle.admitted(grant.request, needs.scopes)
            return Outcome(request, then=Replace(grant.request, reason="diverted"))
        # The scheduler asked robots.txt about the URL as it was queued; any other is asked about here.
        is_judged = request.url == task.url and needs.origin == grant.origin and not grant.is_diverted
        if not is_judged and not grant.passes_gate and self._gates.has_forbidden(needs.origin, request.url):
            return Outcome(request, then=Drop("robots_forbidden"))
        return None

    def _is_covered(self, needs: Requirements, grant: Grant) -> bool:
        """Tell if ``grant`` is enough for a request that needs ``needs``."""
        origin, gates = needs.origin, self._gates
        if not (origin == grant.origin or grant.passes_gate or not gates.has_gate(origin) or gates.is_open(origin)):
            return False
        if needs.is_exempt or not needs.scopes:
            return True
        # It took no place, and what is to be sent needs some.
        if grant.is_exempt:
            return False
        if needs.scopes == grant.scopes:
            return True
        # A diverted grant holds what its earlier ones needed as well: more than is needed is enough.
        granted = dict(grant.scopes)
        return grant.is_diverted and all(
            id in granted and _counted(amount) <= _counted(granted[id]) for id, amount in needs.scopes
        )

    def _unanswered(self, grant: Grant, request: Request) -> Outcome:
        """End a grant that was to be answered from the cache, by what is stored for another request."""
        pending = grant.request
        if grant.task.looks_like(pending):  # it will be looked up again, and found again
            pending.meta["dont_cache"] = True
        return Outcome(request, then=Replace(pending, reason="diverted"))

    # -- inside

    async def _claimed(self, marks: Sequence[bytes | None]) -> list[bool]:
        """Claim the marks; True for each that is new, and for None, false for an empty one, whose request was seen.

        A checkpoint only where the frontier waits.
        """
        claimed = [mark for mark in marks if mark]
        fresh = await self._frontier.claim_many(claimed) if claimed else []
        if len(claimed) == len(marks):
            return fresh
        answers = iter(fresh)
        return [mark is None or (mark != b"" and next(answers)) for mark in marks]

    def _unfiltered_mark(self, request: Request, is_start: bool) -> bytes | None:
        """Return None, the mark of a request that is sent however often it is met.

        A start URL that is not filtered is one of them. A job has a mark for it all the same, by its number among its
        equals: a ``start()`` that was cut off is read again, and gives it once more.
        """
        if not (is_start and self._is_durable and request.is_start_url):
            return None
        mark = fingerprint(request)
        number = self._start_urls[mark] = self._start_urls.get(mark, 0) + 1
        return blake2b(mark + number.to_bytes(8, "big"), digest_size=FINGERPRINT_BYTES, person=b"start URL").digest()

    def _warn_of_placeholder(self, request: Request, source: Response | None) -> None:
        """Warn once of a ``{name}`` that a string without its ``f`` has left in a URL. Links of pages may have some."""
        name = request.placeholder
        if self._has_warned:
            return
        if source is not None and (source.body[:2] == b"\x1f\x8b" or f"{{{name}}}" in source.text):  # or a sitemap.gz
            return
        self._has_warned = True
        where = "" if source is None else f" (found on {source.url})"
        words = '%r%s: its URL has {%s} in it: put an f before the string, f"...{%s}...", to have the value there'
        logger.warning(words, request, where, name, name)

    async def _found(self, request: Request, mark: bytes | None, source: Response | None) -> Record | None:
        """The record of a request that is let in, whose ``mark`` is claimed."""
        if request.placeholder:
            self._warn_of_placeholder(request, source)
        try:
            self._prepare(request, source)
            until = not_before(request)
            needs = await self._requirements_of(request)
        except Exception:
            logger.exception("%r is dropped: its meta, or the manager, names no right scopes or delay", request)
            self._stats.inc("scope_errors")
        else:
            record = self._record(request, needs, mark, until)
            if self._can_be_stored(record):
                return record
            self._stats.inc("unstorable_requests")
        if mark is not None:
            await self._frontier.disclaim([mark])
        return None

    def _may_loop(self, mark: bytes, request: Request) -> bool:
        """Tell if ``mark`` is that of a URL that redirected, step by step, to ``request``, and loops are followed."""
        if not mark or not self._follows_loops:
            return False
        return any(self._mark(request.replace(url=url)) == mark for url in request.meta_get("redirect_urls", ()))

    def _record(
        self, request: Request, needs: Requirements, mark: bytes | None, until: float, *, is_diverted: bool = False
    ) -> Record:
        scopes, origin, _ = needs
        if self._is_durable:  # a run that does not read start() may send it
            self._rules.note_vouched(request, is_shared=self.is_foreign is not None)
        amounts = amounts_of(scopes)
        if amounts or is_diverted:
            share = next((amount for amount in amounts if amount is not None), 0.0)  # the larger goes first (F07)
            record = Record(request, scopes, origin, mark, until, share, amounts, is_diverted=is_diverted)
        else:
            record = Record(request, scopes, origin, mark, until)
        now = trio.current_time()
        if now - self._found_at > FOUND_TO:
            self._found_at = now
        record.found_at = self._found_at
        return record

    def _can_be_stored(self, record: Record) -> bool:
        """Tell if the job can store a request; log it where not. Without a job every request can be stored."""
        reason = self._frontier.refusal(record) if self._is_durable else None
        if reason is not None:
            logger.error("%r is dropped, because the job can't store it: %s", record.request, reason)
        return reason is None

    def _dropped(self, request: Request, reason: str) -> None:
        self._stats.inc(reason)
        if self._tells:
            logger.debug("%r is dropped: %s", request, reason.replace("_", " "))
        if RequestDropped in self._events.wanted:
            self._events.emit(RequestDropped(request, reason))


def not_before(request: Request) -> float:
    """The instant before which meta ``delay`` (seconds from now) holds a request; 0.0 for none.

    Raises:
        ValueError: It is no number of seconds, or one that never ends.
        TypeError: It is nothing like a number.
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
    """All the scopes of both, each with the larger of its amounts."""
    amounts = dict(these)
    for id, amount in those:
        if id not in amounts or _counted(amounts[id]) < _counted(amount):
            amounts[id] = amount
    return tuple(sorted(amounts.items(), key=lambda charge: charge[0]))
