"""The effect of one outcome on the scopes of its request.

The order is fixed, and each part changes its own field only:

1. windows that are over take effect (``ScopeState.settle``);
2. the quota is corrected by what was really consumed;
3. a trigger counts towards its incident, and rampup or backoff takes its step; or a good answer is noted;
4. holds: nothing before the backoff's delay, nothing before what a header asks for;
5. AutoThrottle adjusts its delay;
6. the parts are put together (``ScopeState.apply``).

**Retries** (B20). Backing off loses nothing: a refusal is the scope's affair, not the request's, so a trigger is sent
again, whatever its status; only a page that came (2xx, 3xx) is kept, even if a manager takes it for a trigger. An
answer that says when to come back never counts as a retry. Any other trigger counts only if the scope is healthy, that
is, if it gave a good answer since this request was refused last. The first refusal may be the first sign of an outage,
so it is counted with the second one, when that shows that it was not. So one bad page on a healthy host ends after its
retries, and an outage ends no request. A scope that never gave a whole answer and refuses connections, or does not
speak HTTP, is not in an outage: it does not exist.

A page that failed on a healthy host may be all that is left to send, and then no good answer can come any more. Its
further refusals count as long as it fails *alone*: no other request of the scope was refused since its last good
answer, except those that are known to fail by themselves. An answer that broke off came from a host that exists, so it
is the page's own fault as soon as it broke off twice with no other request refused.

A 429, or a refusal with a time in it, is never a retry (R12), and still a path may answer nothing else for ever. On a
host that refuses as a whole the others are not served meanwhile; under a rate limit a refused request is served later.
So each request counts its refusals of that kind: one counts if the scope gave a good answer since the one before (or,
once that was so, if it is refused alone); the count starts again when a request that had been refused is answered well.
After seven it is *hopeless*, and ends with its last answer.

**Scopes that were given up** (B20): their pending requests end, a later request starts afresh. The scheduler refuses
what is pending: it asks about each request before it grants it, which takes no place and no time. A request that is
admitted afterwards carries the instant in its notes, and so is known to be a later one. Some pending requests may wait
for a time of their own, so a scope stays listed: the last ten thousand do.

Length: the parts change one state in one order, which is to be read at once.
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
from trawl.throttling.hints import told_by
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
    "lengthened",
    "passed_by",
    "refused_through_proxy",
    "step_at_start",
    "tell",
    "trigger",
]

SEVERAL = "*"
"""In place of the one request that was refused: there was more than one."""

TOO_MANY_REQUESTS = 429

MAX_REFUSALS = 7  # in a row: with the pace halved at each, two minutes from 1 s on

_KEPT = range(200, 400)


class HasScopes(Protocol):
    """A lane, as the throttle sees it."""

    @property
    def scopes(self) -> Sequence[Scope]:
        """The scopes of its requests, sorted by id."""


class Granted(Protocol):
    """A request from the moment it may wait to its end, as the throttle sees it: :class:`trawl.scheduler.Grant`."""

    @property
    def request(self) -> Any:
        """The request."""

    @property
    def scopes(self) -> ScopeAmounts:
        """The ids of its scopes, sorted, each with its expected amount (None: 1.0)."""

    @property
    def lane(self) -> HasScopes | None:
        """The lane it is or was in; None: it was in none yet."""

    @property
    def is_exempt(self) -> bool:
        """True if it takes no scope (``dont_throttle``)."""

    @property
    def steps(self) -> Sequence[int]:
        """The backoff step of each of its scopes when it was granted."""

    @property
    def granted_at(self) -> float:
        """When it was granted, on the run clock."""

    @property
    def sent_at(self) -> float | None:
        """When it went to the wire; None: it did not, or not yet."""

    @property
    def held_by(self) -> tuple[Scope, str] | None:
        """Which of its scopes opened last, and the limit; None: it has at most one."""

    @property
    def left_by(self) -> Reason | None:
        """Why it was left though its scopes were open; None: it was not."""


def judge(
    grant: Granted,
    outcome: Outcome,
    states: Sequence[ScopeState],
    signals: Iterable[BackoffSignal],
    *,
    now: float,
    utc: datetime,
) -> None:
    """Set ``is_trigger``, ``is_excused`` and ``is_hopeless`` of an outcome. Notes the refusal with the request.

    Args:
        grant: The request.
        outcome: Its outcome.
        states: Those of the scopes for which it is a trigger, as they were before it.
        signals: The meaning of the outcome for its scopes.
        now: The instant.
        utc: The same in wall time.
    """
    response, error = outcome.response, outcome.error
    if not states or (response is not None and response.status in _KEPT):
        return
    # A refused certificate or an unknown scheme is the same at the next try, outage or not.
    if error is not None and not getattr(error, "is_retryable", False):
        return
    outcome.is_trigger = True
    refused_utc = notes_of(grant.request).refused_at
    refused_at = None if refused_utc is None else now - max(0.0, utc.timestamp() - refused_utc)
    _note(grant, outcome, refused_at=utc.timestamp())
    is_retry, refusals = _asked_manager(grant, outcome, states), 0
    if is_retry is None:
        wanted = max([signal.delay or 0.0 for signal in signals if signal.is_trigger], default=0.0)
        if wanted or (response is not None and response.status == TOO_MANY_REQUESTS):
            is_retry, refusals = False, _refusals(grant, states, refused_at, now, now + wanted)
            _note(grant, outcome, refusals=refusals)
        else:
            is_retry = _counts(grant, outcome, states, refused_at)
    outcome.is_hopeless = refusals >= MAX_REFUSALS
    outcome.is_excused = not is_retry and not outcome.is_hopeless
    is_known = refusals > 1 or notes_of(grant.request).is_bad_page  # to be refused while others are served
    if not is_known:
        name = _name(grant)
        for state in states:
            state.refused = name if state.refused in ("", name) else SEVERAL


def passed_by(grant: Granted, others: Mapping[str, BackoffSignal] | None) -> list[str]:
    """Return the scopes that a refused request has to wait for, because it did not take them.

    Args:
        grant: The request.
        others: The meaning of the outcome for scopes that are not its own.
    """
    ids = [id for id, signal in (others or {}).items() if signal.is_trigger]
    return [*ids, *(id for id, _ in grant.scopes)] if grant.is_exempt else ids


def _asked_manager(grant: Granted, outcome: Outcome, states: Sequence[ScopeState]) -> bool | None:
    """Ask the scopes' managers if it is a retry; None: none of them says."""
    for state in states:
        if state.manager is None:
            continue
        answer = call_user(
            state.manager, "is_retry", state.policy.failed, grant.request, outcome.response, outcome.error
        )
        if answer is not None:
            return bool(answer)
    return None


def _counts(grant: Granted, outcome: Outcome, states: Sequence[ScopeState], refused_at: float | None) -> bool:
    error = outcome.error
    is_not_there = isinstance(error, ConnectFailed | ConnectTimeout | ResponseBroken)
    if is_not_there and not any(each.has_answered for each in states):
        return True
    notes = notes_of(grant.request)
    is_known, had_failed = notes.is_bad_page, notes.is_uncounted
    are_others_served = refused_at is not None and all(state.good_at > refused_at for state in states)
    is_own_fault = is_known or (had_failed and isinstance(error, ResponseBroken))
    if not are_others_served and not (is_own_fault and _is_alone(grant, states)):
        _note(grant, outcome, is_uncounted=True)
        return False
    if not is_known:
        _note(grant, outcome, is_bad_page=True)
        if had_failed:  # its first failure; a 429 before it stays excused
            times = grant.request.meta_get("retry_times", 0) + 1
            for request in _requests(grant, outcome):
                request.meta["retry_times"] = times
    return True


def _refusals(grant: Granted, states: Sequence[ScopeState], refused_at: float | None, now: float, until: float) -> int:
    """Count the times that it was told to come back later while others were served, this one included.

    Not counted is a refusal before the time that its scope's server has named, because the wait was cut, if it names
    the same time again: it says nothing new.

    Args:
        grant: The request.
        states: The states of the scopes that refuse it.
        refused_at: The instant of its last refusal; None if this is the first.
        now: The instant.
        until: The instant that this refusal names; ``now`` if it names none.
    """
    count = notes_of(grant.request).refusals
    if refused_at is None or not count or any(state.passed_at > refused_at for state in states):
        return 1
    if until > now and any(each.failure_timer and each.failure_timer.is_early(now, until) for each in states):
        return count
    are_others_served = all(state.good_at > refused_at for state in states)
    return count + (are_others_served or (count > 1 and _is_alone(grant, states)))


def _is_alone(grant: Granted, states: Sequence[ScopeState]) -> bool:
    """Return True if its scopes refused no other request since their last good answers, except for their own fault."""
    name = _name(grant)
    return all(state.refused in ("", name) for state in states)


def _name(grant: Granted) -> str:
    return f"{grant.request.method} {grant.request.url}"


def _note(grant: Granted, outcome: Outcome, **changes: object) -> None:
    for request in _requests(grant, outcome):
        note(request, **changes)


def _requests(grant: Granted, outcome: Outcome) -> list[Request]:
    """Return the request as it was queued, and as it was sent."""
    queued, sent = grant.request, outcome.request
    return [queued] if sent is queued else [queued, sent]


_MAX_LISTED = 10_000  # scopes listed


class GivenUpScopes:
    """The scopes of one crawl that were given up, whose pending requests are refused.

    Attributes:
        at_utc: When each scope was given up, in epoch seconds. Empty in almost every crawl: test it before a call.
    """

    __slots__ = ("_failures", "at_utc")

    def __init__(self) -> None:
        self.at_utc: dict[str, float] = {}
        self._failures: dict[str, HostGivenUp] = {}

    def __contains__(self, id: str) -> bool:
        return id in self.at_utc

    def add(self, id: str, utc: datetime, failure: HostGivenUp) -> None:
        """Give a scope up at ``utc``, for ``failure``."""
        self.forget(id)
        self.at_utc[id] = utc.timestamp()
        self._failures[id] = failure
        if len(self.at_utc) > _MAX_LISTED:
            self.forget(next(iter(self.at_utc)))

    def forget(self, id: str) -> None:
        """Forget that a scope was given up."""
        self.at_utc.pop(id, None)
        self._failures.pop(id, None)

    def restore(self, at_utc: Mapping[str, float], utc: datetime) -> None:
        """Go on refusing what was pending when these scopes were given up in an earlier run, which is before ``utc``.

        Also where the machine's clock was set back since: what is admitted now comes later all the same.
        """
        now = utc.timestamp()
        self.at_utc.update({id: min(at, now) for id, at in at_utc.items()})

    def admit(self, request: Request, amounts: ScopeAmounts, utc: datetime) -> None:
        """Mark a request that comes after its scope was given up; one that was refused, and is sent again, does not."""
        given_up = max([self.at_utc[id] for id, _ in amounts if id in self.at_utc], default=math.inf)
        refused_at = notes_of(request).refused_at
        if given_up < math.inf and (refused_at is None or refused_at < given_up):
            note(request, admitted_at=utc.timestamp())

    def refuses(self, grant: Granted) -> bool:
        """Return True if a request was pending when one of its scopes was given up."""
        return self._refusing(grant) is not None

    def failure_of(self, grant: Granted) -> HostGivenUp:
        """Return why the scope was given up that refuses a request, without details if they are not known."""
        return self._failures.get(self._refusing(grant) or "") or HostGivenUp(HostGivenUp.WORDS)

    def _refusing(self, grant: Granted) -> str | None:
        for id, _ in grant.scopes:
            at_utc = self.at_utc.get(id)
            if at_utc is not None:
                admitted_at = notes_of(grant.request).admitted_at
                if admitted_at is None or admitted_at < at_utc:
                    return id
        return None


_MAX_BODY = 16 * 1024
"""Bytes of a body that errors keep: many hosts may be down at once."""


def _last(outcome: Outcome) -> tuple[Response | None, Exception | None]:
    """Return the response and the error of an outcome, without a large body."""
    response = outcome.response
    if response is not None and body_bytes(response) > _MAX_BODY:
        response = response.replace(body=b"")
    return response, outcome.error


def give_up_error(words: str, response: Response | None, error: Exception | None) -> HostGivenUp:
    """Return the error for a host that is given up, with its last response and cause.

    Args:
        words: The start of the message; the last cause is added.
        response: The last response.
        error: The error of the last attempt, if that got no response.
    """
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

_BELIEVABLE = 366 * 86_400.0
"""Seconds. A wish beyond a year is a mistake, and capping it is not worth a line in the log."""


def correct(scope: Scope, signal: BackoffSignal, now: float, *, expected: float | None, sent_at: float | None) -> bool:
    """Correct the quota of ``scope`` (F04). Returns True if there was anything to correct.

    Args:
        scope: The scope.
        signal: The meaning of the answer for it.
        now: The instant.
        expected: The amount charged at the send; None: nothing was.
        sent_at: The instant of the send.
    """
    if signal.consumed is not None:
        difference = signal.consumed - (expected or 0.0)
        scope.state.used += difference
        scope.correct(difference, now, sent_at)
    if signal.remaining is not None:
        scope.set_remaining(signal.remaining, now)
    return signal.consumed is not None or signal.remaining is not None


def trigger(
    scope: Scope,
    state: ScopeState,
    signal: BackoffSignal,
    outcome: Outcome,
    now: float,
    *,
    step: int | None,
    granted_at: float,
    factor: float,
    advice: Callable[[Outcome], str],
) -> None:
    """Apply a trigger to a scope.

    Args:
        scope: The scope.
        state: Its state.
        signal: The meaning of the answer for it.
        outcome: The answer.
        now: The instant.
        step: The scope's step when the request was granted; None where it did not take the scope.
        granted_at: The instant of the grant.
        factor: Multiplies a hold that a header asks for, for jitter; at least 1.
        advice: Returns what the first line of the log on backing off ends with.
    """
    # Granted under the step that is in force: so that step did not suffice (B19).
    is_new = step == scope.step if step is not None else granted_at >= state.escalated_at
    state.triggers += 1
    state.triggered_at = now
    if state.failure_timer is None:
        state.failure_timer = FailureTimer(now, lead=max(0.0, now - granted_at))
    failure_timer = state.failure_timer
    is_robots = outcome.request.url.endswith("/robots.txt")  # it is asked again at a pace of its own, which counts
    failure_timer.refused(granted_at, is_paced=is_robots)
    failure_timer.last = _last(outcome)
    what = describe(outcome)
    if is_new:
        state.trigger_source = what
    # A 503 may say when to come back in an outage, too; if that is waited for and it goes on, it was one. A 429 speaks
    # of a limit, unless what it says was waited for several times, and for longer than limits take.
    waits = failure_timer.unanswered_waits(now)
    is_limit = outcome.response is not None and outcome.response.status == TOO_MANY_REQUESTS and waits < OUTAGE
    rampup = state.rampup
    if is_new and rampup is not None and state.backoff is not None and state.backoff.outage is not None:
        rampup.take_back(state.backoff.delay)  # refused on the way back: not an outage
        state.backoff = None
    if rampup is not None and not rampup.has_fallen_back:
        if is_new:
            before = rampup.limits
            hold = min(signal.delay or 0.0, state.policy.backoff.max_delay)
            if rampup.triggered(now, is_limit=is_limit, waits=waits, hold=hold):
                state.steer(rampup.triggers, before)
            if state.is_outage:
                state.fall_back(scope, now)
            else:
                _count_incident(scope, state, now)
        state.apply(scope)
        if outcome.sent_at is None or state.is_outage:  # no send, from which the delay could count; or B03
            until = now + scope.interval()
            scope.hold(until, Reason(scope.id, "delay", until, f"rampup: {what}"))
    else:
        _back_off(scope, state, outcome, now, is_new=is_new, is_limit=is_limit, waits=waits, advice=advice)
    if signal.delay:
        _obey(scope, state, failure_timer, signal, now, what, factor)
    _put_off(scope, state, failure_timer, now)
    failure_timer.quiet(now + scope.quiet_for(now))


def refused_through_proxy(state: ScopeState, signal: BackoffSignal, outcome: Outcome, now: float) -> None:
    """Note on a site that it refused a request through one proxy of a list, whose own scope backs off (B20)."""
    state.triggers += 1
    state.triggered_at, state.trigger_source = now, describe(outcome)
    timer = state.failure_timer = state.failure_timer or FailureTimer(now)
    timer.refused(now, is_paced=True)
    timer.last = _last(outcome)
    timer.quiet(now)
    if signal.delay:
        _count_named(timer, signal.delay, min(signal.delay, state.policy.backoff.max_delay), now)


def _put_off(scope: Scope, state: ScopeState, failure_timer: FailureTimer, now: float) -> None:
    """Hold the scope until the end of the time, if that is the time of the last try (B20)."""
    backoff, until = state.backoff, max(now, scope.held_until)
    if backoff is None:  # rampup moves it: its falls double the delay at the most
        until = max(until, scope.last_sent + scope.interval())
        following, mover = 2.0 * scope.longest, "rampup"
    else:
        strategy, mover = state.policy.backoff, f"backoff step {backoff.steps}"
        following = Backoff.slower(strategy, backoff.delay, state.base(scope).delay)  # a guess: no other is asked
        following *= max(1.0, strategy.jitter[1])
    last = failure_timer.put_off(until, following, state.policy.give_up_after)
    if last > until:
        source = f"{mover}: {state.trigger_source}; the last try before it is given up"
        scope.hold(last, Reason(scope.id, "backoff", last, source))


def _count_incident(scope: Scope, state: ScopeState, now: float) -> None:
    scope.step += 1
    state.steps += 1
    state.escalated_at = now


def _back_off(
    scope: Scope,
    state: ScopeState,
    outcome: Outcome,
    now: float,
    *,
    is_new: bool,
    is_limit: bool,
    waits: int,
    advice: Callable[[Outcome], str],
) -> None:
    base = state.base(scope)
    backoff = state.backoff or BackoffState.at(base)
    if is_new:
        sent_at = outcome.sent_at if outcome.sent_at is not None else outcome.started_at
        strategy = state.policy.backoff
        backoff = backoff.escalated(
            strategy,
            base,
            now,
            in_flight=scope.in_flight,
            sent_at=sent_at,
            is_limit=is_limit,
            waits=waits,
            is_outage=state.is_outage,
        )
        _count_incident(scope, state, now)
        # The first step of a trouble is news; but the failure of one page, which is told with the page, is no trouble.
        news = 1 if outcome.error is None else 2
        level = logging.WARNING if backoff.steps == news else logging.INFO
        logger.log(
            level,
            "%s: backing off, step %d: delay %.3g s, concurrency %g, after %s%s",
            scope.id, backoff.steps, backoff.delay, backoff.concurrency, outcome.error or state.trigger_source,
            advice(outcome) if logger.isEnabledFor(level) else "",
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
        source = f"backoff step {backoff.steps}: {state.trigger_source}"
        scope.hold(now + quiet, Reason(scope.id, "backoff", now + quiet, source))


def _obey(
    scope: Scope,
    state: ScopeState,
    failure_timer: FailureTimer,
    signal: BackoffSignal,
    now: float,
    what: str,
    factor: float,
) -> None:
    """Hold the scope for what a header (or a manager) asks, capped (D01, D05)."""
    wanted, cap = signal.delay or 0.0, state.policy.backoff.max_delay
    delay = min(wanted, cap) * factor
    header = signal.header or "the throttling manager"
    source = f"{header}, {what}"
    if wanted > cap:
        source = f"{source}; capped at {cap:g} s"
        if wanted <= _BELIEVABLE:
            logger.info("%s: %s asks for %g s after %s; capped at %g s", scope.id, header, wanted, what, cap)
    _count_named(failure_timer, wanted, delay, now)
    state.hints += 1
    state.last_hint = source
    logger.debug("%s: nothing is sent for %.3g s: %s", scope.id, delay, source)
    scope.hold(now + delay, Reason(scope.id, "hint", now + delay, source))


def _count_named(failure_timer: FailureTimer, wanted: float, delay: float, now: float) -> None:
    """Count the wait that a server asks for: what is obeyed in full, and what is cut up to a day (B20)."""
    if wanted <= _BELIEVABLE:
        failure_timer.asked(now, now + max(delay, min(wanted, LONGEST_NAMED)), held_until=now + delay)


MAX_DOUBTS = 3
"""Answers after which a limit that is told and does not hold is no longer believed."""


def tell(scope: Scope, state: ScopeState, outcome: Outcome, now: float, utc: datetime, cap: float) -> bool:
    """Obey the limit that the headers of a good answer tell. Returns True if that moved a limit.

    What was asked before the answer that counts is old news. A wish that was cut to ``cap`` seconds has been passed by:
    if the server goes on to answer and to say the same, its limit is not one.
    """
    response, sent_at, before = outcome.response, outcome.sent_at, state.told
    if response is None or sent_at is None or (before is not None and sent_at < before.sent_at):
        return False
    others = max(0, scope.in_flight - 1)
    found = told_by(response.headers, utc, others)
    if found is None or (before is not None and before.doubts >= MAX_DOUBTS):
        return False
    (window, header), until, capped = found, now + found[0].reset, None
    if before is None and not window.reset:  # "0 until 0": said by servers that have no limit
        return False
    if before is not None and now < before.until <= until < before.until + 1.0:
        until = before.until  # told in whole seconds, so the earlier one of the same window is nearer to it
    window = attrs.evolve(window, reset=max(until - now, 0.0) or 1.0)
    wanted, remaining, source = window.interval(others), window.remaining or 0, f"{header}, {describe(outcome)}"
    doubts = 0 if before is None else before.doubts
    if wanted > cap:
        source, capped = f"{source}; capped at {cap:g} s (THROTTLING_RATELIMIT_MAX_DELAY)", remaining
        if before is not None and before.capped is not None and sent_at > before.heard_at:
            doubts += remaining >= before.capped
    delay = min(wanted, cap)
    if remaining <= others:  # from this answer, not from the send before it
        delay += max(0.0, now - scope.last_sent)
    if doubts >= MAX_DOUBTS:
        logger.info("%s: what it says remains is not believed any more, because it does not hold: %s", scope.id, source)
        delay, until = 0.0, math.inf
    state.told = ServerLimit(delay, max(until, now + 1.0), source, sent_at, now, capped, doubts)
    was_slowed = scope.delay_limit == "hint"
    has_moved = state.apply(scope)
    if scope.delay_limit == "hint":
        state.last_hint = source
        state.hints += not was_slowed
    return has_moved


def lengthened(scope: Scope, state: ScopeState, seed: int | str) -> float:
    """Return the factor for a hold that a header asks for: jitter lengthens it, never shortens (B06, R10)."""
    spread = state.policy.backoff.jitter[1] - 1.0
    if spread <= 0.0:
        return 1.0
    return 1.0 + spread * random.Random(f"{seed}:{scope.id}:hint {state.hints}").random()


def step_at_start(scope: Scope, state: ScopeState, signal: BackoffSignal, now: float) -> None:
    """Apply what the manager says before the first send: a delay only holds, exhausted takes one step (E10)."""
    if signal.delay:
        source = "get_initial_backoff of the throttling manager"
        logger.debug("%s: nothing is sent for %.3g s: %s", scope.id, signal.delay, source)
        scope.hold(now + signal.delay, Reason(scope.id, "hint", now + signal.delay, source))
    elif signal.is_trigger:
        base = state.base(scope)
        backoff = state.backoff or BackoffState.at(base)
        state.backoff = backoff.escalated(state.policy.backoff, base, now, in_flight=1, sent_at=now)
        state.trigger_source = "exhausted at the start, says the throttling manager"
        _count_incident(scope, state, now)
        state.apply(scope)


def good(scope: Scope, state: ScopeState, now: float, *, is_probe: bool, was_refused: bool = False) -> bool:
    """Note a good answer. Returns True if that moved a limit.

    Args:
        scope: The scope.
        state: Its state.
        now: The instant.
        is_probe: True if its request was granted since the last incident.
        was_refused: True if the request had been refused before.
    """
    state.good_at = now
    if was_refused:
        state.passed_at = now
    state.failure_timer = None
    state.refused = ""
    backoff = state.backoff
    if backoff is not None:
        state.backoff = backoff.answered(state.policy.backoff, state.base(scope), now, is_probe=is_probe)
    if state.backoff is None and state.rampup is not None and state.rampup.has_fallen_back:
        state.rampup.take_back()
    return backoff is not None and state.apply(scope)


def adjust(scope: Scope, state: ScopeState, outcome: Outcome, *, is_trigger: bool, debug: bool) -> bool:
    """Let AutoThrottle follow the latency of an answer. Returns True if its delay moved."""
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
            scope.id, scope.in_flight, latency * 1000, state.last_latency * 1000, rule.target_delay(latency) * 1000,
            auto * 1000, state.auto * 1000, body_bytes(response),
        )  # fmt: skip
    state.last_latency = latency
    return state.auto != auto


def describe(outcome: Outcome) -> str:
    """Describe an answer in a few words: "429 of https://a.example/"."""
    url = without_passwords(outcome.request.url)
    if outcome.response is not None:
        return f"{outcome.response.status} of {url}"
    return f"{type(outcome.error).__name__} of {url}"
