"""The engine: how one request flows, and the objects of a crawl that it flows through.

========  ==============================================================  ============================================
step      event                                                           place
========  ==============================================================  ============================================
admit     A page, ``start()``, ``add()``, a redirect, ``fetch()`` asks    :mod:`trawl.engine.admission`: the only way in
          for a request: may it be sent at all, was it seen, which
          scopes, which robots.txt?
store     It is put into the frontier, or takes the place of the one      :mod:`trawl.engine.leases`
          that it follows from
lease     The first few of each lane are leased from the frontier; what   :mod:`trawl.scheduler.prefetcher`,
          the cache can answer leaves the queue here                      :mod:`trawl.engine.cache_lookup`
prepare   Only with user code before the send: when the scheduler says    :mod:`trawl.engine.worker`
          so, the dispatcher starts the task, which takes the request
          through the middleware; it holds nothing
decide    The scheduler grants what may be sent now, or says not before   :mod:`trawl.engine.dispatcher` asks
          when; the dispatcher starts one task for each grant, or lets    :mod:`trawl.scheduler.scheduler`
          the task continue that has prepared it
send      The transport sends it, once                                    :mod:`trawl.engine.fetcher`
hear      The throttle hears of the answer, then the places are free      :meth:`Fetcher.send
          again                                                           <trawl.engine.fetcher.Fetcher.send>`
call      The callback, or the errback, is called with the answer         :meth:`Worker.run
                                                                          <trawl.engine.worker.Worker.run>`
output    Its requests are admitted, its items are written                :mod:`trawl.engine.callbacks`,
                                                                          :mod:`trawl.engine.items`
========  ==============================================================  ============================================

Three questions that are asked first, and the one place that answers each:

* A redirect, as every other request, gets its scopes in :meth:`Admission._requirements_of
  <trawl.engine.admission.Admission>`; by which rule is :class:`~trawl.throttling.scope_resolver.ScopeResolver`.
  :meth:`Admission.successor <trawl.engine.admission.Admission.successor>` asks for
  a page's redirect, :meth:`Admission.direct_grant <trawl.engine.admission.Admission.direct_grant>` for that of a
  ``fetch()`` or a robots.txt. Only what a middleware makes of a request is asked about elsewhere, before it is sent:
  :meth:`Admission.objection <trawl.engine.admission.Admission.objection>`.
* A scope's delay is decided in :meth:`Scope.gate <trawl.throttling.scope.Scope.gate>`: the instant before which it lets
  nothing through. How many seconds that delay has is put together in :meth:`ScopeState.apply
  <trawl.throttling.policy.ScopeState.apply>`, from what is configured and what the server did. The scheduler asks each
  scope of a request, and takes the latest. It is asked again at the wire
  (:meth:`Scope.opens_at <trawl.throttling.scope.Scope.opens_at>`). A delay of the request's own (meta ``delay``, a
  retry's) comes before that: the frontier does not lease the page earlier; a direct fetch waits for it in the
  scheduler.
* An item is put into a file in ``trawl.feeds.feed.Feed._add``, and a task writes the file
  (``trawl.feeds.files.FeedFile.write``). On its way there it passes :meth:`ItemSender.put
  <trawl.engine.items.ItemSender.put>`, or where nothing has to wait its twin ``put_nowait``: pipelines first, then the
  feeds (``trawl.feeds.writer.Feeds``). With a job, the items of a callback wait until its page is acknowledged:
  :meth:`Leases.finish <trawl.engine.leases.Leases.finish>` asks for them (:meth:`CallbackItems.given
  <trawl.engine.job_items.CallbackItems.given>`), and ``Frontier.acknowledge`` stores them in the job's outbox, from
  which the feeds get them (``trawl.feeds.outbox.OutboxWriter``).

A request under way is a :class:`~trawl.scheduler.grant.Grant`, which has all else that is known of it. It waits in a
lane, is granted, and is carried to its end by one task; what that task keeps is its ``task``
(:class:`~trawl.engine.state.RequestTask`). The ``lease`` of a page is its record in the frontier
(:class:`~trawl.frontier.Record`); the ``waiter`` of a ``fetch()``, or of a robots.txt, gets the outcome.

:class:`Engine` makes the objects above in the order in which they need each other, and users' classes last, when the
crawl is whole. :mod:`trawl.engine.run`, which alone makes it, has the nurseries, and the order of closing. Where
several processes share a job, each sends to the hosts of its own part: :mod:`trawl.engine.shared_job` follows what
comes to it, and what goes.

Length: ``Engine.__init__`` is one list of what a crawl is made of; its order is what there is to see.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from trawl.engine.admission import Admission
from trawl.engine.cache_lookup import CacheLookup, NoCache
from trawl.engine.context import CrawlContext
from trawl.engine.crawl import Crawl
from trawl.engine.direct import DirectFetcher
from trawl.engine.dispatcher import Dispatcher
from trawl.engine.fetcher import Fetcher, ScopeLimiters
from trawl.engine.hooks import Hooks, IdleRunner
from trawl.engine.items import Processor
from trawl.engine.leases import Leases
from trawl.engine.limits import CrawlLimits
from trawl.engine.no_job import Alone, NoJobState
from trawl.engine.robots_gate import RobotsGates
from trawl.engine.script_pages import ScriptPages
from trawl.engine.start_requests import StartRequests
from trawl.engine.worker import Worker
from trawl.events import ScopeBackedOff
from trawl.middleware import compose
from trawl.scheduler import Grant, Prefetcher, Scheduler
from trawl.scheduler.reasons import NO_PLACE
from trawl.scheduler.scheduler import CAUTION, reconsider
from trawl.spiders import item_check
from trawl.throttling import Reason, Scope, Throttle
from trawl.throttling.quota import spent
from trawl.throttling.shared import Line, Token

if TYPE_CHECKING:
    from trawl.scheduler.shared_job import SharedJobScheduler

__all__ = ["Engine"]


class Engine:
    """The objects of one crawl. Making it starts nothing.

    Args:
        context: What the crawl is made of.

    Raises:
        SettingsError: A class of the user's can't be made.
        UsageError: An allowed domain of the spider is not a domain.
    """

    def __init__(self, context: CrawlContext) -> None:
        stats, state, settings = context.stats, context.state, context.throttling
        self.context: CrawlContext = context
        self._backoff_steps: dict[str, int] = {}
        # What decides: the throttle and the scheduler call the three methods below, once all of this is there.
        self._limiters = ScopeLimiters()
        self.line: Line | None = context.open_job.line
        # The scopes of a job in a server are shared by processes, in another way.
        common = context.common if self.line is None else None
        self.throttle: Throttle = Throttle(
            settings,
            seed=context.seed,
            wall=context.wall,
            changed=self._scope_changed,
            why_next=self._why_next,
            resolve=context.address_of,
            failed=lambda: stats.inc("throttling_errors"),
            common=common,
            holder=self,
            has_job=context.open_job.is_durable,
        )
        self._vet = context.open_job.vet(self._refusal)
        places, depth_first = settings.concurrent_requests or math.inf, context.scheduler.depth_first
        if self.line is None:
            self.scheduler: Scheduler = Scheduler(
                self.throttle.scope, places=places, depth_first=depth_first, vet=self._vet
            )
        else:
            self.scheduler = self._shared_job_scheduler(self.line, places, depth_first=depth_first)
        self.scheduler.holder = self
        self.limits: CrawlLimits = CrawlLimits(
            context.engine,
            state=state,
            scheduler=self.scheduler,
            changed=self._scope_changed,
            session=context.open_job.session,
        )
        self.job_state: NoJobState = context.open_job.make_state(context, self.throttle)
        self.gates: RobotsGates = RobotsGates(context, self.throttle, self.scheduler, self.job_state.robots)
        # The way in.
        cache = context.middleware_stack.cache
        self.cache_lookup: NoCache = NoCache()
        if cache is not None:
            self.cache_lookup = CacheLookup(cache, limits=self.limits, state=state)
        admission = Admission(context, self.throttle, self.gates, self.scheduler, self.cache_lookup, self.limits)
        prefetcher = Prefetcher(context.frontier, self.scheduler, admission.grant_for, self.cache_lookup)
        self.leases: Leases = Leases(context, admission, prefetcher)
        self.direct: DirectFetcher = DirectFetcher(context, admission, self.scheduler)
        # The crawl as users see it, and then their own classes: a manager may ask everything of it when it is made.
        self.crawl: Crawl = Crawl(context, self.scheduler, self.throttle, self.direct, self.leases)
        context.spider.bind(self.crawl)  # which is older than its crawl: the settings are read by its attributes
        self.throttle.make_managers(self.crawl)
        has_middleware = bool(context.middleware_stack.settings.downloader_middlewares)
        # Users' own, which may await and fetch, and respond.
        self.scheduler.has_user_code = has_middleware or self.throttle.asks_manager
        self.hooks: Hooks = context.hooks(self.crawl, item_check(context.spider, context.settings, stats))
        self.processor: Processor = context.pipelines(self.crawl)
        # What runs: the reader of start(), a worker for each grant, and the dispatcher, which starts it.
        items = self.items = context.open_job.make_items(context, self.processor, self.limits.items)
        fetcher = Fetcher(context, admission, self.scheduler, self.throttle, self._limiters, self.limits)
        layers = context.middleware_stack.middleware(self.crawl, self.throttle.open_at)
        if has_middleware:
            self.scheduler.caution = CAUTION if any(layer.may_respond for layer in layers) else 1
        fetch = compose([layer.middleware for layer in layers], fetcher.send)
        self.script_pages: ScriptPages = ScriptPages()
        worker = context.open_job.worker_class(Worker)(
            context,
            fetch,
            layers,
            fetcher,
            self.leases,
            items,
            self.throttle,
            self.limits,
            self.hooks,
            self.script_pages,
        )
        self.start_requests: StartRequests = StartRequests(
            context, self.leases, items, self.job_state, self.hooks.start
        )
        self.idle_runner: IdleRunner = IdleRunner(self.hooks, self.leases, context.shields, state)
        self.shared_job: Alone = context.open_job.make_follower(self, admission, prefetcher)
        self.dispatcher: Dispatcher = Dispatcher(
            scheduler=self.scheduler,
            prefetcher=prefetcher,
            throttle=self.throttle,
            gates=self.gates,
            admission=admission,
            limiters=self._limiters,
            worker=worker,
            start_requests=self.start_requests,
            state=state,
            cache_lookup=self.cache_lookup,
            shared_job=self.shared_job,
        )

    def _shared_job_scheduler(self, line: Line, places: float, *, depth_first: bool) -> SharedJobScheduler:
        """The scheduler of a job that other processes may work on as well."""
        from trawl.scheduler.shared_job import SharedJobScheduler  # noqa: PLC0415

        throttle, state = self.throttle, self.context.state
        throttle.share_by(line)
        scheduler = SharedJobScheduler(throttle.scope, line=line, places=places, depth_first=depth_first, vet=self._vet)

        def came(token: Token) -> None:
            scheduler.came(token, trio.current_time())
            state.wakeup.set()

        def adopt(id: str, learned: bytes, age: float) -> None:
            throttle.adopt(id, learned, age, trio.current_time())

        line.listen(came, adopt)
        return scheduler

    def _refusal(self, grant: Grant, now: float) -> str | None:
        """Say why a pending grant may not go at all: a scope is given up, or has had its pages; robots.txt forbids it.

        The scheduler asks it of a grant that is first in its lane.
        """
        lane = grant.lane
        over = None if lane is None else spent(lane.scopes)
        return over or self.throttle.refused(grant, now) or self.gates.forbids(grant)

    def _why_next(self, grant: Grant, now: float) -> Reason | None:
        scheduler = self.scheduler
        reason = scheduler.why_next(grant, now) or scheduler.left_by
        return NO_PLACE if reason is None and self.start_requests.is_held and not scheduler.pending else reason

    def _scope_changed(self, scope: Scope, now: float) -> None:
        """Follow a scope's changed limits: its lock is resized, and what waits for it is looked at again."""
        context = self.context
        if scope.step and self._backoff_steps.get(scope.id) != scope.step:
            self._backoff_steps[scope.id] = scope.step
            self.job_state.has_backed_off()
            if ScopeBackedOff in context.events.wanted:
                source = getattr(scope.state, "trigger_source", "")
                context.events.emit(ScopeBackedOff(scope.id, scope.step, scope.delay, scope.concurrency, source))
        self._limiters.resize(scope)
        if scope.id in self.throttle.given_up:
            reconsider(self.scheduler, scope, now)  # what pends is refused now, though the server asked for quiet
        self.scheduler.changed(scope, now)
        context.state.wakeup.set()

    # -- what other crawls tell that have scopes in common with this one

    @property
    def name(self) -> str:
        """The spider's name."""
        return self.context.spider.name

    def opened(self, scope: Scope, now: float) -> None:
        """Another crawl gave a place of a scope back, or sent: what waits for it here is looked at."""
        if self.scheduler.opened(scope, now):
            self.context.state.wakeup.set()

    def changed(self, scope: Scope, now: float) -> None:
        """Another crawl moved the limits of a scope."""
        self._scope_changed(scope, now)

    def arm(self, scope: Scope) -> None:
        """Note anew when a scope is due: the crawl that had noted it has left."""
        self.throttle.arm(scope)
        self.context.state.wakeup.set()

    def leave(self) -> None:
        """Have no scope in common any more: the crawl has ended, and nothing of it is in flight."""
        if self.context.common is not None:
            self.scheduler.leave(trio.current_time())
            self.throttle.leave()
