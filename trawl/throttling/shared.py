"""Shared scopes: which they are, the line of requests that want them, and what one process knows of them.

Theory of operation. In a job that several processes work on, each host is one process's alone, and so are the scopes
that look like that host. All others, a proxy, an account, an API key, and those declared with ``shared``, are needed by
several: the job's store grants them, all shared scopes of a request at once. A process that asks gets a *token*, good
for one send, or stands in line (:class:`Line`). The process keeps a scope of its own for each all the same. It spaces
its own sends exactly, knows what they were refused for, and backs off by the same policies as ever; the store only
holds everybody to what they lead to. So a shared scope is never faster than one process alone would let it be::

    here: own sends, jitter, lead, backoff ──► limits in force ──► store: all sends, places, quota ──► tokens
                       ▲                                             │
                       └──────── what another process has learned ◄──┘

What was learned is written with a version: a process that has not read the latest adopts that, unless its own is
slower and newer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Protocol

import attrs
import msgspec

from trawl.errors import SettingsError
from trawl.throttling.limits import Limits
from trawl.throttling.policy import ScopePolicy, ScopeState
from trawl.throttling.reasons import Reason
from trawl.throttling.scope import Scope
from trawl.throttling.snapshot import SharedSnapshot

__all__ = ["Line", "SharedLimits", "SharedScope", "Token", "adopt", "check_shared", "is_slower", "shared_limits"]

MAX_OFFSET = 2.0
"""Seconds. The largest offset from the grid of a rate: a token is good for few seconds."""

_RECENT = 2.0
"""Seconds. A refusal so shortly before what another process has written was not known to it."""


@attrs.frozen
class Token:
    """The right to send one request in all shared scopes that were asked for.

    Attributes:
        number: The number of the ask.
        at: It is good from this instant on: never earlier than the store has said.
        until: ... and until this one.
    """

    number: int
    at: float
    until: float


@attrs.frozen(kw_only=True)
class SharedLimits:
    """The limits of a shared scope that are in force for all processes.

    Attributes:
        concurrency: Requests in flight at most; ``inf`` for no limit.
        delay: Seconds between two sends, before jitter.
        shortest: No interval is shorter than this, in seconds, whatever is drawn.
        hold: Seconds for which nothing is sent.
        quota: What may be spent in a window; ``inf`` for no quota.
        window: Its length, in seconds.
        learned: What the policies have learned, for :meth:`Throttle.adopt <trawl.throttling.throttle.Throttle.adopt>`.
    """

    concurrency: float
    delay: float
    shortest: float
    hold: float
    quota: float
    window: float
    learned: bytes


class Line(Protocol):
    """Grants shared scopes. No method waits: what is told goes to the store with the next round trip.

    Times are instants of the run clock of this process, in seconds.
    """

    def listen(self, came: Callable[[Token], None], adopt: Callable[[str, bytes, float], None]) -> None:
        """Say who is called with a token, and with what another process has learned of a scope: its id, that, its age.

        Call it once, before anything else.
        """
        ...

    def ask(self, scopes: Sequence[tuple[str, float]], priority: int, lead: float = 0.0) -> int:
        """Ask for a token for shared scopes. Returns the number of the ask.

        Args:
            scopes: Their ids, each with the amount that the request is to use.
            priority: Of the request.
            lead: Seconds that it takes to the wire: several tokens that are not sent yet make up for it.
        """
        ...

    def drop(self, number: int) -> None:
        """Leave the line, or give a token back that was not used."""
        ...

    def sent(self, number: int, now: float, intervals: Sequence[float]) -> None:
        """Say that the request of a token went to the wire at ``now``, and how long each scope is to rest after it."""
        ...

    def written(self, number: int, now: float) -> None:
        """Say that the write of that request has ended: its scopes rest from ``now``."""
        ...

    def given_back(self, number: int) -> None:
        """Free the places of a token that was used."""
        ...

    def publish(self, scope_id: str, limits: SharedLimits, *, is_new: bool = False) -> None:
        """Put limits in force for all processes, unless another one has changed them meanwhile: that is adopted.

        Args:
            scope_id: The scope.
            limits: Its limits.
            is_new: This process did not know the scope before: what others have learned of it stands.
        """
        ...

    def correct(self, scope_id: str, difference: float) -> None:
        """Correct what is spent of a scope's quota by ``difference`` (negative: a refund)."""
        ...

    def set_remaining(self, scope_id: str, remaining: float) -> None:
        """Set what is left of a scope's quota in the window that runs."""
        ...

    def why(self, number: int) -> Reason:
        """Explain what the ask waits for, as it was told last."""
        ...

    async def run(self) -> None:
        """Talk with the store, until it is cancelled. A checkpoint."""
        ...


class SharedScope(Scope):
    """A scope that others use too, as this process knows it.

    Its quota is counted in the store alone.

    Args:
        id: Its name.
        limits: The configured limits.
        line: Where it is granted.
        seed: The run's seed.

    Attributes:
        tokens: The tokens of its slots that are in use.
    """

    __slots__ = ("_line", "tokens")

    def __init__(self, id: str, limits: Limits, line: Line, *, seed: int | str = 0) -> None:
        super().__init__(id, limits, seed=seed)
        self.tokens: dict[int, Token] = {}
        self.caution = 0.0  # a token is only good for a moment: what user code responds waits for one
        self._line = line

    def apply_limits(self, limits: Limits, now: float = -inf) -> None:
        """Put ``limits`` in force, a delay per slot as a delay, and without those that the store counts."""
        delay = max(limits.delay, limits.delay_per_slot)
        limits = attrs.evolve(limits, delay=delay, delay_per_slot=0.0, quota=inf, pages=inf)
        super().apply_limits(limits, now)

    def offset(self) -> float:
        """Seconds from the next instant of the grid to its send, as drawn: a token is not good for longer."""
        offset = super().offset()
        return offset and offset * min(1.0, 2.0 * MAX_OFFSET / (self.delay * (self.jitter[1] - self.jitter[0])))

    def rest(self) -> float:
        """Seconds after the latest send for which the store grants nothing: a rate's grid, or the interval as drawn.

        The store keeps the grid of a rate, and the process that has a token adds the offset (:meth:`offset`).
        """
        return self.interval() - self.offset()

    def _lateness(self, late: float) -> float:
        """Return 0.0: others may have sent meanwhile."""
        return 0.0

    def opens_at(self, slot: int, now: float, amount: float = 1.0) -> float:
        """Decide once more, at the wire, when the request in ``slot`` may be written: not without a good token."""
        at, token = super().opens_at(slot, now, amount), self.tokens.get(slot)
        if token is None:
            return at
        return inf if token.until <= now else max(at, token.at)

    def prepares_at(self, now: float, amount: float = 1.0) -> float:
        """Decide when a page of ``amount`` may be prepared: not while one waits for its token, maybe for long."""
        return inf if self.delay <= 0.0 and self.prepared > 0 else super().prepares_at(now, amount)

    def responded(self) -> None:
        """Change nothing: what user code responds waits for a token."""

    def is_tight(self) -> bool:
        """Return False: the store's line says who goes first, and a claim of this process would keep tokens waiting."""
        return False

    @property
    def counts_sends(self) -> bool:
        """True: a token is good for one send."""
        return True

    def written(self, slot: int, sent_at: float, now: float) -> None:
        """Count what ``slot`` sent at ``sent_at`` from ``now``, when its write has ended."""
        super().written(slot, sent_at, now)
        token = self.tokens.get(slot)
        if token is not None:
            self._line.written(token.number, now)

    def correct(self, difference: float, now: float, sent_at: float | None = None) -> None:
        """Correct the quota by ``difference``."""
        self._line.correct(self.id, difference)

    def set_remaining(self, remaining: float, now: float) -> None:
        """Set what is left of the quota."""
        self._line.set_remaining(self.id, remaining)


def check_shared(policy: ScopePolicy, *, path: str) -> None:
    """Refuse what a shared scope can't have.

    Raises:
        SettingsError: Its configuration, or the settings, ask for something that is only known to one process.
    """
    config, limits = policy.config, policy.limits
    wrong = (
        "'rampup'" if policy.rampup is not None
        else "AUTOTHROTTLE_ENABLED: give it a 'delay' of its own" if policy.autothrottle is not None
        else "'delay_per_slot': give it a 'delay'" if config.get("delay_per_slot")
        else "'sliding'" if limits.sliding and limits.quota < inf
        else "'pages': give it a 'quota'" if limits.pages < inf
        else ""
    )  # fmt: skip
    if wrong:
        words = f"{path} is needed by several processes of this job, and such a scope can't have {wrong}"
        raise SettingsError(words, path)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SharedSnapshot).decode


def shared_limits(scope: Scope, now: float) -> SharedLimits:
    """Return the limits of a scope that are to be in force for all."""
    state: ScopeState = scope.state
    configured = state.policy.limits
    backoff, hold, reason = state.backoff, max(0.0, scope.held_until - now), scope.hold_reason
    learned = SharedSnapshot(
        backoff=None if backoff is None else backoff.moved(lambda at: at - now),
        step=scope.step,
        source=state.trigger_source,
        hold=hold,
        hold_limit=reason.limit if reason is not None else "hint",
        hold_source=reason.source if reason is not None else "",
    )
    return SharedLimits(
        concurrency=inf if scope.concurrency == inf else max(1.0, scope.concurrency),
        delay=scope.delay,
        shortest=scope.shortest,
        hold=hold,
        quota=configured.quota,
        window=configured.window,
        learned=_encode(learned),
    )


def is_slower(scope: Scope, learned: bytes, now: float) -> bool:
    """Return True if this process was refused after, or just before, another has written this, and is slower for it.

    Raises:
        ValueError: It can't be read.
    """
    state: ScopeState = scope.state
    theirs = _decode(learned).backoff
    if state.backoff is None or state.triggered_at < now - _RECENT:
        return False
    return theirs is None or state.backoff.delay > theirs.delay or state.backoff.concurrency < theirs.concurrency


def adopt(scope: Scope, learned: bytes, now: float) -> None:
    """Go on from what another process had learned of a scope at ``now``.

    Raises:
        ValueError: It can't be read.
    """
    state: ScopeState = scope.state
    theirs = _decode(learned)
    scope.step = max(scope.step, theirs.step)
    state.trigger_source = theirs.source
    state.backoff = None
    if theirs.backoff is not None:
        state.backoff = theirs.backoff.moved(lambda at: at + now)
        state.escalated_at = state.triggered_at = state.backoff.quiet_from
    if theirs.hold > 0.0:
        limit: Any = theirs.hold_limit
        scope.hold(now + theirs.hold, Reason(scope.id, limit, now + theirs.hold, theirs.hold_source))
    state.apply(scope)
