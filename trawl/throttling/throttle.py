"""The throttle: the interface of throttling for the engine. With the default manager everything here is synchronous.

:attr:`Throttle.resolver` names the scopes of a request, the scheduler decides with the scopes alone, and
:meth:`Throttle.record_outcome_nowait` applies an outcome to them after the body was read, before the places are
released. Windows that pass need no task, because :meth:`Throttle.next_change` is part of the dispatcher's deadline.

Length: the engine uses one object for all of throttling.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from trawl.errors import HostGivenUp, SettingsError
from trawl.http import host_scope
from trawl.http.notes import notes_of
from trawl.throttling.common import CommonScopes, ScopeHolder, stricter
from trawl.throttling.config_warnings import ConfigWarnings, WhyNext
from trawl.throttling.failure_timer import FailureTimer
from trawl.throttling.hints import WINDOW_HEADERS
from trawl.throttling.managers import (
    BackoffSignal,
    ManagerCalls,
    OnFailure,
    ThrottlingManager,
    call_context,
    ignore_failure,
    is_trigger,
    manager_of,
)
from trawl.throttling.outcomes import (
    GivenUpScopes,
    Granted,
    adjust,
    correct,
    give_up_error,
    good,
    judge,
    passed_by,
    step_at_start,
    tell,
    trigger,
)
from trawl.throttling.policy import ScopeState
from trawl.throttling.reasons import Reason, ScopeReport, reports_of, reports_together, send_limit
from trawl.throttling.scope import Scope
from trawl.throttling.scope_resolver import AddressOf, ScopeResolver
from trawl.throttling.scope_table import CrawlDelays, ScopePolicies, ScopeTable, ScopeTimers, changed
from trawl.throttling.scopes import ScopeAmounts, normal_id
from trawl.throttling.settings import ThrottlingSettings
from trawl.throttling.shared import SharedScope, SharedScopeClient, adopt, check_shared, is_slower, shared_limits
from trawl.throttling.snapshot import QuotaAllowance, ThrottleSnapshot

if TYPE_CHECKING:
    from trawl.clock import WallClock
    from trawl.http import Outcome, Request, Response
    from trawl.observe import SendLimit
    from trawl.throttling.job_scopes import JobScopes

__all__ = ["Throttle"]

logger: logging.Logger = logging.getLogger("trawl.throttling")


class Throttle:
    """The scopes of one crawl: names them for requests, creates them, and applies outcomes to them.

    Args:
        settings: The limits and policies.
        seed: The run's seed. Every scope derives its own random numbers from it.
        changed: Called with a scope whose limits changed, and ``now``.
        why_next: Returns why the next request with the scopes of an attempt waits, or without one any other.
        wall: The wall clock, for dates in headers.
        resolve: Returns the address of a host, for ``CONCURRENT_REQUESTS_PER_IP``; None to throttle by host.
        failed: Called when a user's scope manager or strategy fails. The default is used then.
        common: The scopes that the crawls of this event loop share; None if this crawl shares none.
        holder: This crawl, as the other crawls see it.
        has_job: True if a job counts the amounts spent of quotas.

    Attributes:
        settings: The limits and policies.
        table: The scopes in memory, and their policies and page budgets.
        resolver: Names the scopes of requests.
        given_up: The scopes that were given up.
        limits_set: The limits that were set at run time, by scope, for the next run of a job.
        warnings: The warnings about the configuration.
        part_of: Returns the partition of a shared job that a scope id belongs to; None if the job is not shared.

    Raises:
        SettingsError: If a class that the settings name can't be created.
    """

    def __init__(
        self,
        settings: ThrottlingSettings,
        *,
        seed: int | str,
        wall: WallClock,
        changed: Callable[[Scope, float], None],
        why_next: WhyNext = lambda attempt, now: None,
        resolve: AddressOf | None = None,
        failed: OnFailure = ignore_failure,
        common: CommonScopes | None = None,
        holder: ScopeHolder | None = None,
        has_job: bool = False,
    ) -> None:
        self.settings = settings
        self._max_told_delay = settings.throttling_ratelimit_max_delay if settings.throttling_ratelimit_obey else 0.0
        self._wall = wall
        self._changed = changed
        self._why_next = why_next
        self._now = wall.anchor_at
        self.table: ScopeTable = ScopeTable(ScopePolicies(settings, failed), seed=seed)
        default = ThrottlingManager()
        default.bind(self)
        self._by_address = resolve if settings.concurrent_requests_per_ip else None
        self.resolver: ScopeResolver = ScopeResolver(default, self.table.policies, self._by_address)
        self._manager_calls = ManagerCalls(default, default, self)
        self._timers = ScopeTimers(self.table)
        self._job_scopes: dict[int | None, JobScopes] = {}
        self._handed_on: list[ScopeReport] = []  # of scopes that other processes took over
        self.part_of: Callable[[str], int | None] = lambda id: None
        self._holder = holder
        if common is not None and holder is not None:
            self.table.have_in_common(common, holder, has_job=has_job)
        self._crawl_delays = CrawlDelays(settings.throttling_scope_limit) if common is None else common.crawl_delays
        self.given_up: GivenUpScopes = GivenUpScopes() if common is None else common.given_up
        self.limits_set: dict[str, dict[str, Any]] = {}
        max_requests = float(settings.concurrent_requests) or math.inf
        self.warnings: ConfigWarnings = ConfigWarnings(settings, max_requests=max_requests)

    def make_managers(self, crawl: object) -> None:
        """Create the throttling manager, and pass ``crawl`` to its ``from_crawler`` and to the scope managers'.

        Until then the default manager decides. A manager may use anything of its crawl when it is created, so the crawl
        must be complete, and it has this throttle. Raises SettingsError if the import path leads to no manager, and any
        exception of the manager's class.
        """
        self.table.crawl = crawl
        manager = manager_of(self.settings.throttling_manager, crawl)
        if isinstance(manager, ThrottlingManager):
            manager.bind(self)
        self.resolver = ScopeResolver(manager, self.table.policies, self._by_address)
        self._manager_calls = ManagerCalls(manager, self._manager_calls.default, self)

    @property
    def asks_manager(self) -> bool:
        """True if the manager is a user's own, which may need to be awaited."""
        return self._manager_calls.is_custom or self.resolver.asks_manager

    def scope(self, id: str, now: float) -> Scope:
        """Return the scope of this id, created on demand."""
        scope, is_new = self.table.made(id, now)
        if is_new:
            if "://" in id:
                self.warnings.named_by_url(id)
            if scope.holders:
                self._tighten(scope, now)
            job_scopes = self._job_scopes.get(self.part_of(scope.id)) if self._job_scopes else None
            if job_scopes is not None and scope.holders:
                job_scopes.hold(scope, now)
            elif job_scopes is not None and job_scopes.restore(scope, now):
                self._timers.arm(scope)
            if self._crawl_delays.wishes:
                self._slow_down(scope, now)
            if self.table.line is not None and isinstance(scope, SharedScope):
                self.table.line.publish(scope.id, shared_limits(scope, now), is_new=True)
        return scope

    def _tighten(self, scope: Scope, now: float) -> None:
        """Apply the limits of this crawl to a shared scope as well, if they are stricter than the current ones."""
        policy, state = self.table.policies.of(scope.id), scope.state
        limits = stricter(scope.limits, policy.limits)
        # Rampup would exceed this crawl's configured pace.
        ends_rampup = state.rampup is not None and policy.rampup is None
        if policy.limits == scope.limits and not ends_rampup:
            return
        logger.warning(
            "%s: the settings of two crawls differ, so the stricter ones are in force for both: delay %.3g s, "
            "concurrency %g%s (THROTTLING_SHARED)",
            scope.id, limits.delay, limits.concurrency, ", no rampup" if ends_rampup else "",
        )  # fmt: skip
        if limits != scope.limits or ends_rampup:
            rampup, auto = policy.rampup and state.policy.rampup, state.policy.autothrottle
            if auto is not None:
                least = max(auto.min_delay, limits.delay)
                auto = attrs.evolve(auto, min_delay=least, max_delay=max(auto.max_delay, least))
            state.set_policy(attrs.evolve(state.policy, limits=limits, rampup=rampup, autothrottle=auto))
            self.table.apply_limits(scope, limits, now)
            state.apply(scope)
            self._moved(scope, now)

    def arm(self, scope: Scope) -> None:
        """Update the time at which a scope is due; for the crawls that share it."""
        self._timers.arm(scope)

    def admitted(self, request: Request, amounts: ScopeAmounts) -> None:
        """Record that a request is new to its scopes, so that it may use scopes that were given up before."""
        if amounts and self.given_up.at_utc:
            self.given_up.admit(request, amounts, self.utc())

    # -- outcomes

    async def begin(self, now: float) -> None:
        """Call the manager for holds before the first send, and log the warnings due at the start."""
        self._now = now
        self.warnings.at_start(self.table.policies)
        for id, signal in (await self._manager_calls.ask_at_start()).items():
            scope = self.scope(id, now)
            correct(scope, signal, now, expected=None, sent_at=None)
            step_at_start(scope, signal, now)
            self._moved(scope, now)

    def record_outcome_nowait(self, attempt: Granted, outcome: Outcome, now: float) -> bool:
        """Record an outcome after its body was read, before its places are released.

        Sets ``is_trigger``, ``is_excused``, ``is_hopeless`` and ``pause`` of the outcome. Returns False without any
        effect if a user's manager must be called first. Then call :meth:`record_outcome`.
        """
        self._now = max(self._now, now)
        if self._manager_calls.is_custom:
            return False
        lane = attempt.lane
        # Most requests have the scopes of their lane, which saves a call per page.
        scopes = self._scopes_of(attempt, now) if lane is None or attempt.is_exempt else lane.scopes
        self._apply(attempt, scopes, outcome, self._manager_calls.own_signals(attempt, outcome, scopes), now)
        return True

    async def record_outcome(self, attempt: Granted, outcome: Outcome, now: float) -> None:
        """Call a user's manager, and record an outcome that :meth:`record_outcome_nowait` did not record.

        A checkpoint only if the manager's method is one. If the manager raises, the default manager decides, and the
        exception is raised.
        """
        try:
            signals: dict[str, BackoffSignal] | None = await self._manager_calls.ask(attempt, outcome)
        except Exception:
            scopes = self._scopes_of(attempt, now)
            self._apply(attempt, scopes, outcome, self._manager_calls.own_signals(attempt, outcome, scopes), now)
            raise
        self._apply(attempt, self._scopes_of(attempt, now), outcome, signals, now)

    def _scopes_of(self, attempt: Granted, now: float) -> Sequence[Scope]:
        """Return the scopes of a request in flight: of its lane, unless the request is exempt and its lane has none."""
        if attempt.lane is not None and not attempt.is_exempt:
            return attempt.lane.scopes
        return [self.scope(id, now) for id, _ in attempt.scopes]

    def utc(self) -> datetime:
        """Return the wall time of the latest event loop time passed in, with an outcome or a tick."""
        return self._wall.to_utc(self._now)

    async def triggered(
        self, request: Request | None, response: Response | None, exception: Exception | None
    ) -> list[str]:
        """Return the scopes of a request for which this outcome is a trigger, for the default manager.

        Raises ValueError without a request outside a call to a manager, because the scopes are then unknown.
        """
        question = call_context.get()
        amounts = None if question is None else question.scope_amounts_of(request)
        if amounts is None:
            if request is None:
                raise ValueError(
                    "get_response_backoff() got a response without a request, so its scopes are unknown: "
                    "make it with request=..."
                )
            amounts = await self.resolver.of(request)
        names_time = response is not None and self._manager_calls.default.names_time(response)
        states = {id: self.scope(id, self._now).state for id, _ in amounts}
        return [id for id, state in states.items() if is_trigger(state, response, exception, names_time=names_time)]

    def _apply(
        self,
        attempt: Granted,
        scopes: Sequence[Scope],
        outcome: Outcome,
        signals: dict[str, BackoffSignal] | None,
        now: float,
    ) -> None:
        was_sent = attempt.times.sent_at is not None
        has_told = (
            self._max_told_delay > 0.0
            and was_sent
            and outcome.response is not None
            and outcome.response.headers.has_any(WINDOW_HEADERS)
            and not (signals and any(signal.is_trigger for signal in signals.values()))
        )
        if signals:
            states = [self.scope(id, now).state for id, signal in signals.items() if signal.is_trigger]
            judge(attempt, outcome, states, signals.values(), now=now, utc=self.utc())
        if self._crawl_delays.wishes:
            self.warnings.host_left_out(attempt, self._crawl_delays)
        through = notes_of(outcome.request).through
        site = self.resolver.scope_of_host(host_scope(outcome.request.url)) if through else ""
        for index, (id, amount) in enumerate(attempt.scopes):
            # Pop the signal. The remaining ones are about scopes that the request did not take.
            signal = signals.pop(id, None) if signals else None
            if is_of_proxy := id == site:
                self._apply_through_proxy(through, signal, attempt, outcome, now)
            step = attempt.steps[index] if index < len(attempt.steps) else None
            charged = (1.0 if amount is None else amount) if was_sent and not attempt.is_exempt else None
            self._apply_to_scope(
                scopes[index], signal, attempt, outcome, now, step=step, charged=charged, is_of_proxy=is_of_proxy
            )
        for id, signal in (signals or {}).items():  # scopes that only the manager associates with the outcome
            scope = self.scope(id, now)
            self._apply_to_scope(scope, signal, attempt, outcome, now, step=None, charged=None, is_own=False)
        if has_told and not through:  # through a proxy, headers announce the limit of that proxy's address
            self._tell(scopes, outcome, now)
        if outcome.is_trigger:
            outcome.pause = max([0.0, *[self.scope(id, now).quiet_for(now) for id in passed_by(attempt, signals)]])

    def _tell(self, scopes: Sequence[Scope], outcome: Outcome, now: float) -> None:
        """Obey the limit that a good response announces: for its host, or for all scopes if its host is not a scope."""
        own = self.resolver.scope_of_host(host_scope(outcome.request.url))
        for scope in [scope for scope in scopes if scope.id == own] or scopes:
            if tell(scope, outcome, now, self.utc(), self._max_told_delay):
                self._moved(scope, now)

    def _apply_through_proxy(
        self, through: str, signal: BackoffSignal | None, attempt: Granted, outcome: Outcome, now: float
    ) -> None:
        """Apply an outcome to its site's scope through one proxy of a list. The first refusal creates this scope."""
        if signal is not None and signal.is_trigger:
            pair = self.scope(through, now)
        elif (found := self.table.get(through)) is not None:
            pair, signal = found, None
        else:
            return
        sent_at = attempt.times.sent_at
        pair.traffic.last_sent = max(pair.traffic.last_sent, now if sent_at is None else sent_at)
        self._apply_to_scope(pair, signal, attempt, outcome, now, step=None, charged=None)
        pair.state.recent.failure_timer = None  # only the site is given up

    def open_at(self, scope_id: str, now: float) -> float:
        """Return the event loop time at which a scope lets a request through; ``now`` if there is no such scope."""
        scope = self.table.get(scope_id)
        return now if scope is None else scope.earliest_at(now)

    def _apply_to_scope(
        self,
        scope: Scope,
        signal: BackoffSignal | None,
        attempt: Granted,
        outcome: Outcome,
        now: float,
        *,
        step: int | None,
        charged: float | None,
        is_own: bool = True,
        is_of_proxy: bool = False,
    ) -> None:
        state: ScopeState = scope.state
        times = attempt.times
        # Finished windows take effect first, with the state before this outcome.
        has_moved = state.armed <= now and state.settle(scope, now)
        if state.told is not None and state.told.until <= now:
            state.told = None
            has_moved |= state.apply(scope)
        is_trigger = signal is not None and signal.is_trigger
        if signal is not None:
            has_moved |= correct(scope, signal, now, expected=charged, sent_at=times.sent_at)
        if is_own and state.rampup is not None and (times.sent_at is not None or is_trigger):
            state.rampup.answered(now, busy=now - times.granted_at, is_trigger=is_trigger or outcome.response is None)
        if signal is not None and is_trigger:
            trigger(
                scope, signal, attempt, outcome, now,
                step=step, is_of_proxy=is_of_proxy, seed=self.table.seed, advice=self.warnings.backoff_advice,
            )  # fmt: skip
            self._give_up(scope, now)  # if the last attempt failed
            has_moved = True
        elif is_own and outcome.response is not None:
            was_refused = notes_of(attempt.request).refused_at is not None
            is_probe = step == scope.step if step is not None else times.granted_at >= state.recent.escalated_at
            has_moved |= good(scope, now, is_probe=is_probe, was_refused=was_refused)
        if state.rampup is not None and state.rampup.window.due_at <= now:  # the response was the last of its window
            has_moved |= state.settle(scope, now)
        if is_own:
            state.has_answered |= outcome.response is not None
            if state.auto is not None:
                debug = self.settings.autothrottle_debug
                has_moved |= adjust(scope, outcome, is_trigger=is_trigger, debug=debug)
            state.totals.finished(attempt, charged)
            if state.auto is not None or state.policy.is_watched:
                self.warnings.look(scope, attempt, outcome, now, self._why_next)
        if has_moved:
            self._moved(scope, now)
        elif state.backoff is not None or state.rampup is not None:
            self._timers.arm(scope)

    # -- time

    def next_change(self, now: float) -> float:
        """Return the next event loop time at which a scope changes by itself (recovery, rampup, giving up), or ``inf``.

        Changes that are due are applied first. If one of them changed a scope, the result is ``now``, because its lanes
        must be checked.
        """
        if self._timers.next_at() <= now and self.tick(now):
            return now
        return self._timers.next_at()

    def tick(self, now: float) -> bool:
        """Apply windows that ended by ``now``. Returns True if a scope changed. Changes are reported."""
        has_moved = False
        self._now = max(self._now, now)
        for scope in self._timers.passed(now):
            if self._give_up(scope, now):
                has_moved = True
            elif scope.state.settle(scope, now):
                self._moved(scope, now)
                has_moved = True
            else:
                self._timers.arm(scope)
        return has_moved

    def _moved(self, scope: Scope, now: float) -> None:
        if self.table.line is not None and isinstance(scope, SharedScope):
            self.table.line.publish(scope.id, shared_limits(scope, now))
        self._timers.arm(scope)
        self._tell_changed(scope, now)

    def _tell_changed(self, scope: Scope, now: float) -> None:
        is_late = scope.quota is not None and scope.quota.is_late
        self._changed(scope, now)
        for holder in scope.holders:
            if holder is not self._holder:
                if scope.quota is not None:
                    scope.quota.is_late = is_late  # each crawl queues its own lanes again
                holder.changed(scope, now)

    def refused(self, attempt: Granted, now: float) -> str | None:
        """Return ``"refused"`` if the scope of a pending request was given up; for the scheduler's ``vet``."""
        if self.given_up.at_utc and self.given_up.refuses(attempt):
            return "refused"
        return None

    def _give_up(self, scope: Scope, now: float) -> bool:
        """Give a scope up if it gave no good response for too long. Returns True if so."""
        state: ScopeState = scope.state
        timer = state.recent.failure_timer
        if timer is None or not state.should_give_up(scope, now):
            return False
        seconds = max(0.0, now - timer.began_at)
        logger.warning(
            "%s: no good response for %g s since its first refusal (last: %s); its pending requests are refused",
            scope.id, round(seconds, 1), state.recent.trigger_source,
        )  # fmt: skip
        words = f"{HostGivenUp.WORDS}: no good response for {seconds:.0f} s; last attempt"
        self.given_up.add(scope.id, self._wall.to_utc(now), give_up_error(words, *timer.last))
        state.start_afresh()
        # Rampup, AutoThrottle and backoff start again.
        state.set_policy(state.policy)
        scope.lift(but_hints=True)
        state.apply(scope)
        self._moved(scope, now)
        return True

    # -- robots.txt

    def robots_delay(self, host_scope: str, delay: float, now: float, *, origin: str = "") -> None:
        """Obey the Crawl-delay of an origin's robots.txt for its host, in seconds; 0.0 for none.

        Call it only with ``ROBOTSTXT_OBEY``.
        """
        if not self.settings.throttling_robotstxt_obey or not 0.0 <= delay < math.inf:
            return
        id = self.resolver.scope_of_host(host_scope)
        if not self.settings.throttling_robotstxt_max_delay:
            delay = 0.0
        if self._crawl_delays.say(id, origin or host_scope, delay) and (scope := self.table.get(id)) is not None:
            self._slow_down(scope, now)

    def _slow_down(self, scope: Scope, now: float) -> None:
        """Apply a host's Crawl-delay to its scope, or remove it."""
        state: ScopeState = scope.state
        asked = 0.0 if state.policy.config.get("ignore_robots_txt") else self._crawl_delays.of(scope.id)
        delay = min(asked, self.settings.throttling_robotstxt_max_delay)
        self.warnings.differs_from_robots(scope, delay)
        if asked == state.robots_asked:
            return
        state.robots, state.robots_asked = delay, asked
        self.warnings.robots_capped(scope)
        if state.rampup is not None:
            state.rampup.floor = delay
        if state.apply(scope):
            self._moved(scope, now)

    def failure_timer(self, host_scope: str) -> FailureTimer | None:
        """Return the time without a good response of a host; None if its last response was good."""
        scope = self.table.get(self.resolver.scope_of_host(host_scope))
        return None if scope is None else scope.state.recent.failure_timer

    # -- stored state, reports and changes at run time

    def snapshot(self, now: float, next_in: float | None = None) -> ThrottleSnapshot:
        """Return learned and spent values, to be stored. The next snapshot follows in ``next_in`` seconds, if any."""
        from trawl.throttling.job_scopes import snapshot_of  # noqa: PLC0415 - for crawls with a job

        job_scopes = self._job_scopes.values()
        return snapshot_of(self.table, job_scopes, self.given_up.at_utc, self._wall, now, next_in)

    def unknown_until(self, part: int) -> float:
        """Return the epoch time until which earlier owners may have sent unrecorded requests, or ``-inf``."""
        job_scopes = self._job_scopes.get(part)
        return -math.inf if job_scopes is None else job_scopes.unknown_until

    def restore(
        self, state: ThrottleSnapshot, now: float, ahead: QuotaAllowance | None = None, part: int | None = None
    ) -> None:
        """Continue from the state of an earlier run or another process; best before the first of its scopes exists.

        ``ahead`` are the amounts that may have been spent since then, and ``part`` is the partition of these scopes, as
        returned by :attr:`part_of`; None if the job is not shared.
        """
        from trawl.throttling.job_scopes import JobScopes, with_ahead  # noqa: PLC0415 - for crawls with a job

        if ahead is not None:
            state = with_ahead(state, ahead)
        limit = self.settings.throttling_scope_limit
        job_scopes = self._job_scopes[part] = JobScopes(state, now, self._wall, self.table.pages, limit)
        self.given_up.restore(state.given_up, self._wall.to_utc(now))
        if part is not None:
            # The partition came while the crawl runs, so requests may already have named its scopes.
            for scope in [scope for scope in self.table if self.part_of(scope.id) == part]:
                self.table.pages.keep(scope)
                job_scopes.restore(scope, now)
                self._moved(scope, now)

    def forget(self, parts: Collection[int], now: float) -> None:
        """Forget the scopes of some partitions of the job, because other processes continue with them.

        Scopes in use for hosts of other partitions stay: shared scopes, which are granted elsewhere, and hosts whose
        names requests to other hosts use as scopes.
        """

        def is_gone(scope: Scope) -> bool:
            is_used = scope.traffic.in_flight or scope.traffic.ahead or scope.waits.lanes
            return self.part_of(scope.id) in parts and not is_used and not self.is_shared(scope.id)

        gone = [scope for scope in self.table if is_gone(scope)]
        self._handed_on = reports_together([*self._handed_on, *reports_of(gone, now)])[:MOST_HANDED_ON]
        for part in parts:
            self._job_scopes.pop(part, None)
        self.table.forget(gone)
        self.table.pages.forget(lambda id: self.part_of(id) in parts and self.table.get(id) is None)
        wishes = self._crawl_delays.wishes
        for id in [id for id in wishes if self.part_of(id) in parts]:
            del wishes[id]
        for id in [id for id in self.given_up.at_utc if self.part_of(id) in parts]:
            self.given_up.forget(id)

    def share_by(self, line: SharedScopeClient, shares_host: Callable[[str], bool | None] | None = None) -> None:
        """Grant shared scopes by ``line``, for several processes on the job. Call it before the first scope.

        Raises:
            SettingsError: If several processes can't share a scope with its configuration.
        """
        self.table.policies.shares_host = shares_host
        self.table.policies.check_shared()
        self.table.line = line

    def is_shared(self, id: str) -> bool:
        """Return True if the line of the job's store grants a scope with this normalized id."""
        return self.table.line is not None and self.table.policies.is_shared(id)

    def adopt(self, id: str, learned: bytes, age: float, now: float) -> None:
        """Continue from the state of a shared scope that another process learned ``age`` seconds ago.

        Raises:
            ValueError: If the state can't be read.
        """
        scope = self.table.get(id)
        if scope is None or self.table.line is None:
            return
        if not learned or is_slower(scope, learned, now - age):
            self.table.line.publish(id, shared_limits(scope, now), is_new=not learned)
            return
        adopt(scope, learned, now - age)
        if scope.state.settle(scope, now):
            self.table.line.publish(id, shared_limits(scope, now))
        self._timers.arm(scope)
        self._changed(scope, now)

    def allowed(self, scope_ids: Iterable[str], now: float) -> None:
        """Report that more of the quotas of these scopes may be spent, so that waiting lanes are checked."""
        for id in scope_ids:
            if (scope := self.table.get(id)) is not None:
                self._tell_changed(scope, now)

    def items(self, request: Request, count: int) -> None:
        """Count the items of a response."""
        if count and self.warnings.has_watches:
            scope = self.table.get(self.resolver.scope_of_host(host_scope(request.url)))
            if scope is not None and scope.state.period is not None:
                scope.state.period.items += count

    def set(self, scope_id: str, now: float, /, **limits: Any) -> None:
        """Change a scope's configuration while the crawl runs, with the keys of ``THROTTLING_SCOPES``.

        Backoff and the spent quota stay. AutoThrottle and rampup restart from the new limits. Waiting requests follow
        at once.

        Raises:
            SettingsError: If a key is unknown or a value does not fit. Then nothing is changed.
            Exception: All exceptions of a scope manager that is created for this. Then nothing is changed either.
        """
        scope = self.scope(scope_id, now)
        state: ScopeState = scope.state
        policy, manager = self.table.policies.changed(scope.id, limits), state.manager
        if isinstance(scope, SharedScope):
            check_shared(policy, path=f"THROTTLING_SCOPES[{scope.id!r}]")
        if policy.manager is not state.policy.manager:
            manager = self.table.manager_of(scope.id, policy)
        self.table.policies.keep(scope.id, policy)  # nothing fails after this line
        state.manager = manager
        state.set_policy(policy)
        self.table.apply_limits(scope, policy.limits, now)
        if self._job_scopes and (job_scopes := self._job_scopes.get(self.part_of(scope.id))) is not None:
            job_scopes.restore_limits(scope, now)
        self._slow_down(scope, now)
        state.apply(scope)
        self._moved(scope, now)

    def keep_limits(self, scope_id: str, limits: Mapping[str, Any]) -> None:
        """Remember limits that were set at run time, for the next run of a job, unless they can't be stored."""
        try:
            msgspec.msgpack.encode(limits)
        except (TypeError, ValueError, OverflowError):  # a class or an object of the user
            logger.debug("%s: limits set at run time are not stored in the job: %r", scope_id, limits)
            return
        id = normal_id(scope_id)
        self.limits_set[id] = changed(self.limits_set.get(id, {}), limits)

    def restore_limits(self, limits_set: Mapping[str, Mapping[str, Any]], now: float) -> None:
        """Set the limits that an earlier run or process was given at run time. Limits that do not fit are logged."""
        for id, limits in limits_set.items():
            try:
                self.set(id, now, **limits)
            except SettingsError as error:
                logger.warning("%s: limits set in an earlier run do not apply any more: %s", id, error)
            else:
                self.limits_set[id] = dict(limits)

    def preview(self, scope_id: str, now: float, /, **limits: Any) -> tuple[SendLimit, SendLimit]:
        """Return the rate that a scope allows now, and the rate with these limits. Changes nothing.

        Raises:
            SettingsError: If a key is unknown or a value does not fit.
        """
        id = normal_id(scope_id)
        known, policy = self.table.get(id), self.table.policies.changed(id, limits)
        before = Scope(id, self.table.policies.of(id).limits) if known is None else known
        after = Scope(id, policy.limits)
        after.state = ScopeState(policy, now)
        if known is None:
            before.state = ScopeState(self.table.policies.of(id), now)
        else:
            for name in ("backoff", "robots", "robots_asked", "told", "totals"):
                setattr(after.state, name, getattr(known.state, name))
            after.numbered = tuple([limit.copy() for limit in known.numbered])
            after.apply_limits(policy.limits)
            after.traffic.restore(known.traffic.last_sent)
            after.held = known.held
        after.state.apply(after)
        return send_limit(before, now), send_limit(after, now)

    def why_idle(self, scope_id: str, now: float) -> Reason | None:
        """Return why a request for a scope without pending ones would wait; None if it would not."""
        scope = self.table.get(scope_id)
        reason = None if scope is None else scope.reason(now)
        return reason if reason is not None and reason.limit else None

    def report(self, now: float) -> list[ScopeReport]:
        """Return the reports of all scopes, the busiest first: the table at the end."""
        return reports_together([*reports_of(self.table, now), *self._handed_on])


MOST_HANDED_ON = 1_000  # maximum number of reports kept of scopes that other processes took over; the busiest are kept
