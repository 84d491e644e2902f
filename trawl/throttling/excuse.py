"""Whether a request that was refused is sent again, and whether that is one of its retries (B20).

Backing off loses nothing: a refusal is the scope's affair, not the request's, so a trigger is sent again, whatever
its status; only a page that came (2xx, 3xx) is kept, even where a manager takes it for a trigger. An answer that says
when to come back never counts as a retry. Any other trigger counts only where the scope is healthy, that is where it
gave a good answer since this request was refused last. The first refusal may be the first sign of an outage, so it is
counted with the second one, when that shows that it was not. One bad page on a healthy host so ends after its
retries; an outage ends nobody. A scope that never gave a whole answer and can't be connected to, or speaks no HTTP, is
no outage, it is not there.

A page that was shown so to fail on a healthy host may be all that is left to send, and then nothing can give a good
answer any more. Its further refusals count as long as it fails *alone*: no other request of the scope was refused
since its last good answer, those left out that are known to fail by themselves. An answer that broke off came from a
host that is there, so it is taken for the page's own fault as soon as it broke off twice with nobody else refused.

A 429, or a refusal with a time in it, is never a retry (R12), and still a path may answer nothing else for ever. What
tells it from a host that refuses as a whole is that the others are served meanwhile; what tells it from a rate limit is
that nobody who was refused is served later. So each request counts its refusals of that kind: one counts if the scope
gave a good answer since the one before (or, once that was so, if it is refused alone); the count begins anew when a
request that had been refused is answered well. After seven it is *hopeless*, and ends with its last answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from trawl.errors import ConnectFailed, ConnectTimeout, ResponseBroken
from trawl.throttling.said import said

if TYPE_CHECKING:
    from trawl.http import Outcome
    from trawl.throttling.policy import ScopePolicy
    from trawl.throttling.sent import Sent
    from trawl.throttling.signals import Signal

__all__ = ["BAD_PAGE", "REFUSALS", "REFUSED_AT", "UNCOUNTED", "judge", "passed_by"]

REFUSED_AT = "throttling_refused_at"
"""Meta key: when this request was refused last, in epoch seconds; it goes with the request when that is sent again."""

BAD_PAGE = "throttling_bad_page"
"""Meta key: it was refused on a scope that answered others well before and since."""

UNCOUNTED = "throttling_uncounted"
"""Meta key: it failed before, not with an excuse of its own, and that was not counted for want of a good answer."""

REFUSALS = "throttling_refusals"
"""Meta key: how often it was told to come back later while its scope served others."""

SEVERAL = "*"
"""In place of the one request that was refused: there was more than one."""

TOO_MANY_REQUESTS = 429
MOST_REFUSALS = 7  # in a row: with the pace halved at each, two minutes from 1 s on
_KEPT = range(200, 400)


def judge(
    entry: Sent,
    outcome: Outcome,
    policies: Sequence[ScopePolicy],
    signals: Iterable[Signal],
    *,
    now: float,
    utc: datetime,
) -> None:
    """Set ``is_trigger``, ``is_excused`` and ``is_hopeless`` of an outcome. Notes the refusal in the request's meta.

    Args:
        entry: The request.
        outcome: What became of it.
        policies: Of the scopes for which it is a trigger, as they were before it.
        signals: What was told about its scopes.
        now: The instant.
        utc: The same in wall time.
    """
    response, error = outcome.response, outcome.error
    if not policies or (response is not None and response.status in _KEPT):
        return
    if error is not None and not getattr(error, "is_retryable", False):
        return
    outcome.is_trigger = True
    refused_utc = entry.request.meta_get(REFUSED_AT)
    refused_at = None if refused_utc is None else now - max(0.0, utc.timestamp() - refused_utc)
    _note(entry, outcome, REFUSED_AT, utc.timestamp())
    is_retry, refusals = _said(entry, outcome, policies), 0
    if is_retry is None:
        has_hint = any(signal.delay for signal in signals if signal.is_trigger)
        if has_hint or (response is not None and response.status == TOO_MANY_REQUESTS):
            is_retry, refusals = False, _refusals(entry, policies, refused_at)
            _note(entry, outcome, REFUSALS, refusals)
        else:
            is_retry = _counts(entry, outcome, policies, refused_at)
    outcome.is_hopeless = refusals >= MOST_REFUSALS
    outcome.is_excused = not is_retry and not outcome.is_hopeless
    if refusals < 2 and not entry.request.meta_get(BAD_PAGE):  # else it is known to be refused while others are served
        name = _name(entry)
        for policy in policies:
            policy.refused = name if policy.refused in ("", name) else SEVERAL


def passed_by(entry: Sent, others: Mapping[str, Signal] | None) -> list[str]:
    """The scopes that don't hold a refused request back by themselves, so that it has to wait for them before it goes.

    Args:
        entry: The request.
        others: What was told about scopes that are not among its own.
    """
    ids = [id for id, signal in (others or {}).items() if signal.is_trigger]
    return [*ids, *(id for id, _ in entry.scopes)] if entry.is_exempt else ids


def _said(entry: Sent, outcome: Outcome, policies: Sequence[ScopePolicy]) -> bool | None:
    """Whether it is a retry by the word of a scope's manager; None: none has an opinion."""
    for policy in policies:
        if policy.manager is None:
            continue
        answer = said(policy.manager, "is_retry", policy.kind.failed, entry.request, outcome.response, outcome.error)
        if answer is not None:
            return bool(answer)
    return None


def _counts(entry: Sent, outcome: Outcome, policies: Sequence[ScopePolicy], refused_at: float | None) -> bool:
    error = outcome.error
    is_not_there = isinstance(error, ConnectFailed | ConnectTimeout | ResponseBroken)
    if is_not_there and not any(each.has_answered for each in policies):
        return True
    is_known, has_failed = bool(entry.request.meta_get(BAD_PAGE)), bool(entry.request.meta_get(UNCOUNTED))
    are_others_served = refused_at is not None and all(policy.good_at > refused_at for policy in policies)
    is_own_fault = is_known or (has_failed and isinstance(error, ResponseBroken))
    if not are_others_served and not (is_own_fault and _is_alone(entry, policies)):
        _note(entry, outcome, UNCOUNTED, True)
        return False
    if not is_known:
        _note(entry, outcome, BAD_PAGE, True)
        if has_failed:  # its first failure; a 429 before it stays excused
            _note(entry, outcome, "retry_times", entry.request.meta_get("retry_times", 0) + 1)
    return True


def _refusals(entry: Sent, policies: Sequence[ScopePolicy], refused_at: float | None) -> int:
    """How often it was told to come back later while others were served, this time included."""
    count: int = entry.request.meta_get(REFUSALS, 0)
    if refused_at is None or not count or any(policy.passed_at > refused_at for policy in policies):
        return 1
    are_others_served = all(policy.good_at > refused_at for policy in policies)
    return count + (are_others_served or (count > 1 and _is_alone(entry, policies)))


def _is_alone(entry: Sent, policies: Sequence[ScopePolicy]) -> bool:
    """Whether its scopes refused nobody else since their last good answers, but what fails by itself."""
    name = _name(entry)
    return all(policy.refused in ("", name) for policy in policies)


def _name(entry: Sent) -> str:
    return f"{entry.request.method} {entry.request.url}"


def _note(entry: Sent, outcome: Outcome, key: str, value: object) -> None:
    for request in {id(each): each for each in (entry.request, outcome.request)}.values():
        request.meta[key] = value
