"""Shared scopes: which scopes are shared, the queue of requests for them, and what one process knows of them.

Theory of operation. In a job that several processes work on, each host belongs to one process, and so do the scopes
that look like that host. Several processes need all other scopes (a proxy, an account, an API key) and scopes declared
with ``shared``. The job's store grants them, all shared scopes of a request at once. A process that requests them gets
a *token*, good for one send, or waits in a queue (:class:`SharedScopeClient`). The process also has its own object for
each shared scope. It spaces its own sends exactly, knows why they were refused, and backs off by the usual policies.
The store applies the resulting limits to all processes. So a shared scope is never faster than one process alone would
allow::

    here: own sends, jitter, lead, backoff ──► limits in force ──► store: all sends, places, quota ──► tokens
                       ▲                                             │
                       └──────── what another process has learned ◄──┘

The state of the policies is written with a version. A process that has not read the latest version adopts it, unless
its own state is slower and newer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Protocol

import attrs
import msgspec

from trawl.errors import SettingsError
from trawl.throttling.limits import TABLE, Limits
from trawl.throttling.policy import ScopePolicy, ScopeState
from trawl.throttling.reasons import Reason
from trawl.throttling.scope import Scope
from trawl.throttling.snapshot import SharedSnapshot

__all__ = [
    "SharedLimits",
    "SharedScope",
    "SharedScopeClient",
    "Token",
    "adopt",
    "can_share",
    "check_shared",
    "is_slower",
    "shared_limits",
]

_REMOVED: dict[str, Any] = {"quota": inf} | {row.key: row.none for row in TABLE if row.instead is not None}
"""The limits that this process does not apply to a shared scope."""

_RECENT = 2.0
"""Seconds. If a process was refused this shortly before another wrote its state, the other did not know of the
refusal."""


@attrs.frozen
class Token:
    """The right to send one request in all shared scopes that it was requested for.

    Attributes:
        number: The number of the request for the token.
        at: Event loop time at which it becomes valid, never earlier than the store granted.
        until: Event loop time until which it is valid.
    """

    number: int
    at: float
    until: float


@attrs.frozen(kw_only=True)
class SharedLimits:
    """The effective limits of a shared scope for all processes.

    Attributes:
        concurrency: Maximum requests in flight; ``inf`` for no limit.
        delay: Seconds between two sends, before jitter.
        shortest: Lower bound of every interval, in seconds, for any draw.
        hold: Seconds for which nothing is sent.
        quota: Maximum amount per window; ``inf`` for no quota.
        window: Its length, in seconds.
        learned: The state of the policies, for :meth:`Throttle.adopt <trawl.throttling.throttle.Throttle.adopt>`.
    """

    concurrency: float
    delay: float
    shortest: float
    hold: float
    quota: float
    window: float
    learned: bytes


class SharedScopeClient(Protocol):
    """Grants shared scopes. No method waits: changes go to the store with the next round trip.

    Times are event loop times of this process, in seconds.
    """

    def listen(self, came: Callable[[Token], None], adopt: Callable[[str, bytes, float], None]) -> None:
        """Set the receivers of tokens, and of scope states from other processes (id, state, age).

        Call it once, before anything else.
        """

    def ask(self, scopes: Sequence[tuple[str, float]], priority: int, lead: float = 0.0) -> int:
        """Request a token for shared scopes. Returns the number of the request.

        Args:
            scopes: Their ids and the amounts that the request will use.
            priority: The request's priority.
            lead: Seconds from the grant to the send. Several tokens are granted ahead to compensate for it.
        """

    def drop(self, number: int) -> None:
        """Leave the queue, or release an unused token."""

    def sent(self, number: int, now: float, intervals: Sequence[float]) -> None:
        """Record the send of a token's request at ``now``, and how long each scope rests after it."""

    def written(self, number: int, now: float) -> None:
        """Record the end of that request's write; its scopes rest from ``now``."""

    def given_back(self, number: int) -> None:
        """Release the places of a used token."""

    def publish(self, scope_id: str, limits: SharedLimits, *, is_new: bool = False) -> None:
        """Apply limits for all processes. If another process has changed them since, adopt its state instead.

        Args:
            scope_id: The scope.
            limits: Its limits.
            is_new: True if this process did not know the scope before. Then the state of other processes is kept.
        """

    def correct(self, scope_id: str, difference: float) -> None:
        """Correct the spent amount of a scope's quota by ``difference`` (negative: a refund)."""

    def set_remaining(self, scope_id: str, remaining: float) -> None:
        """Set the remaining quota of a scope in the current window."""

    def why(self, number: int) -> Reason:
        """Return the reason why the request waits, as last reported by the store."""

    async def run(self) -> None:
        """Exchange messages with the store until cancelled. A checkpoint."""


class SharedScope(Scope):
    """A scope that other processes use too, as this process knows it.

    Only the store counts its quota.

    Args:
        id: Its name.
        limits: The configured limits.
        line: Grants the scope.
        seed: The run's seed.

    Attributes:
        tokens: The tokens of its slots that are in use.
    """

    __slots__ = ("_line", "tokens")

    def __init__(self, id: str, limits: Limits, line: SharedScopeClient, *, seed: int | str = 0) -> None:
        super().__init__(id, limits, seed=seed)
        self.tokens: dict[int, Token] = {}
        self.traffic.caution = 0.0  # a token is valid only briefly, so responses of user code wait for one
        self._line = line

    @property
    def is_shared(self) -> bool:
        """True, because other processes use it too."""
        return True

    def apply_limits(self, limits: Limits, now: float = -inf) -> None:
        """Apply ``limits`` without the quota, which the store counts, and without the limits that it can't have.

        The delay per slot that all hosts have by default becomes a delay.
        """
        delay = max(limits.delay, limits.delay_per_slot)
        super().apply_limits(attrs.evolve(limits, delay=delay, **_REMOVED), now)

    def rest(self) -> float:
        """Return the seconds after the latest send in which the store grants nothing: a rate's grid, or an interval.

        The store keeps the grid of a rate, and the process that has a token adds the offset
        (:meth:`Rate.offset <trawl.throttling.limit.Rate.offset>`).
        """
        return self.interval() - self.spacing.offset(self.traffic)

    def opens_at(self, slot: int, now: float, amount: float = 1.0) -> float:
        """Return when the request in ``slot`` may be written, checked again before the send. It needs a valid token."""
        at, token = super().opens_at(slot, now, amount), self.tokens.get(slot)
        if token is None:
            return at
        return inf if token.until <= now else max(at, token.at)

    def prepares_at(self, now: float, amount: float = 1.0) -> float:
        """Return when a page of ``amount`` may be prepared. At most one page waits for its token, perhaps for long."""
        return inf if not self.is_spaced and self.traffic.prepared > 0 else super().prepares_at(now, amount)

    def responded(self) -> None:
        """Do nothing, because responses of user code wait for a token."""

    def delays(self, now: float, until: float, amount: float, wanted: float, *, prepares: bool = False) -> bool:
        """Return True if a request of ``amount`` could delay one of ``wanted`` that has a token, or is to be prepared.

        A page that is prepared in a scope without a delay may delay another one until its own token comes.
        """
        return (prepares and not self.is_spaced) or super().delays(now, until, amount, wanted, prepares=prepares)

    @property
    def counts_sends(self) -> bool:
        """True, because a token is valid for one send."""
        return True

    def written(self, slot: int, sent_at: float, now: float) -> None:
        """Count the send of ``slot`` at ``sent_at`` from ``now``, the end of its write."""
        super().written(slot, sent_at, now)
        token = self.tokens.get(slot)
        if token is not None:
            self._line.written(token.number, now)

    def correct(self, difference: float, now: float, sent_at: float | None = None) -> None:
        """Correct the quota by ``difference``."""
        self._line.correct(self.id, difference)

    def set_remaining(self, remaining: float, now: float) -> None:
        """Set the remaining quota."""
        self._line.set_remaining(self.id, remaining)


def check_shared(policy: ScopePolicy, *, path: str) -> None:
    """Check that a shared scope has no unsupported limit.

    Raises:
        SettingsError: If its configuration or the settings require knowledge that only one process has.
    """
    config, limits = policy.config, policy.limits
    wrong = ""
    if policy.rampup is not None:
        wrong = "'rampup'"
    elif policy.autothrottle is not None:
        wrong = "AUTOTHROTTLE_ENABLED: give it a 'delay' of its own"
    elif limits.sliding and limits.quota < inf:
        wrong = "'sliding'"
    for row in TABLE:
        # A delay per slot that is the default of all hosts is applied as a delay.
        number = config.get(row.key, row.none) if row.none == 0.0 else getattr(limits, row.key)
        if row.instead is not None and number != row.none:
            wrong = wrong or f"{row.key!r}: {row.instead}"
    if wrong:
        words = f"{path} is needed by several processes of this job, and such a scope can't have {wrong}"
        raise SettingsError(words, path)


def can_share(policy: ScopePolicy) -> bool:
    """Return True if several processes can share a scope with this policy."""
    try:
        check_shared(policy, path="")
    except SettingsError:
        return False
    return True


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SharedSnapshot).decode


def shared_limits(scope: Scope, now: float) -> SharedLimits:
    """Return the effective limits of a scope, which apply to all processes."""
    state: ScopeState = scope.state
    configured, effective = state.policy.limits, scope.effective
    backoff, hold, reason = state.backoff, max(0.0, scope.held.until - now), scope.held.because
    learned = SharedSnapshot(
        backoff=None if backoff is None else backoff.moved(lambda at: at - now),
        step=scope.step,
        source=state.recent.trigger_source,
        hold=hold,
        hold_limit=reason.limit if reason is not None else "hint",
        hold_source=reason.source if reason is not None else "",
    )
    return SharedLimits(
        concurrency=max(1.0, effective.concurrency),
        delay=effective.delay,
        shortest=effective.shortest,
        hold=hold,
        quota=configured.quota,
        window=configured.window,
        learned=_encode(learned),
    )


def is_slower(scope: Scope, learned: bytes, now: float) -> bool:
    """Return True if this process was refused around or after the time of another's state, and is slower because of it.

    Raises:
        ValueError: If the state can't be read.
    """
    state: ScopeState = scope.state
    theirs = _decode(learned).backoff
    if state.backoff is None or state.recent.triggered_at < now - _RECENT:
        return False
    return theirs is None or state.backoff.delay > theirs.delay or state.backoff.concurrency < theirs.concurrency


def adopt(scope: Scope, learned: bytes, now: float) -> None:
    """Adopt the state that another process had for a scope at ``now``.

    Raises:
        ValueError: If the state can't be read.
    """
    state: ScopeState = scope.state
    theirs = _decode(learned)
    scope.step = max(scope.step, theirs.step)
    state.recent.trigger_source = theirs.source
    state.backoff = None
    if theirs.backoff is not None:
        state.backoff = theirs.backoff.moved(lambda at: at + now)
        state.recent.escalated_at = state.recent.triggered_at = state.backoff.quiet_from
    if theirs.hold > 0.0:
        limit: Any = theirs.hold_limit
        scope.hold(now + theirs.hold, Reason(scope.id, limit, now + theirs.hold, theirs.hold_source))
    state.apply(scope)
