"""Shared scopes: which they are, and what one process knows of them.

Theory of operation. In a job that several processes work on, each host is one process's alone, and so are the scopes
that look like that host. All others, and those declared with ``shared``, are needed by several: the job's store grants
them (:mod:`trawl.throttling.line`). The process keeps a scope of its own for each all the same. It spaces its own sends
exactly, knows what they were refused for, and backs off by the same policies as ever; the store only holds everybody to
what they lead to. So a shared scope is never faster than one process alone would let it be::

    here: own sends, jitter, lead, backoff ──► limits in force ──► store: all sends, places, quota ──► tokens
                       ▲                                             │
                       └──────── what another process has learned ◄──┘

What was learned is written with a version: who has not heard of the latest adopts that, unless its own is slower and
newer.
"""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec

from trawl.errors import SettingsError
from trawl.throttling.backoff import BackoffState
from trawl.throttling.explain import Reason
from trawl.throttling.line import SharedLimits
from trawl.throttling.policy import ScopePolicy, ScopeState
from trawl.throttling.scope import Scope

__all__ = ["adopt", "check_shared", "is_slower", "shared_limits"]

_RECENT = 2.0
"""Seconds. A refusal so shortly before what another process has written was not known to it."""


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


class _SharedState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The knowledge that one process's policies have of a scope; instants are seconds before it was written.

    Attributes:
        backoff: How far it backs off; None: not at all.
        step: Incidents counted.
        source: The last trigger, in words.
        hold: Seconds for which it is held.
        hold_limit: By which limit.
        hold_source: Where that comes from.
    """

    backoff: BackoffState | None = None
    step: int = 0
    source: str = ""
    hold: float = 0.0
    hold_limit: str = "hint"
    hold_source: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_SharedState).decode


def shared_limits(scope: Scope, now: float) -> SharedLimits:
    """Return the limits of a scope that are to be in force for all."""
    state: ScopeState = scope.state
    configured = state.policy.limits
    backoff, hold, reason = state.backoff, max(0.0, scope.held_until - now), scope.hold_reason
    learned = _SharedState(
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
