"""What a crawl is made of, and how the parts are put together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import trio

from trawl.clock import WallClock
from trawl.engine.callbacks import Shields
from trawl.engine.crawl import Crawl, Watcher
from trawl.engine.direct import DirectFetches
from trawl.engine.dispatch import Dispatcher
from trawl.engine.flow import Flow, StatusRule
from trawl.engine.intake import Intake, page_entry
from trawl.engine.outlet import ItemSink, Outlet, Processor
from trawl.engine.places import Places
from trawl.engine.reading import Reading
from trawl.engine.robots_gate import RobotsGates
from trawl.engine.sending import Recorder, Sending
from trawl.engine.settings import EngineSettings
from trawl.engine.state import State
from trawl.engine.succession import Succession
from trawl.frontier import Frontier
from trawl.http import Middleware
from trawl.middleware import compose
from trawl.observe import Stats
from trawl.robots import RobotsSettings
from trawl.scheduler import Admission, Chooser, Entry, Heads, SchedulerSettings
from trawl.spiders import Spider
from trawl.throttling import Scope, Throttle, ThrottlingSettings
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
        middleware: Around each send, outermost first.
        frontier: Where pending requests are kept.
        pipelines: Makes the item pipelines for the crawl.
        sinks: Where finished items go.
        collected: Keeps finished items too, if given.
        watchers: Tasks that look at the running crawl.
        recorder: Told of each send and its end.
        wall: Wall time read off the run clock.
        seed: All randomness of the run comes from it.
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
    middleware: Sequence[Middleware]
    frontier: Frontier
    pipelines: Callable[[Crawl], Processor]
    sinks: Sequence[ItemSink]
    collected: list[object] | None
    watchers: Sequence[Watcher]
    recorder: Recorder | None
    wall: WallClock
    seed: int


@attrs.define
class Parts:
    """The parts of one crawl that its run needs by name.

    Attributes:
        is_whole: The crawl came to its end without being cancelled.
    """

    crawl: Crawl
    state: State
    chooser: Chooser
    throttle: Throttle
    dispatcher: Dispatcher
    reading: Reading
    direct: DirectFetches
    shields: Shields
    processor: Processor
    is_whole: bool = False


def assemble(plan: Plan) -> Parts:
    """The parts of a crawl, each given what it needs and nothing else. Starts nothing."""
    stats, state, shields, places = plan.stats, State(), Shields(), Places()
    crawl = Crawl(spider=plan.spider, settings=plan.settings, stats=stats, state=state)
    throttle = Throttle(plan.throttling, seed=plan.seed, wall=plan.wall, changed=_nobody_waits, crawl=crawl)
    gates = RobotsGates(
        plan.robots,
        user_agent=plan.user_agent,
        give_up_after=plan.throttling.backoff_give_up_after,
        throttle=throttle,
        stats=stats,
        state=state,
    )
    chooser = Chooser(
        throttle.scope,
        places=plan.throttling.concurrent_requests or math.inf,
        depth_first=plan.scheduler.depth_first,
        vet=_vet(throttle, gates),
    )
    throttle.bind(_moved(chooser, places, state))
    heads = Heads(plan.frontier, chooser, gates.ensured(page_entry))
    intake = Intake(
        admission=Admission(plan.scheduler, plan.spider.allowed_domains),
        frontier=plan.frontier,
        heads=heads,
        throttle=throttle,
        stats=stats,
        state=state,
        origin_of=gates.origin_of,
    )
    gates.bind(chooser, intake)
    direct = DirectFetches(intake=intake, chooser=chooser, gates=gates, throttle=throttle, state=state)
    sending = Sending(
        transport=plan.transport,
        chooser=chooser,
        throttle=throttle,
        places=places,
        stats=stats,
        state=state,
        recorder=plan.recorder,
    )
    processor = plan.pipelines(crawl)
    outlet = Outlet(processor, plan.spider, plan.sinks, plan.collected, stats)
    reading = Reading(spider=plan.spider, intake=intake, outlet=outlet, shields=shields, state=state)
    flow = Flow(
        fetch=compose(plan.middleware, sending.send),
        sending=sending,
        intake=intake,
        succession=Succession(
            intake=intake, frontier=plan.frontier, chooser=chooser, gates=gates, stats=stats, state=state
        ),
        outlet=outlet,
        spider=plan.spider,
        statuses=StatusRule(plan.engine, plan.spider),
        shields=shields,
        stats=stats,
        state=state,
    )
    dispatcher = Dispatcher(
        chooser=chooser,
        heads=heads,
        throttle=throttle,
        gates=gates,
        places=places,
        flow=flow,
        reading=reading,
        state=state,
        callbacks=plan.engine.concurrent_callbacks,
    )
    crawl.bind(chooser=chooser, throttle=throttle, direct=direct)
    return Parts(crawl, state, chooser, throttle, dispatcher, reading, direct, shields, processor)


def _vet(throttle: Throttle, gates: RobotsGates) -> Callable[[Entry], str | None]:
    """Why a pending entry may not go at all: its scope was given up, or robots.txt forbids it."""

    def vet(entry: Entry) -> str | None:
        return throttle.refused(entry, trio.current_time()) or gates.forbids(entry)

    return vet


def _moved(chooser: Chooser, places: Places, state: State) -> Callable[[Scope, float], None]:
    """What happens when a scope's limits move: its lock follows, and whoever waits is looked at again."""

    def moved(scope: Scope, now: float) -> None:
        places.resize(scope)
        chooser.changed(scope, now)
        state.pulse.beat()

    return moved


def _nobody_waits(scope: Scope, now: float) -> None:
    """Before the chooser is there, nobody waits."""
