"""The worker: carries one granted request to its end, in one task and one cancel scope.

::

    fetch (middleware ► send) ──► Replace   the next step of its chain takes its place in the frontier
                              ├─► Drop      an expected end, counted
                              ├─► a waiter  a direct fetch, or robots.txt: the outcome is delivered
                              └─► callback or errback ──► outputs ──► acknowledged, in one step

A failing callback is logged with its request and counted; what it gave before it failed stays. Only ``CloseSpider``
ends more than the callback itself.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from functools import partial
from types import GeneratorType

import trio

from trawl.engine.callbacks import Callback, CallbackOutputs, advice, call, consume, leaf_errors, named
from trawl.engine.context import CrawlContext
from trawl.engine.fetcher import Fetcher
from trawl.engine.hooks import Hooks, hooked
from trawl.engine.items import ItemWriter, JobItemWriter
from trawl.engine.leases import Leases
from trawl.engine.limits import CrawlLimits
from trawl.engine.settings import EngineSettings
from trawl.engine.state import RequestTask, current_grant
from trawl.errors import AddressRefused, CloseSpider, ConnectFailed, DownloadError, HttpError, IgnoreRequest, TrawlError
from trawl.events import RequestDropped, RequestFailed, SpiderError
from trawl.http import Drop, Fetch, Outcome, Replace, Request
from trawl.scheduler import Grant
from trawl.spiders import Spider
from trawl.throttling import Throttle
from trawl.tracebacks import user_frames

__all__ = ["REQUEST_TASK", "StatusRule", "Worker"]

logger: logging.Logger = logging.getLogger("trawl.engine")

TOO_MANY_REQUESTS = 429

LONG = 0.005
"""Once a recent callback took longer (seconds), callbacks begin one a round of Trio's loop.

Time in which it waited counts as well: then a round of its own is not needed, and does no harm.
"""

FORGETS = 0.9
"""What is left of the longest callback's time with each one that was shorter."""

REQUEST_TASK = "trawl.engine.worker.Worker.run"
"""The name of a request's task, which simulations go by: a compiled method has none that Trio would find."""


class StatusRule:
    """The statuses that go to the callback; all others go to the errback, as an error with the response."""

    __slots__ = ("_codes",)

    def __init__(self, settings: EngineSettings, spider: Spider) -> None:
        has_own = spider.handle_httpstatus_list is not Spider.handle_httpstatus_list  # it overrides the setting
        codes = spider.handle_httpstatus_list if has_own else settings.httperror_allowed_codes
        self._codes: Container[int] = frozenset(codes)
        if settings.httperror_allow_all or getattr(spider, "handle_httpstatus_all", False):
            self._codes = range(1000)

    def is_handled(self, request: Request, status: int) -> bool:
        """Tell if the callback of ``request`` wants a response with ``status``; meta is asked first."""
        return 200 <= status < 300 or request.wants_status(status, self._codes)


class Worker:
    """Carries granted requests to their end.

    Args:
        context: The spider, whose callbacks are called; statistics, events, state.
        fetch: The middleware chain around ``fetcher.send``.
        fetcher: Gives places back.
        leases: Stores what callbacks find, and puts a redirect's target, or a retry, in the place of a request.
        items: Takes items.
        throttle: Told how many items a response gave.
        limits: Counts pages and failed callbacks.
        hooks: Put around every callback.
    """

    __slots__ = (
        "_events",
        "_fetch",
        "_fetcher",
        "_hooks",
        "_items",
        "_leases",
        "_limits",
        "_may_fetch",
        "_rounds",
        "_shields",
        "_spider",
        "_state",
        "_stats",
        "_statuses",
        "_throttle",
        "_took",
    )

    def __init__(
        self,
        context: CrawlContext,
        fetch: Fetch,
        fetcher: Fetcher,
        leases: Leases,
        items: ItemWriter | JobItemWriter,
        throttle: Throttle,
        limits: CrawlLimits,
        hooks: Hooks,
    ) -> None:
        self._spider = context.spider
        # A user's own code, whose direct fetches may be cancelled with the page, before the callback.
        self._may_fetch = bool(context.middleware_stack.settings.downloader_middlewares) or throttle.asks_manager
        self._statuses = StatusRule(context.engine, context.spider)
        self._shields = context.shields
        self._stats = context.stats
        self._state = context.state
        self._events = context.events
        self._fetch = fetch
        self._fetcher = fetcher
        self._leases = leases
        self._items = items
        self._throttle = throttle
        self._limits = limits
        self._hooks = hooks
        self._took = 0.0
        self._rounds = trio.Lock()

    async def run(self, grant: Grant) -> None:
        """Carry one grant to its end. If it is cancelled, its lease is given back at the end of the crawl."""
        current_grant.set(grant)
        try:
            with grant.task:
                if self._may_fetch or not grant.is_page:
                    grant.task.take_cancels()
                outcome = await self._outcome(grant)
                # What it was first, its places second: else one page too many could be granted (CLOSESPIDER_PAGECOUNT).
                self._limits.decided(grant, outcome)
                self._fetcher.give_back(grant, outcome)
                await self._act(grant, outcome)
                grant.task.is_done = True
        finally:
            # Where it came to its end, both were done above, and do nothing here.
            self._limits.decided(grant, None)
            self._fetcher.give_back(grant)
            self._end(grant)

    async def refuse(self, grant: Grant, reason: str, failure: DownloadError | None = None) -> None:
        """End a grant that may not go at all; it took no place.

        Args:
            grant: What waited.
            reason: Why it may not go.
            failure: What its origin's robots.txt could not be had for.
        """
        request = grant.request
        outcome = Outcome(request, then=Drop(reason))
        if reason == "robots_unreachable":
            kind, why = type(failure or ConnectFailed("")), "" if failure is None else f": {failure.cause}"
            outcome = Outcome(request, error=kind(f"robots.txt could not be read{why}", url=request.url))
        elif reason == "private_addresses_refused":
            self._stats.inc(reason)
            outcome = Outcome(request, error=AddressRefused("refused: its address is not public", url=request.url))
        # The dispatcher makes tasks for what is granted, which this was not.
        grant.task = RequestTask(grant.request)
        grant.task.is_decided = True
        current_grant.set(grant)
        try:
            with grant.task:
                if self._may_fetch or not grant.is_page:
                    grant.task.take_cancels()
                await self._act(grant, outcome)
                grant.task.is_done = True
        finally:
            self._end(grant)

    def _end(self, grant: Grant) -> None:
        if not grant.task.is_done and grant.is_page:
            self._leases.abandon(grant.lease)
        self._state.task_ended(is_page=grant.is_page)

    async def _outcome(self, grant: Grant) -> Outcome:
        request = grant.request
        try:
            return await self._fetch(request)
        except IgnoreRequest as error:
            self._stats.inc("ignored_count")
            return Outcome(request, error=error)
        except Exception as error:  # a user's middleware; the transport's failures are values
            logger.exception("%r: a middleware failed", request)
            self._stats.inc("middleware_exceptions")
            failure = IgnoreRequest(f"{request!r}: a middleware failed: {error!r}")
            failure.__cause__ = error
            return Outcome(request, error=failure)

    async def _act(self, grant: Grant, outcome: Outcome) -> None:
        then = outcome.then
        if isinstance(then, Replace):
            refusal = await self._leases.replace(grant, then)
            if refusal is None:
                return
            then = Drop(refusal)
        self._tell(outcome, then)
        waiter = grant.waiter
        if waiter is not None:
            if isinstance(then, Drop):
                outcome.error = IgnoreRequest(f"{grant.request!r}: {then.reason.replace('_', ' ')}")
                outcome.response = None
            waiter.deliver(outcome)
        elif isinstance(then, Drop):
            self._stats.inc(then.reason)
            logger.debug("%r ends: %s", grant.request, then.reason)
            # It had no good answer, so a job keeps it, to be queued again; the other reasons are ends that are wanted.
            failure = "its host was given up" if then.reason == "refused" else None
            await self._leases.finish(grant.lease, (), depth=0, failure=failure)
        else:
            # From here on, not from when it is called: pages that wait for their turn, or to be stored, count as well.
            self._state.callback_began()
            try:
                await self._call_back(grant, outcome)
            finally:
                self._state.callback_ended()

    def _tell(self, outcome: Outcome, then: object) -> None:
        wanted = self._events.wanted
        if isinstance(then, Drop):
            if RequestDropped in wanted:
                self._events.tell(RequestDropped(outcome.request, then.reason))
        elif outcome.error is not None and RequestFailed in wanted:
            self._events.tell(RequestFailed(outcome.request, outcome.error))

    async def _call_back(self, grant: Grant, outcome: Outcome) -> None:
        request = grant.request
        response = outcome.response
        error: TrawlError | None = outcome.error
        depth = request.depth
        outlet = self._items.of(grant.lease)
        outputs = CallbackOutputs(outlet, self._leases, depth + 1, response, self._events)
        if response is not None:
            meta = request.meta
            # For the callback, which may look there as in Scrapy; a request that only waits has no meta for it.
            meta["depth"] = depth
            meta["download_latency"] = response.latency
            sent = response.request
            if sent is not None and sent is not request:  # a middleware's copy, whose meta is the response's
                sent.meta.update(depth=depth, download_latency=response.latency)
            if not (is_handled := self._statuses.is_handled(request, response.status)):
                error = HttpError(response)
            elif (error := self._hooks.received(response)) is None:
                if self._took > LONG:
                    await self._take_round(grant)
                await self._run(grant, request.callback, "_parse", response, request.cb_kwargs, outputs)
                now = trio.current_time()
                self._throttle.items(request, outputs.items)
                self._took = max(self._fetcher.parsed(grant, response, now), FORGETS * self._took)
        if error is not None:
            error.request = request
            if request.errback is not None:
                request.meta["depth"] = depth
                await self._run(grant, request.errback, "", error, None, outputs)
                self._fetcher.parsed(grant, response, trio.current_time())
            elif response is not None and (is_handled or self._hooks.sees_refused):
                await self._run(grant, _raised, "", error, None, outputs)
            else:
                self._unheard(request, error)
                outputs.failure = _failure_of(error)
        if outputs.is_cut:  # too many items: a later run gives the whole page
            grant.task.cancel()
        if grant.task.is_cancelled:
            # The callback's direct fetch was given up, or it was cut off: it must not reach the acknowledgement below.
            grant.task.take_cancels()
            await trio.lowlevel.checkpoint()
        await self._leases.finish(
            grant.lease,
            outputs.requests,
            depth=depth + 1,
            items=outlet.given,
            failure=outputs.failure,
            source=response,
        )

    async def _take_round(self, grant: Grant) -> None:
        """Wait until no other callback begins in this round of Trio's loop. A checkpoint.

        Else callbacks that compute for long would run in one round, all those whose pages have come in, and for that
        long no timer would go off, nothing be sent, and no lease be renewed.
        """
        async with self._rounds:  # acquiring a free lock yields once, and holds it meanwhile: one callback a round
            pass
        grant.task.read_at = trio.current_time()

    async def _run(
        self,
        grant: Grant,
        callback: Callback | None,
        default: str,
        argument: object,
        cb_kwargs: Mapping[str, object] | None,
        outputs: CallbackOutputs,
    ) -> None:
        request = grant.request
        try:
            if self._hooks.outputs:
                given: object = hooked(self._hooks.outputs, named(self._spider, callback, default), argument, cb_kwargs)
            else:
                given = call(named(self._spider, callback, default), argument, cb_kwargs)
            if type(given) is not GeneratorType:  # which can't wait for anything
                grant.task.take_cancels()
            await consume(given, outputs, self._shields, partial(self._refused, request, outputs))
        except Exception as failure:
            self._failed(request, failure, outputs, self._called(callback, default))
        except BaseExceptionGroup as group:  # a nursery that was open across a yield: with GeneratorExit, or Cancelled
            cancelled, rest = group.split(trio.Cancelled)
            failures = [] if rest is None else leaf_errors(rest)
            if not all(isinstance(leaf, Exception) for leaf in failures):  # KeyboardInterrupt
                raise
            if rest is not None:
                self._failed(request, rest, outputs, self._called(callback, default))
            if cancelled is not None:  # alone: an error beside it would leave the task's scope, and end the crawl
                raise cancelled from None

    def _called(self, callback: Callback | str | None, default: str) -> Callback | None:
        """The method of the spider's that was called, for messages."""
        if callback is None and default == "_parse":  # kinds of spiders override it; users know it as parse
            default = "parse"
        return callback if callable(callback) else getattr(self._spider, callback or default, None)

    def _refused(self, request: Request, outputs: CallbackOutputs, error: TypeError) -> None:
        """Tell of one output that is neither a request nor an item; the callback goes on."""
        self._count_failure(request, error, outputs)
        logger.error("%r: one output of the callback is dropped, the others go on: %s", request, error)

    def _failed(
        self, request: Request, failure: BaseException, outputs: CallbackOutputs, called: Callback | None
    ) -> None:
        for leaf in leaf_errors(failure):
            if isinstance(leaf, CloseSpider):
                self._state.end(leaf.reason)
            elif isinstance(leaf, IgnoreRequest):
                self._stats.inc("ignored_count")
            elif isinstance(leaf, HttpError):
                self._unheard(request, leaf)
                outputs.failure = _failure_of(leaf)
            else:
                self._count_failure(request, leaf, outputs)
                said = advice(leaf, called)
                words = f"{request!r}: the callback failed{f': {said}' if said else ''}"
                # Of trawl's own lines alone a traceback says nothing.
                logger.error("%s", words, exc_info=leaf if not said or user_frames(leaf) else None)

    def _count_failure(self, request: Request, error: BaseException, outputs: CallbackOutputs) -> None:
        self._stats.inc("spider_exceptions")
        self._stats.inc(f"spider_exceptions/{type(error).__name__}")
        self._limits.failed()
        self._events.tell(SpiderError(request, error, outputs.source))
        outputs.failure = f"its callback failed: {error!r}"

    def _unheard(self, request: Request, error: Exception) -> None:
        """An error that no errback takes: say it once, in one line."""
        if isinstance(error, HttpError):
            self._stats.inc("httperror_ignored_count")
            logger.info("%s: ignored, because the spider does not handle this status", error)
        elif isinstance(error, DownloadError) or repr(request) in str(error):
            logger.error("%s", error)
        else:  # in a middleware's words
            logger.error("%r is dropped: %s", request, error)


def _raised(error: TrawlError) -> None:
    """Raise the error of a response, in the place of its callback."""
    raise error.value


def _failure_of(error: Exception) -> str | None:
    """Say why a request counts as failed whose error no errback took; None: it does not, its server has answered."""
    if isinstance(error, HttpError) and error.response.status < 500 and error.response.status != TOO_MANY_REQUESTS:
        return None
    return str(error)
