"""What a crawl is made of, and how the parts are put together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from trawl.addresses import AddressGuard
from trawl.blocking import Blocking
from trawl.clock import WallClock
from trawl.engine.admission import Admission
from trawl.engine.cache_lookup import CacheLookup
from trawl.engine.callbacks import Shields
from trawl.engine.crawl import Crawl, Watcher
from trawl.engine.direct import DirectFetches
from trawl.engine.dispatch import Dispatcher
from trawl.engine.fetcher import Fetcher, Recorder, ScopeLimiters
from trawl.engine.hooks import Hooks, IdleRounds
from trawl.engine.items import ItemSink, ItemWriter, Processor, Writer
from trawl.engine.job import JobState, OpenJob
from trawl.engine.job_items import JobItemWriter
from trawl.engine.leases import Leases
from trawl.engine.limits import CrawlLimits
from trawl.engine.robots_gate import RobotsGates
from trawl.engine.settings import EngineSettings
from trawl.engine.start_requests import StartRequests
from trawl.engine.state import State
from trawl.engine.worker import StatusRule, Worker
from trawl.errors import UsageError
from trawl.events import Events, ScopeBackedOff
from trawl.frontier import Frontier
from trawl.middleware import MiddlewareStack, compose
from trawl.observe import Stats
from trawl.robots import RobotsSettings
from trawl.scheduler import AdmissionRules, Grant, Prefetcher, Scheduler, SchedulerSettings
from trawl.scheduler.scheduler import reconsider
from trawl.spiders import Spider, item_check
from trawl.throttling import AddressOf, Scope, Throttle, ThrottlingSettings
from trawl.throttling.quota import spent
from trawl.transport import Transport

__all__ = ["Parts", "Plan", "assemble"]


@attrs.frozen(kw_only=True)
class Plan:
    """Everything a crawl is made of; values and parts, no settings to look into.

    Attributes:
        spider: Where it starts and what becomes of pages.
        settings: What ``spider.settings`` shows.
        stats: Where everything is counted.
        engine: The engine's own settings.
        scheduler: Admission and order.
        throttling: The throttle's settings.
        robots: Whether and how robots.txt is obeyed.
        user_agent: Whose group in robots.txt is ours, where the settings name none.
        transport: The wire.
        middleware_stack: The middleware, cookies, sessions and cache.
        frontier: Where pending requests are kept.
        pipelines: Makes the item pipelines for the crawl.
        hooks: Makes the hooks of the crawl.
        crawl_class: The class of the running crawl.
        sinks: Where finished items go.
        collected: Keeps finished items too, if given.
        watchers: Tasks that look at the running crawl.
        recorder: Told of each send and its end.
        wall: Wall time read off the run clock.
        seed: All randomness of the run comes from it.
        address_of: Says the address of a host, for limits by address and for managers.
        guard: Says which addresses may be connected to; None: all.
        durable: The job, with its frontier; None where the crawl ends with its process.
        blocking: How work that blocks is done.
        events: Told of what happens.
    """

    spider: Spider
    settings: Mapping[str, Any]
    stats: Stats
    engine: EngineSettings
    scheduler: SchedulerSettings
    throttling: ThrottlingSettings
    robots: RobotsSettings
    user_agent: str
    transport: Transport
    middleware_stack: MiddlewareStack
    frontier: Frontier
    pipelines: Callable[[Crawl], Processor]
    hooks: Callable[[Crawl], Hooks]
    crawl_class: type[Crawl]
    sinks: Sequence[ItemSink]
    collected: list[object] | None
    watchers: Sequence[Watcher]
    recorder: Recorder | None
    wall: WallClock
    seed: int
    address_of: AddressOf
    blocking: Blocking
    guard: AddressGuard | None = None
    durable: OpenJob | None = None
    events: Events = attrs.field(factory=Events)

    @property
    def writers(self) -> Sequence[Writer]:
        """The tasks that move items on."""
        return self.sinks if self.durable is None else [*self.sinks, self.durable.outbox]


@attrs.define
class Parts:
    """The parts of one crawl that its run needs by name."""

    crawl: Crawl
    state: State
    scheduler: Scheduler
    throttle: Throttle
    leases: Leases
    dispatcher: Dispatcher
    start_requests: StartRequests
    direct: DirectFetches
    hooks: Hooks
    idle_rounds: IdleRounds
    shields: Shields
    processor: Processor
    limits: CrawlLimits
    job_state: JobState | None = None
    cache_lookup: CacheLookup | None = None
    holder: JobItemWriter | None = None

    def unsent(self) -> list[Grant]:
        """The pages that were to be answered without the wire and were not yet; they are no longer here."""
        return [] if self.cache_lookup is None else self.cache_lookup.pending()


@attrs.define
class _Core:
    """The parts that decide, and what all the others share."""

    crawl: Crawl
    state: State
    shields: Shields
    places: ScopeLimiters
    throttle: Throttle
    gates: RobotsGates
    scheduler: Scheduler
    prefetcher: Prefetcher
    admission: Admission
    leases: Leases
    limits: CrawlLimits
    cache_lookup: CacheLookup | None
    direct: DirectFetches
    hooks: Hooks


def assemble(plan: Plan) -> Parts:
    """The parts of a crawl, each given what it needs and nothing else. Starts nothing."""
    core = _core(plan)
    crawl, state, shields, leases = core.crawl, core.state, core.shields, core.leases
    processor = plan.pipelines(crawl)
    outlet, job_state = _outlet(plan, core, processor), _job_state(plan, core)
    start_requests = StartRequests(
        spider=plan.spider,
        leases=leases,
        outlet=outlet,
        shields=shields,
        state=state,
        beginning=job_state,
        hooks=core.hooks.start,
        events=plan.events,
    )
    dispatcher = Dispatcher(
        scheduler=core.scheduler,
        prefetcher=core.prefetcher,
        throttle=core.throttle,
        gates=core.gates,
        places=core.places,
        worker=_worker(plan, core, outlet),
        start_requests=start_requests,
        state=state,
        cache_lookup=core.cache_lookup,
    )
    return Parts(
        crawl=crawl,
        state=state,
        scheduler=core.scheduler,
        throttle=core.throttle,
        leases=leases,
        dispatcher=dispatcher,
        start_requests=start_requests,
        direct=core.direct,
        hooks=core.hooks,
        idle_rounds=IdleRounds(core.hooks, leases, shields, state),
        shields=shields,
        processor=processor,
        limits=core.limits,
        job_state=job_state,
        cache_lookup=core.cache_lookup,
        holder=outlet if isinstance(outlet, JobItemWriter) else None,
    )


def _outlet(plan: Plan, core: _Core, processor: Processor) -> ItemWriter | JobItemWriter:
    limit, durable = core.limits.items, plan.durable
    if durable is None:
        return ItemWriter(processor, plan.spider, plan.sinks, plan.collected, plan.stats, limit, events=plan.events)
    # What goes to another sink than the job is gone before its page has ended: there the limit is looked at for each.
    at_once, at_end = (limit, None) if plan.sinks else (None, limit)
    outlet = ItemWriter(processor, plan.spider, plan.sinks, None, plan.stats, at_once, is_held=True, events=plan.events)
    return JobItemWriter(outlet, durable.outbox, plan.frontier, durable.job, plan.stats, plan.collected, at_end)


def _job_state(plan: Plan, core: _Core) -> JobState | None:
    if plan.durable is None:
        return None
    return JobState(
        plan.durable.job,
        plan.durable.note,
        stats=plan.stats,
        throttle=core.throttle,
        gates=core.gates,
        robots=plan.robots,
        jars=plan.middleware_stack.jars,
        wall=plan.wall,
    )


def _core(plan: Plan) -> _Core:
    """The parts, with what users' classes are given made first: a manager may ask all of the crawl when it is made."""
    stats, state, places = plan.stats, State(plan.engine.concurrent_callbacks), ScopeLimiters()
    throttle = _throttle(plan)
    gates = _gates(plan, throttle, state)
    scheduler = Scheduler(
        throttle.scope,
        places=plan.throttling.concurrent_requests or math.inf,
        depth_first=plan.scheduler.depth_first,
        vet=_vet(throttle, gates),
    )
    moved = _moved(scheduler, places, state, throttle, plan.events)
    throttle.bind(moved, scheduler.why_next)
    admission = Admission(
        rules=_rules(plan),
        frontier=plan.frontier,
        throttle=throttle,
        gates=gates,
        scheduler=scheduler,
        stats=stats,
        state=state,
        is_durable=plan.durable is not None,
        prepare=plan.middleware_stack.prepare,
        events=plan.events,
    )
    gates.bind(scheduler, admission)
    prefetcher = Prefetcher(plan.frontier, scheduler, admission.leased)
    leases = Leases(admission=admission, frontier=plan.frontier, prefetcher=prefetcher, stats=stats, state=state)
    limits = CrawlLimits(plan.engine, state=state, scheduler=scheduler, moved=moved)
    cached = None
    if plan.middleware_stack.cache is not None:
        cached = CacheLookup(plan.middleware_stack.cache, limits=limits, state=state)
        prefetcher.aside = admission.cache_lookup = cached
    direct = DirectFetches(admission=admission, scheduler=scheduler, state=state, most=plan.engine.direct_fetches_limit)
    crawl = _crawl(plan, state, scheduler, throttle, direct)
    plan.spider.bind(crawl)
    throttle.make_managers(crawl)
    checks = item_check(plan.spider, plan.settings, stats)
    hooks = plan.hooks(crawl)
    hooks.add_last(checks)
    made = (crawl, state, Shields(), places, throttle, gates, scheduler, prefetcher, admission, leases)
    return _Core(*made, limits, cached, direct, hooks)


def _crawl(plan: Plan, state: State, scheduler: Scheduler, throttle: Throttle, direct: DirectFetches) -> Crawl:
    return plan.crawl_class(
        spider=plan.spider,
        settings=plan.settings,
        stats=plan.stats,
        state=state,
        address_of=plan.address_of,
        wall=plan.wall,
        seed=plan.seed,
        blocking=plan.blocking,
        sessions=plan.middleware_stack.sessions,
        events=plan.events,
        scheduler=scheduler,
        frontier=plan.frontier,
        throttle=throttle,
        direct=direct,
    )


def _throttle(plan: Plan) -> Throttle:
    return Throttle(
        plan.throttling,
        seed=plan.seed,
        wall=plan.wall,
        changed=_nobody_waits,
        resolve=plan.address_of,
        failed=lambda: plan.stats.inc("throttling_errors"),
    )


def _gates(plan: Plan, throttle: Throttle, state: State) -> RobotsGates:
    return RobotsGates(
        plan.robots,
        user_agent=plan.user_agent,
        give_up_after=plan.throttling.backoff_give_up_after,
        throttle=throttle,
        stats=plan.stats,
        state=state,
    )


def _rules(plan: Plan) -> AdmissionRules:
    try:
        return AdmissionRules(plan.scheduler, plan.spider.allowed_domains, plan.guard)
    except ValueError as error:
        raise UsageError(f"{plan.spider.name}: {error}") from error


def _worker(plan: Plan, core: _Core, outlet: ItemWriter | JobItemWriter) -> Worker:
    fetcher = Fetcher(
        transport=plan.transport,
        admission=core.admission,
        scheduler=core.scheduler,
        throttle=core.throttle,
        places=core.places,
        stats=plan.stats,
        state=core.state,
        limits=core.limits,
        events=plan.events,
        recorder=plan.recorder,
    )
    return Worker(
        fetch=compose(plan.middleware_stack.middleware(core.crawl), fetcher.send),
        fetcher=fetcher,
        leases=core.leases,
        outlet=outlet,
        spider=plan.spider,
        statuses=StatusRule(plan.engine, plan.spider),
        shields=core.shields,
        throttle=core.throttle,
        stats=plan.stats,
        state=core.state,
        limits=core.limits,
        events=plan.events,
        hooks=core.hooks.outputs,
    )


def _vet(throttle: Throttle, gates: RobotsGates) -> Callable[[Grant, float], str | None]:
    """Why a pending grant may not go at all: its scope was given up, has had its pages, or robots.txt forbids it."""

    def vet(grant: Grant, now: float) -> str | None:
        lane = grant.lane
        over = None if lane is None else spent(lane.scopes)
        return over or throttle.refused(grant, now) or gates.forbids(grant)

    return vet


def _moved(
    scheduler: Scheduler, places: ScopeLimiters, state: State, throttle: Throttle, events: Events
) -> Callable[[Scope, float], None]:
    """What happens when a scope's limits move: its lock follows, and whoever waits is looked at again."""
    steps: dict[str, int] = {}

    def moved(scope: Scope, now: float) -> None:
        if scope.step and steps.get(scope.id) != scope.step:
            steps[scope.id] = scope.step
            if ScopeBackedOff in events.wanted:
                source = getattr(scope.state, "trigger_source", "")
                events.tell(ScopeBackedOff(scope.id, scope.step, scope.delay, scope.concurrency, source))
        places.resize(scope)
        if scope.id in throttle.given_up:
            reconsider(scheduler, scope, now)  # what pends is refused now, though the server asked for quiet
        scheduler.changed(scope, now)
        state.wakeup.set()

    return moved


def _nobody_waits(scope: Scope, now: float) -> None:
    """Before the chooser is there, nobody waits."""
