"""The effect of one outcome on the scopes of its request.

The order is fixed, and each part changes only its own field:

1. finished windows take effect (``ScopeState.settle``);
2. the quota is corrected by the amount that was really consumed;
3. a trigger counts towards its incident, and rampup or backoff takes its step; a good response is noted;
4. holds: nothing is sent before the backoff's delay and the time that a header names have passed;
5. AutoThrottle adjusts its delay;
6. the parts are combined (``ScopeState.apply``).

**Retries**. Backing off loses no request. A refusal concerns the scope and not the request, so the request of a trigger
is sent again, whatever its status code. A received page (2xx, 3xx) is kept, even if a manager treats it as a trigger.

- A 429, or a response that names a time to retry, never counts as a retry. Still, a path may give no other response
  forever. So each request counts its refusals of that kind: a refusal counts if the scope gave a good response since
  the previous one, and after the first such refusal also if the request fails *alone*. The count restarts when a
  request that had been refused gets a good response. After seven refusals the request is *hopeless*, and ends with its
  last response.
- Any other trigger counts only if the scope gave a good response after the request's previous refusal. The first
  refusal may be the first sign of an outage, so it is counted together with the second one if that shows that there was
  no outage. So one bad page on a healthy host ends after its retries, and an outage ends no request. Its further
  refusals count as long as it fails alone, because no good response can arrive after the last remaining request.
- A request fails *alone* if the scope refused no other one since its last good response, apart from requests that are
  known to fail by themselves. A page is also the cause if its response was truncated twice while it failed alone.
- A scope that never gave a complete response and refuses connections, or does not speak HTTP, is not in an outage: the
  host does not exist.

**Scopes that were given up**: their pending requests are refused before they are granted, and a later request starts
from the beginning. It carries the time of its admission in its notes. Some pending requests may wait for their own
start times, so a scope stays in the list, which holds the last ten thousand.

Length: the parts change one state in one order, so they are best read together.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from trawl.errors import ConnectFailed, ConnectTimeout, DownloadError, HostGivenUp, HttpError, ResponseBroken
from trawl.http import body_bytes
from trawl.http.notes import note, notes_of
from trawl.passwords import without_passwords
from trawl.throttling.backoff import OUTAGE, Backoff, BackoffState
from trawl.throttling.failure_timer import LONGEST_NAMED, FailureTimer
from trawl.throttling.hints import BELIEVABLE, told_by
from trawl.throttling.managers import BackoffSignal, call_user, call_user_number
from trawl.throttling.policy import ScopeState
from trawl.throttling.reasons import Reason
from trawl.throttling.scope import Scope
from trawl.throttling.snapshot import ServerLimit

if TYPE_CHECKING:
    from trawl.http import Outcome, Request, Response
    from trawl.throttling.scopes import ScopeAmounts

__all__ = [
    "GivenUpScopes",
    "Granted",
    "adjust",
    "correct",
    "give_up_error",
    "good",
    "judge",
    "passed_by",
    "step_at_start",
    "tell",
    "trigger",
]

SEVERAL = "*"  # used instead of the name of one refused request if there were several

TOO_MANY_REQUESTS = 429

MAX_REFUSALS = 7  # in a row: if each halves the pace, they take two minutes, starting at 1 s

_KEPT = range(200, 400)


class HasScopes(Protocol):
    """A lane, as the throttle sees it."""

    @property
    def scopes(self) -> Sequence[Scope]:
        """The scopes of its requests, sorted by id."""


class GrantedTimes(Protocol):
    """The times of a request, and the reasons for its waits: :class:`trawl.scheduler.attempt.AttemptTimes`."""

    granted_at: float  # event loop time of the grant
    sent_at: float | None  # event loop time at which it was sent; None if it was not sent (yet)
    held_by: Reason | None  # the scope that became free last, and its limit; None if it has at most one scope
    left_by: Reason | None  # the reason why it was passed over although its scopes were free; None if it was not


class Granted(Protocol):
    """A request from before it is granted until its end, as the throttle sees it: :class:`trawl.scheduler.Attempt`."""

    request: Any
    scopes: ScopeAmounts  # the sorted ids of its scopes, with their expected amounts (None: 1.0)
    is_exempt: bool  # True if it takes no scope (`dont_throttle`)
    steps: tuple[int, ...]  # the backoff step of each of its scopes when it was granted

    @property
    def lane(self) -> HasScopes | None:
        """The lane that holds or held it; None if it was not in a lane yet."""

    @property
    def times(self) -> GrantedTimes:
        """Its times, and the reasons for its waits."""


def judge(
    attempt: Granted,
    outcome: Outcome,
    states: Sequence[ScopeState],
    signals: Iterable[BackoffSignal],
    *,
    now: float,
    utc: datetime,
) -> None:
    """Set ``is_trigger``, ``is_excused`` and ``is_hopeless`` of an outcome. Record the refusal in the request's notes.

    ``states`` belong to the scopes for which it is a trigger, and do not know this outcome yet.
    """
    response, error = outcome.response, outcome.error
    if not states or (response is not None and response.status in _KEPT):
        return
    # A rejected certificate or an unknown scheme fails again at the next attempt, outage or not.
    if error is not None and not getattr(error, "is_retryable", False):
        return
    outcome.is_trigger = True
    refused_utc = notes_of(attempt.request).refused_at
    refused_at = None if refused_utc is None else now - max(0.0, utc.timestamp() - refused_utc)
    _note(attempt, outcome, refused_at=utc.timestamp())
    is_retry, refusals = _asked_manager(attempt, outcome, states), 0
    if is_retry is None:
        wanted = max([signal.delay or 0.0 for signal in signals if signal.is_trigger], default=0.0)
        if wanted or (response is not None and response.status == TOO_MANY_REQUESTS):
            is_retry, refusals = False, _refusals(attempt, states, refused_at, now, now + wanted)
            _note(attempt, outcome, refusals=refusals)
        else:
            is_retry = _counts(attempt, outcome, states, refused_at)
    outcome.is_hopeless = refusals >= MAX_REFUSALS
    outcome.is_excused = not is_retry and not outcome.is_hopeless
    is_known = refusals > 1 or notes_of(attempt.request).is_bad_page  # refused although others are served
    if not is_known:
        name = _name(attempt)
        for state in states:
            state.recent.refused = name if state.recent.refused in ("", name) else SEVERAL


def passed_by(attempt: Granted, others: Mapping[str, BackoffSignal] | None) -> list[str]:
    """Return the scopes that a refused request must wait for although it did not take them, by its other signals."""
    ids = [id for id, signal in (others or {}).items() if signal.is_trigger]
    return [*ids, *(id for id, _ in attempt.scopes)] if attempt.is_exempt else ids


def _asked_manager(attempt: Granted, outcome: Outcome, states: Sequence[ScopeState]) -> bool | None:
    """Ask the scopes' managers if it is a retry; None if no manager decides."""
    for state in states:
        about = (attempt.request, outcome.response, outcome.error)
        answer = call_user(state.manager, "is_retry", state.policy.failed, *about)
        if answer is not None:
            return bool(answer)
    return None


def _counts(attempt: Granted, outcome: Outcome, states: Sequence[ScopeState], refused_at: float | None) -> bool:
    error = outcome.error
    is_not_there = isinstance(error, ConnectFailed | ConnectTimeout | ResponseBroken)
    if is_not_there and not any(each.has_answered for each in states):
        return True
    notes = notes_of(attempt.request)
    is_known, had_failed = notes.is_bad_page, notes.is_uncounted
    are_others_served = refused_at is not None and all(state.recent.good_at > refused_at for state in states)
    is_own_fault = is_known or (had_failed and isinstance(error, ResponseBroken))
    if not are_others_served and not (is_own_fault and _is_alone(attempt, states)):
        _note(attempt, outcome, is_uncounted=True)
        return False
    if not is_known:
        _note(attempt, outcome, is_bad_page=True)
        if had_failed:  # the request's first failure; an earlier 429 stays excused
            times = attempt.request.meta_get("retry_times", 0) + 1
            for request in _requests(attempt, outcome):
                request.meta["retry_times"] = times
    return True


def _refusals(
    attempt: Granted, states: Sequence[ScopeState], refused_at: float | None, now: float, until: float
) -> int:
    """Count the refusals that named a later time while others were served, including this one.

    A refusal is not counted if the request was sent before the time that its server had named, because the wait was
    cut, and names the same time again. Such a refusal has no new information.
    """
    count = notes_of(attempt.request).refusals
    if refused_at is None or not count or any(state.recent.passed_at > refused_at for state in states):
        return 1
    timers = [state.recent.failure_timer for state in states]
    if until > now and any(timer is not None and timer.is_early(now, until) for timer in timers):
        return count
    are_others_served = all(state.recent.good_at > refused_at for state in states)
    return count + (are_others_served or (count > 1 and _is_alone(attempt, states)))


def _is_alone(attempt: Granted, states: Sequence[ScopeState]) -> bool:
    """Return True if its scopes refused no other request since their last good responses, except bad pages."""
    name = _name(attempt)
    return all(state.recent.refused in ("", name) for state in states)


def _name(attempt: Granted) -> str:
    return f"{attempt.request.method} {attempt.request.url}"


def _note(attempt: Granted, outcome: Outcome, **changes: object) -> None:
    for request in _requests(attempt, outcome):
        note(request, **changes)


def _requests(attempt: Granted, outcome: Outcome) -> list[Request]:
    """Return the request as queued and as sent."""
    queued, sent = attempt.request, outcome.request
    return [queued] if sent is queued else [queued, sent]


_MAX_LISTED = 10_000  # maximum number of scopes in the list


class GivenUpScopes:
    """The scopes of one crawl that were given up. Their pending requests are refused."""

    __slots__ = ("_failures", "at_utc")

    def __init__(self) -> None:
        # Time at which each scope was given up, in epoch seconds. Empty in almost every crawl, so test it before a
        # call.
        self.at_utc: dict[str, float] = {}
        self._failures: dict[str, HostGivenUp] = {}

    def __contains__(self, id: str) -> bool:
        return id in self.at_utc

    def add(self, id: str, utc: datetime, failure: HostGivenUp) -> None:
        """Add a scope that was given up at ``utc`` because of ``failure``."""
        self.forget(id)
        self.at_utc[id] = utc.timestamp()
        self._failures[id] = failure
        if len(self.at_utc) > _MAX_LISTED:
            self.forget(next(iter(self.at_utc)))

    def forget(self, id: str) -> None:
        """Remove a scope from the list."""
        self.at_utc.pop(id, None)
        self._failures.pop(id, None)

    def restore(self, at_utc: Mapping[str, float], utc: datetime) -> None:
        """Restore the list of an earlier run, which ended before ``utc``, to refuse the same pending requests.

        This also works if the machine's clock was set back since then, because requests admitted now count as later.
        """
        now = utc.timestamp()
        self.at_utc.update({id: min(at, now) for id, at in at_utc.items()})

    def admit(self, request: Request, amounts: ScopeAmounts, utc: datetime) -> None:
        """Mark a request that is newer than the end of its scope. A refused request that is sent again is not."""
        given_up = max([self.at_utc[id] for id, _ in amounts if id in self.at_utc], default=math.inf)
        refused_at = notes_of(request).refused_at
        if given_up < math.inf and (refused_at is None or refused_at < given_up):
            note(request, admitted_at=utc.timestamp())

    def refuses(self, attempt: Granted) -> bool:
        """Return True if a request was pending when one of its scopes was given up."""
        return self._refusing(attempt) is not None

    def failure_of(self, attempt: Granted) -> HostGivenUp:
        """Return the reason why the refusing scope was given up, without details if they are unknown."""
        return self._failures.get(self._refusing(attempt) or "") or HostGivenUp(HostGivenUp.WORDS)

    def _refusing(self, attempt: Granted) -> str | None:
        for id, _ in attempt.scopes:
            at_utc = self.at_utc.get(id)
            if at_utc is not None:
                admitted_at = notes_of(attempt.request).admitted_at
                if admitted_at is None or admitted_at < at_utc:
                    return id
        return None


_MAX_BODY = 16 * 1024  # maximum bytes of a body that errors keep, because many hosts may be down at once


def _last(outcome: Outcome) -> tuple[Response | None, Exception | None]:
    """Return the response and the error of an outcome, without a large body."""
    response = outcome.response
    if response is not None and body_bytes(response) > _MAX_BODY:
        response = response.replace(body=b"")
    return response, outcome.error


def give_up_error(words: str, response: Response | None, error: Exception | None) -> HostGivenUp:
    """Return the error for a host that is given up, with its last response or error. ``words`` start the message."""
    if response is not None:
        last = f"answered {response.status}"
        error = HttpError(response) if response.request is not None else None
    else:
        last = error.cause if isinstance(error, DownloadError) else str(error or "")
        response = getattr(error, "response", None)
    failure = HostGivenUp(f"{words}: {last}" if last else words)
    failure.response, failure.__cause__ = response, error
    return failure


logger: logging.Logger = logging.getLogger("trawl.throttling")


def correct(scope: Scope, signal: BackoffSignal, now: float, *, expected: float | None, sent_at: float | None) -> bool:
    """Correct the quota, for which ``expected`` was charged at the send. Returns True if there was a correction."""
    if signal.consumed is not None:
        difference = signal.consumed - (expected or 0.0)
        scope.state.totals.used += difference
        scope.correct(difference, now, sent_at)
    if signal.remaining is not None:
        scope.set_remaining(signal.remaining, now)
    return signal.consumed is not None or signal.remaining is not None


def trigger(
    scope: Scope,
    signal: BackoffSignal,
    attempt: Granted,
    outcome: Outcome,
    now: float,
    *,
    step: int | None,
    is_of_proxy: bool,
    seed: int | str,
    advice: Callable[[Outcome], str],
) -> None:
    """Apply a trigger to a scope.

    ``step`` is the scope's step when the request was granted; None if the request did not take the scope. If the scope
    ``is_of_proxy``, the site refused the request through one proxy of a list, whose own scope backs off. ``advice``
    returns the end of the first log line on backing off.
    """
    if is_of_proxy:
        _refused_through_proxy(scope, signal, outcome, now)
        return
    state: ScopeState = scope.state
    granted_at, recent = attempt.times.granted_at, state.recent
    # The request was granted under the current step, so this step was not enough.
    is_new = step == scope.step if step is not None else granted_at >= recent.escalated_at
    state.totals.triggers += 1
    recent.triggered_at = now
    timer = recent.failure_timer
    if timer is None:
        timer = recent.failure_timer = FailureTimer(now, lead=max(0.0, now - granted_at))
    # Requests for robots.txt leave longer gaps, and these count.
    timer.refused(granted_at, is_paced=outcome.request.url.endswith("/robots.txt"))
    timer.last = _last(outcome)
    what = describe(outcome)
    if is_new:
        recent.trigger_source = what
    # In an outage a 503 may name a time to retry, too. If the refusals continue after that time, there is an outage. A
    # 429 indicates a limit, unless the times that it named were waited for several times, and for longer than limits
    # take.
    waits = timer.unanswered_waits(now)
    is_limit = outcome.response is not None and outcome.response.status == TOO_MANY_REQUESTS and waits < OUTAGE
    rampup = state.rampup
    if is_new and rampup is not None and state.backoff is not None and state.backoff.outage is not None:
        rampup.take_back(state.backoff.delay)  # refused while returning, so it was not an outage
        state.backoff = None
    if rampup is not None and not rampup.has_fallen_back:
        if is_new:
            before = rampup.limits
            hold = min(signal.delay or 0.0, state.policy.backoff.max_delay)
            if rampup.triggered(now, is_limit=is_limit, waits=waits, hold=hold):
                state.steer(rampup.window.triggers, before)
            if state.is_outage:
                state.fall_back(scope, now)
            else:
                _count_incident(scope, now)
        state.apply(scope)
        # Without a send the delay counts from now. In an outage it counts from the response.
        if outcome.sent_at is None or state.is_outage:
            _hold(scope, now + scope.interval(), "delay", f"rampup: {what}")
    else:
        _back_off(scope, outcome, now, is_new=is_new, is_limit=is_limit, waits=waits, advice=advice)
    if signal.delay:
        _obey(scope, timer, signal, now, what, seed)
    _put_off(scope, timer, now)
    timer.quiet(now + scope.quiet_for(now))


def _hold(scope: Scope, until: float, limit: str, source: str) -> None:
    scope.hold(until, Reason(scope.id, limit, until, source))


def _refused_through_proxy(scope: Scope, signal: BackoffSignal, outcome: Outcome, now: float) -> None:
    state: ScopeState = scope.state
    state.totals.triggers += 1
    state.recent.triggered_at, state.recent.trigger_source = now, describe(outcome)
    timer = state.recent.failure_timer = state.recent.failure_timer or FailureTimer(now)
    timer.refused(now, is_paced=True)
    timer.last = _last(outcome)
    timer.quiet(now)
    if signal.delay:
        _count_named(timer, signal.delay, min(signal.delay, state.policy.backoff.max_delay), now)


def _put_off(scope: Scope, timer: FailureTimer, now: float) -> None:
    """Delay the last attempt to the end of the time until giving up, if a later attempt would miss it."""
    state: ScopeState = scope.state
    backoff, until = state.backoff, max(now, scope.held.until)
    if backoff is None:  # rampup controls the scope and at most doubles the delay in a fall
        until = max(until, scope.traffic.last_sent + scope.interval())
        following, mover = 2.0 * scope.effective.longest, "rampup"
    else:
        strategy, mover = state.policy.backoff, f"backoff step {backoff.steps}"
        # An estimate, because a custom strategy is not called.
        following = Backoff.slower(strategy, backoff.delay, state.base(scope).delay)
        following *= max(1.0, strategy.jitter[1])
    last = timer.put_off(until, following, state.policy.give_up_after)
    if last > until:
        _hold(scope, last, "backoff", f"{mover}: {state.recent.trigger_source}; the last try before it is given up")


def _count_incident(scope: Scope, now: float) -> None:
    scope.step += 1
    scope.state.totals.steps += 1
    scope.state.recent.escalated_at = now


def _back_off(
    scope: Scope,
    outcome: Outcome,
    now: float,
    *,
    is_new: bool,
    is_limit: bool,
    waits: int,
    advice: Callable[[Outcome], str],
) -> None:
    state: ScopeState = scope.state
    base, strategy, recent = state.base(scope), state.policy.backoff, state.recent
    backoff = state.backoff or BackoffState.at(base)
    if is_new:
        backoff = backoff.escalated(
            strategy,
            base,
            now,
            in_flight=scope.traffic.in_flight,
            sent_at=outcome.started_at if outcome.sent_at is None else outcome.sent_at,
            is_limit=is_limit,
            waits=waits,
            is_outage=state.is_outage,
        )
        _count_incident(scope, now)
        # Only the first step of an incident is a warning. The failure of one page is logged with the page, so it is not
        # one.
        level = logging.WARNING if backoff.steps == (1 if outcome.error is None else 2) else logging.INFO
        if logger.isEnabledFor(level):
            logger.log(
                level, "%s: backing off, step %d: delay %.3g s, concurrency %g, after %s%s",
                scope.id, backoff.steps, backoff.delay, backoff.concurrency, outcome.error or recent.trigger_source,
                advice(outcome),
            )  # fmt: skip
    else:
        backoff = backoff.repeated(now)
    state.backoff = backoff
    state.apply(scope)
    quiet = scope.interval()
    if state.manager is not None:
        about = (outcome.response, outcome.error, quiet)
        wanted = call_user_number(state.manager, "get_delay", state.policy.failed, *about, is_finite=True)
        quiet = quiet if wanted is None else max(0.0, wanted)
    if quiet > 0.0:
        _hold(scope, now + quiet, "backoff", f"backoff step {backoff.steps}: {recent.trigger_source}")


def _obey(scope: Scope, timer: FailureTimer, signal: BackoffSignal, now: float, what: str, seed: int | str) -> None:
    """Hold the scope for the wait that a header or a manager requests, up to the cap. Jitter only lengthens it."""
    state: ScopeState = scope.state
    wanted, cap, spread = signal.delay or 0.0, state.policy.backoff.max_delay, state.policy.backoff.jitter[1] - 1.0
    delay = min(wanted, cap)
    if spread > 0.0:
        delay *= 1.0 + spread * random.Random(f"{seed}:{scope.id}:hint {state.totals.hints}").random()
    header = signal.header or "the throttling manager"
    source = f"{header}, {what}"
    if wanted > cap:
        source = f"{source}; capped at {cap:g} s"
        if wanted <= BELIEVABLE:  # otherwise it is a mistake, not worth a log line
            logger.info("%s: %s asks for %g s after %s; capped at %g s", scope.id, header, wanted, what, cap)
    _count_named(timer, wanted, delay, now)
    state.totals.hints += 1
    state.totals.last_hint = source
    _hold_by_hint(scope, delay, now, source)


def _hold_by_hint(scope: Scope, delay: float, now: float, source: str) -> None:
    logger.debug("%s: nothing is sent for %.3g s: %s", scope.id, delay, source)
    _hold(scope, now + delay, "hint", source)


def _count_named(timer: FailureTimer, wanted: float, delay: float, now: float) -> None:
    """Count the wait that a server requests: the full wait if it is obeyed, otherwise up to a day of it."""
    if wanted <= BELIEVABLE:
        timer.asked(now, now + max(delay, min(wanted, LONGEST_NAMED)), held_until=now + delay)


MAX_DOUBTS = 3  # number of responses after which an announced limit that does not apply is no longer believed


def tell(scope: Scope, outcome: Outcome, now: float, utc: datetime, cap: float) -> bool:
    """Obey the limit that the headers of a good response announce. Returns True if that moved a limit.

    A response to a request sent before the request of the current announcement is outdated. If a wait was cut to
    ``cap`` seconds, requests were sent before the announced time. If the server still serves them and announces the
    same, it does not enforce its limit.
    """
    state: ScopeState = scope.state
    response, sent_at, before = outcome.response, outcome.sent_at, state.told
    if response is None or sent_at is None or (before is not None and sent_at < before.sent_at):
        return False
    others = max(0, scope.traffic.in_flight - 1)
    found = told_by(response.headers, utc, others)
    if found is None or (before is not None and before.doubts >= MAX_DOUBTS):
        return False
    (window, header), until, capped = found, now + found[0].reset, None
    if before is None and not window.reset:  # "0 until 0" comes from servers that have no limit
        return False
    if before is not None and now < before.until <= until < before.until + 1.0:
        # Whole seconds are rounded up, so the earlier time for the same window is closer.
        until = before.until
    window = attrs.evolve(window, reset=max(until - now, 0.0) or 1.0)
    wanted, remaining, source = window.interval(others), window.remaining or 0, f"{header}, {describe(outcome)}"
    doubts = 0 if before is None else before.doubts
    if wanted > cap:
        source, capped = f"{source}; capped at {cap:g} s (THROTTLING_RATELIMIT_MAX_DELAY)", remaining
        if before is not None and before.capped is not None and sent_at > before.heard_at:
            doubts += remaining >= before.capped
    delay = min(wanted, cap)
    if remaining <= others:  # count from this response, not from the send before it
        delay += max(0.0, now - scope.traffic.last_sent)
    if doubts >= MAX_DOUBTS:
        logger.info("%s: its announced limit is ignored now, as the server does not apply it: %s", scope.id, source)
        delay, until = 0.0, math.inf
    state.told = ServerLimit(delay, max(until, now + 1.0), source, sent_at, now, capped, doubts)
    was_slowed = scope.effective.delay_limit == "hint"
    has_moved = state.apply(scope)
    if scope.effective.delay_limit == "hint":
        state.totals.last_hint = source
        state.totals.hints += not was_slowed
    return has_moved


def step_at_start(scope: Scope, signal: BackoffSignal, now: float) -> None:
    """Apply the manager's values before the first send: a delay only holds, and an exhausted scope takes one step."""
    state: ScopeState = scope.state
    if signal.delay:
        _hold_by_hint(scope, signal.delay, now, "get_initial_backoff of the throttling manager")
    elif signal.is_trigger:
        base = state.base(scope)
        backoff = state.backoff or BackoffState.at(base)
        state.backoff = backoff.escalated(state.policy.backoff, base, now, in_flight=1, sent_at=now)
        state.recent.trigger_source = "exhausted at the start, says the throttling manager"
        _count_incident(scope, now)
        state.apply(scope)


def good(scope: Scope, now: float, *, is_probe: bool, was_refused: bool) -> bool:
    """Record a good response, a probe if it was granted after the last incident. Returns True if that moved a limit."""
    state: ScopeState = scope.state
    state.recent.good_at = now
    if was_refused:
        state.recent.passed_at = now
    state.recent.failure_timer = None
    state.recent.refused = ""
    backoff = state.backoff
    if backoff is not None:
        state.backoff = backoff.answered(state.policy.backoff, state.base(scope), now, is_probe=is_probe)
    if state.backoff is None and state.rampup is not None and state.rampup.has_fallen_back:
        state.rampup.take_back()
    return backoff is not None and state.apply(scope)


def adjust(scope: Scope, outcome: Outcome, *, is_trigger: bool, debug: bool) -> bool:
    """Adjust AutoThrottle's delay to the latency of a response. Returns True if that moved a limit."""
    state: ScopeState = scope.state
    auto, rule, response, latency = state.auto, state.policy.autothrottle, outcome.response, outcome.latency
    if auto is None or rule is None or response is None or latency is None or state.rampup is not None:
        return False
    if outcome.request.meta_get("autothrottle_dont_adjust_delay"):
        return False
    state.auto = rule.adjusted(auto, latency, is_healthy=response.status == 200 and not is_trigger)
    if debug:
        logger.info(
            "slot: %s | conc: %d | latency: %.0f ms, last %.0f ms | target: %.0f ms | delay: %.0f -> %.0f ms | "
            "size: %d bytes",
            scope.id, scope.traffic.in_flight, latency * 1000, state.last_latency * 1000,
            rule.target_delay(latency) * 1000, auto * 1000, state.auto * 1000, body_bytes(response),
        )  # fmt: skip
    state.last_latency = latency
    return state.auto != auto and state.apply(scope)


def describe(outcome: Outcome) -> str:
    """Describe an outcome in a few words: "429 of https://a.example/"."""
    url = without_passwords(outcome.request.url)
    if outcome.response is not None:
        return f"{outcome.response.status} of {url}"
    return f"{type(outcome.error).__name__} of {url}"
