"""The engine: the path of a request, and the objects of a crawl on this path.

========  ==============================================================  ============================================
step      event                                                           place
========  ==============================================================  ============================================
admit     A request comes from a page, ``start()``, ``add()``, a          :mod:`trawl.engine.admission`: the only way in
          redirect or ``fetch()``. Admission checks that it is allowed
          and new, and names its scopes and robots.txt
store     The request is put into the frontier, or replaces the request   :mod:`trawl.engine.leases`
          that it follows from
lease     The first few requests of each lane are leased from the         :mod:`trawl.scheduler.prefetcher`,
          frontier; requests with a cached response leave the queue       :mod:`trawl.engine.cache_lookup`
prepare   Only with user code before the send: when the scheduler allows  :mod:`trawl.engine.worker`
          it, the dispatcher starts the task, which runs the middleware
          without holding a place
decide    The scheduler grants requests that may be sent now, or returns  :mod:`trawl.engine.dispatcher` calls
          the next time to try; the dispatcher starts one task for each   :mod:`trawl.scheduler.scheduler`
          attempt, or resumes the task that has prepared it
send      The transport sends it once                                     :mod:`trawl.engine.fetcher`
hear      The throttle processes the outcome, then the places are         :meth:`Fetcher.send
          released                                                        <trawl.engine.fetcher.Fetcher.send>`
call      The callback gets the response, or the errback the error        :meth:`Worker.run
                                                                          <trawl.engine.worker.Worker.run>`
output    Its requests are admitted, and its items are written            :mod:`trawl.engine.callbacks`,
                                                                          :mod:`trawl.engine.items`
========  ==============================================================  ============================================

Three common questions, and the place that decides each:

* *Scopes of a redirect*: like every other request, it gets them in :meth:`Admission._requirements_of
  <trawl.engine.admission.Admission>`, by the rule in :class:`~trawl.throttling.scope_resolver.ScopeResolver`.
  :meth:`Admission.successor <trawl.engine.admission.Admission.successor>` calls it for a page's redirect,
  :meth:`Admission.direct_attempt <trawl.engine.admission.Admission.direct_attempt>` for that of a ``fetch()`` or
  robots.txt. Only a request that a middleware has changed is checked elsewhere, before it is sent:
  :meth:`Admission.objection <trawl.engine.admission.Admission.objection>`.
* *The delay of a scope*: :meth:`Scope.earliest_at <trawl.throttling.scope.Scope.earliest_at>` returns the time before
  which the scope lets nothing through. :meth:`ScopeState.apply <trawl.throttling.policy.ScopeState.apply>` computes
  the seconds of the delay from the settings and the server's behavior. The scheduler calls each scope of a request and
  takes the latest time. The scopes are checked again just before the send (:meth:`Scope.opens_at
  <trawl.throttling.scope.Scope.opens_at>`). The request's own delay (meta ``delay``, a retry's) comes before that: the
  frontier does not lease the page earlier, and a direct fetch waits for it in the scheduler.
* *The file of an item*: ``trawl.feeds.feed.Feed._add`` puts an item into its file, and a task writes the file
  (``trawl.feeds.files.FeedFile.write``). Before that, the item passes :meth:`ItemSender.put
  <trawl.engine.items.ItemSender.put>`, or ``put_nowait`` if nothing has to wait: first the pipelines, then the feeds
  (``trawl.feeds.writer.Feeds``). With a job, the items of a callback wait until its page is acknowledged.
  :meth:`Leases.finish <trawl.engine.leases.Leases.finish>` then calls :meth:`CallbackItems.given
  <trawl.engine.job_items.CallbackItems.given>`, and ``Frontier.acknowledge`` stores the items in the job's outbox. The
  feeds get them from there (``trawl.feeds.outbox.OutboxWriter``).

A pending or running request is an :class:`~trawl.scheduler.attempt.Attempt`, which refers to all else that is known
of it. It waits in a lane, is granted, and runs to its end in one task, whose state is its ``task``
(:class:`~trawl.engine.state.RequestTask`). The ``lease`` of a page is its record in the frontier
(:class:`~trawl.frontier.Record`). The ``waiter`` of a ``fetch()`` or a robots.txt gets the outcome.

:class:`Engine` makes the objects above in the order of their dependencies, and user classes last, when the crawl is
complete. :mod:`trawl.engine.run`, which alone makes an engine, has the nurseries and the order of closing. If several
processes share a job, each sends only to the hosts in its partitions, and :mod:`trawl.engine.shared_job` follows the
changes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from trawl.engine.admission import Admission
from trawl.engine.cache_lookup import CacheLookup, NoCache
from trawl.engine.callbacks import ScriptPages
from trawl.engine.context import CrawlContext
from trawl.engine.crawl import Crawl
from trawl.engine.direct import DirectFetcher
from trawl.engine.dispatcher import Dispatcher
from trawl.engine.fetcher import Fetcher, ScopeLimiters
from trawl.engine.hooks import Hooks, IdleRunner
from trawl.engine.items import ItemSender, Processor
from trawl.engine.leases import Leases
from trawl.engine.limits import CrawlLimits
from trawl.engine.no_job import Alone, NoJobState, Vet
from trawl.engine.robots_gate import RobotsGates
from trawl.engine.start_requests import StartRequests
from trawl.engine.worker import Worker
from trawl.events import ScopeBackedOff
from trawl.http import host_scope
from trawl.middleware import compose
from trawl.scheduler import Attempt, Prefetcher, Scheduler
from trawl.scheduler.reasons import NO_PLACE
from trawl.scheduler.scheduler import CAUTION, reconsider
from trawl.spiders import item_check
from trawl.throttling import Reason, Scope, Throttle
from trawl.throttling.quota import spent
from trawl.throttling.shared import SharedScopeClient, Token

if TYPE_CHECKING:
    from trawl.engine.job_items import JobItems

__all__ = ["Engine"]


class Engine:
    """The objects of one crawl. Creating an engine starts nothing.

    Raises SettingsError if a user class can't be made, UsageError if an allowed domain of the spider is not one.
    """

    def __init__(self, context: CrawlContext) -> None:
        self.context: CrawlContext = context
        self._backoff_steps: dict[str, int] = {}
        self._limiters = ScopeLimiters()
        self._make_decisions(context)
        admission, prefetcher = self._make_admission(context)
        self._make_user_code(context)
        self._make_tasks(context, admission, prefetcher)

    def _make_decisions(self, context: CrawlContext) -> None:
        """Make the throttle, the scheduler and the gates. They call the methods below once all objects exist."""
        stats, line = context.stats, context.open_job.line
        self.throttle: Throttle = Throttle(
            context.values.throttling,
            seed=context.values.seed,
            wall=context.wall,
            changed=self._scope_changed,
            why_next=self._why_next,
            resolve=context.network.address_of,
            failed=lambda: stats.inc("throttling_errors"),
            common=context.common if line is None else None,  # processes share the scopes of a job in another way
            holder=self,
            has_job=context.open_job.is_durable,
        )
        self.scheduler: Scheduler = self._scheduler(line, context.open_job.vet(self._refusal))
        self.scheduler.holder = self
        self.limits: CrawlLimits = CrawlLimits(
            context.values.engine, state=context.state, scheduler=self.scheduler, changed=self._scope_changed
        )
        context.open_job.share(self.limits)
        self.job_state: NoJobState = context.open_job.make_state(context, self.throttle)
        self.gates: RobotsGates = RobotsGates(context, self.throttle, self.scheduler, self.job_state.robots)

    def _scheduler(self, line: SharedScopeClient | None, vet: Vet) -> Scheduler:
        """Return the scheduler. With ``line``, other processes may work on the job as well."""
        throttle, state, values = self.throttle, self.context.state, self.context.values
        places, depth_first = values.throttling.concurrent_requests or math.inf, values.scheduler.depth_first
        if line is None:
            return Scheduler(throttle.scope, places=places, depth_first=depth_first, vet=vet)
        from trawl.scheduler.shared_job import SharedJobScheduler  # noqa: PLC0415

        throttle.share_by(line, self.context.network.shares_host)
        scheduler = SharedJobScheduler(throttle.scope, line=line, places=places, depth_first=depth_first, vet=vet)

        def came(token: Token) -> None:
            scheduler.came(token, trio.current_time())
            state.wakeup.set()

        def adopt(id: str, learned: bytes, age: float) -> None:
            throttle.adopt(id, learned, age, trio.current_time())

        line.listen(came, adopt)
        return scheduler

    def _make_admission(self, context: CrawlContext) -> tuple[Admission, Prefetcher]:
        """Make the way in: admission, the leases of the frontier, and direct fetches."""
        cache = context.middleware_stack.cache
        self.cache_lookup: NoCache = NoCache()
        if cache is not None:
            self.cache_lookup = CacheLookup(cache, limits=self.limits, state=context.state)
        admission = Admission(context, self.throttle, self.gates, self.scheduler, self.cache_lookup, self.limits)
        prefetcher = Prefetcher(context.frontier, self.scheduler, admission.attempt_for, self.cache_lookup)
        self.leases: Leases = Leases(context, admission, prefetcher)
        self.direct: DirectFetcher = DirectFetcher(context, admission, self.scheduler)
        return admission, prefetcher

    def _make_user_code(self, context: CrawlContext) -> None:
        """Make the crawl as user code sees it, then user classes: a manager may use the whole crawl when it is made."""
        self.crawl: Crawl = Crawl(self)
        context.spider.bind(self.crawl)  # the spider existed first: attributes of the spider read the settings
        self.throttle.make_managers(self.crawl)
        # User code that may await, fetch and respond.
        has_middleware = bool(context.middleware_stack.settings.downloader_middlewares)
        self.scheduler.preparations.has_user_code = has_middleware or self.throttle.asks_manager
        self.hooks: Hooks = context.hooks(
            self.crawl, item_check(context.spider, context.values.settings, context.stats)
        )
        self.processor: Processor = context.output.pipelines(self.crawl)

    def _make_tasks(self, context: CrawlContext, admission: Admission, prefetcher: Prefetcher) -> None:
        """Make what runs: the reader of ``start()``, the worker of each attempt, and the dispatcher that starts it."""
        self.items: ItemSender | JobItems = context.open_job.make_items(context, self.processor, self.limits.items)
        fetcher = Fetcher(self, admission, self._limiters)
        layers = context.middleware_stack.middleware(self.crawl, self.throttle.open_at)
        if context.middleware_stack.settings.downloader_middlewares:
            self.scheduler.preparations.caution = CAUTION if any(layer.may_respond for layer in layers) else 1.0
        has_user_code = self.scheduler.preparations.has_user_code
        send = context.open_job.deaths.around(fetcher.send) if has_user_code else fetcher.send
        fetch = compose([layer.middleware for layer in layers], send)
        self.script_pages: ScriptPages = ScriptPages()
        worker = context.open_job.worker_class(Worker)(self, fetch, layers, fetcher)
        self.start_requests: StartRequests = StartRequests(self)
        self.idle_runner: IdleRunner = IdleRunner(self.hooks, self.leases, context.shields, context.state)
        self.shared_job: Alone = context.open_job.make_follower(self, admission, prefetcher)
        self.dispatcher: Dispatcher = Dispatcher(self, admission, prefetcher, self._limiters, worker)

    def _refusal(self, attempt: Attempt, now: float) -> str | None:
        """Return why a pending attempt, the next of a lane, must be refused; None if it may be sent."""
        lane = attempt.lane
        over = None if lane is None or attempt.is_sub_request else spent(lane.scopes)
        if self.context.state.dropped:
            over = over or self._dropped(attempt)
        return over or self.throttle.refused(attempt, now) or self.gates.forbids(attempt)

    def _dropped(self, attempt: Attempt) -> str | None:
        """Return ``"dropped_by_hand"`` if a user has dropped the pages of its host since it was found; else None."""
        if not attempt.is_page:
            return None
        before = self.context.state.dropped.get(host_scope(attempt.request.url), 0)
        return "dropped_by_hand" if abs(attempt.options.lease.order) < before else None

    def _why_next(self, attempt: Attempt, now: float) -> Reason | None:
        scheduler = self.scheduler
        reason = scheduler.why_next(attempt, now) or scheduler.left_by
        return NO_PLACE if reason is None and self.start_requests.is_held and not scheduler.pending else reason

    def _scope_changed(self, scope: Scope, now: float) -> None:
        """React to a scope's changed limits: resize its limiter, and check its waiting requests again."""
        context = self.context
        if scope.step and self._backoff_steps.get(scope.id) != scope.step:
            self._backoff_steps[scope.id] = scope.step
            self.job_state.has_backed_off()
            if ScopeBackedOff in context.events.wanted:
                source = scope.state.recent.trigger_source
                context.events.emit(
                    ScopeBackedOff(scope.id, scope.step, scope.effective.delay, scope.effective.concurrency, source)
                )
        self._limiters.resize(scope)
        if scope.id in self.throttle.given_up:
            reconsider(self.scheduler, scope, now)  # refuse pending requests now, even if the server requested a pause
        self.scheduler.changed(scope, now)
        context.state.wakeup.set()

    # -- calls from other crawls that share scopes with this one

    @property
    def name(self) -> str:
        """The spider's name."""
        return self.context.spider.name

    def opened(self, scope: Scope, now: float) -> None:
        """Check requests that wait for a scope, because another crawl has released a place of it or sent a request."""
        if self.scheduler.opened(scope, now):
            self.context.state.wakeup.set()

    def changed(self, scope: Scope, now: float) -> None:
        """React to limits of a scope that another crawl changed."""
        self._scope_changed(scope, now)

    def arm(self, scope: Scope) -> None:
        """Schedule the scope's next event again, because the crawl that had scheduled it has ended."""
        self.throttle.arm(scope)
        self.context.state.wakeup.set()

    def leave(self) -> None:
        """Stop sharing scopes, because the crawl has ended and has no request in flight."""
        if self.context.common is not None:
            self.scheduler.leave(trio.current_time())
            self.throttle.table.leave()
